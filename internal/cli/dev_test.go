package cli

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	public "github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/dev"
	"github.com/hongbao-project/hongbao/internal/front/serve"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// devServer is a running `hongbao dev`.
type devServer struct {
	*program
	dev.Site
	mark int // output returns the output from this byte on
}

// startDev starts `hongbao dev` and waits until it is ready.
func startDev(t *testing.T, env []string, args ...string) *devServer {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return startDevOf(t, self, env, args...)
}

// startDevOf starts the command dev of a program.
func startDevOf(t *testing.T, path string, env []string, args ...string) *devServer {
	t.Helper()
	d := &devServer{}
	file := filepath.Join(t.TempDir(), "dev.env")
	d.program = launch(t, t.TempDir(), env, exec.Command(path, append([]string{"dev", "--listen", "127.0.0.1:0", "--env", file}, args...)...))
	testkit.EventuallyOK(t, time.Minute, func() error {
		_, err := os.Stat(file)
		return err
	}, "hongbao dev is ready")
	testkit.Eventually(t, time.Minute, func() bool { return strings.Contains(d.Out.String(), "Ctrl-C stops all of it") },
		"hongbao dev has printed the commands")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	into := map[string]*string{"API": &d.API, "CONSOLE": &d.Console, "METRICS": &d.Metrics, "KEY": &d.Key,
		"GATEWAY_KEY": &d.GatewayKey, "CAMPAIGN": &d.Campaign, "HONGBAO_CONFIG": &d.Config,
		"REDIS": &d.Redis, "KAFKA": &d.Kafka, "TOPIC": &d.Topic}
	for _, v := range regexp.MustCompile(`(?m)^export (\w+)=(.+)$`).FindAllStringSubmatch(string(text), -1) {
		require.NotNil(t, into[v[1]], v[1])
		*into[v[1]] = v[2]
		delete(into, v[1])
	}
	require.Empty(t, into)
	return d
}

// shell runs a line of bash, as a person would who copied it.
func (d *devServer) shell(line string) string {
	d.t.Helper()
	p := launch(d.t, d.t.TempDir(), nil, exec.Command("bash", "-c", line))
	r := p.wait(time.Minute)
	require.Zero(d.t, r.code, "$ %s\n%s%s", line, r.out, r.err)
	return r.out
}

// get sends a request with a Host header and an API key to one of the listeners, and returns the status.
func (d *devServer) get(url, host, key string) int {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, url, nil)
	require.NoError(d.t, err)
	r.Host = host
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(d.t, err)
	require.NoError(d.t, res.Body.Close())
	return res.StatusCode
}

// printed returns the commands that the server printed for people to copy.
func (d *devServer) printed() []string {
	d.t.Helper()
	self, err := os.Executable()
	require.NoError(d.t, err)
	var out []string
	for line := range strings.Lines(d.Out.String()) {
		if strings.HasPrefix(line, "curl ") || strings.HasPrefix(line, self+" ") {
			out = append(out, strings.TrimSuffix(line, "\n"))
		}
	}
	require.Len(d.t, out, 6)
	return out
}

// granted returns the only receipt in the answer to the printed grab command.
func (d *devServer) granted(answer string) serve.Receipt {
	d.t.Helper()
	var b serve.BatchAnswer
	require.NoError(d.t, json.Unmarshal([]byte(answer), &b), answer)
	require.Len(d.t, b.Results, 1)
	require.NotNil(d.t, b.Results[0].Answer, answer)
	require.Len(d.t, b.Results[0].Answer.Receipts, 1, answer)
	return b.Results[0].Answer.Receipts[0]
}

// end sends the signal, and requires that the server stops without an error.
func (d *devServer) end(s syscall.Signal) {
	d.t.Helper()
	d.Signal(s)
	r := d.wait(30 * time.Second)
	require.Zero(d.t, r.code, "%s%s", r.out, r.err)
	require.Empty(d.t, r.err)
}

// Each command that `hongbao dev` prints works as the line above it says. Its listeners refuse requests for other host
// names. After it has stopped, it leaves neither files nor processes.
func TestDev(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, path string
		signal     syscall.Signal
	}{{"redis", os.Getenv("PATH"), syscall.SIGTERM}, {"miniredis", "", syscall.SIGINT}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tmp, _ := demoEnv(t)
			d := startDev(t, []string{"TMPDIR=" + tmp, "PATH=" + c.path}, "--crowd", "40")
			require.Equal(t, c.path == "", strings.Contains(d.Out.String(), "miniredis, in this process"))
			lines := d.printed()
			got := d.granted(d.shell(lines[0]))
			require.Equal(t, got, d.granted(d.shell(lines[0])), "the same request gets the same receipt")
			require.Contains(t, d.shell(lines[1]), `"event":"`+got.Event+`"`)
			require.Contains(t, d.shell(lines[2]), `"status":"open"`)
			require.Contains(t, d.shell(lines[3]), "hongbao_grabs")
			d.shell(lines[4])
			require.Contains(t, d.shell(lines[5]), "Redis, ledger and topic: agrees")
			require.Contains(t, d.shell(strings.Replace(lines[4], "--limit 5", "--campaign demo", 1)),
				`"event":"`+got.Event+`"`, "the topic has the grant")
			d.hosts()
			d.logsIn()
			require.Equal(t, hongbao.OutcomeGranted, d.grabAsProgram().Outcome)
			testkit.Eventually(t, 30*time.Second, func() bool {
				return strings.Contains(d.shell("curl -s "+d.Metrics+"/metrics"), `outcome="already_granted"`)
			}, "some simulated users grab twice")
			require.NotEmpty(t, descendants(t, tmp, d.Cmd.Process.Pid), "the test sees its processes")
			d.end(c.signal)
			nothingLeft(t, tmp, d.Cmd.Process.Pid)
		})
	}
}

// logsIn opens the printed link twice, as a preview and a person do, and presses its button.
func (d *devServer) logsIn() {
	d.t.Helper()
	link := regexp.MustCompile(`(?m)^log in +(\S+)$`).FindStringSubmatch(d.Out.String())
	require.NotEmpty(d.t, link)
	jar, err := cookiejar.New(nil)
	require.NoError(d.t, err)
	browser := &http.Client{Jar: jar}
	press := func(method string) (int, string) {
		r, err := http.NewRequestWithContext(d.t.Context(), method, link[1], nil)
		require.NoError(d.t, err)
		res, err := browser.Do(r)
		require.NoError(d.t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(d.t, err)
		return res.StatusCode, string(text)
	}
	for range 2 {
		code, text := press(http.MethodGet)
		require.Equal(d.t, http.StatusOK, code)
		require.Contains(d.t, text, "Log in to the console")
	}
	code, text := press(http.MethodPost)
	require.Equal(d.t, http.StatusOK, code, "the browser follows to the first page")
	require.Contains(d.t, text, "Log out")
	code, _ = press(http.MethodPost)
	require.Equal(d.t, http.StatusGone, code)
}

// grabAsProgram grabs by a producer at the address in the file of --env.
func (d *devServer) grabAsProgram() hongbao.Answer {
	d.t.Helper()
	cfg := producer.DefaultConfig()
	var err error
	cfg.Deployment, err = public.Open(public.Config{ID: "hongbao", Space: hongbao.Space{Prefix: "hb", Shards: 1},
		Redis: &redis.UniversalOptions{Addrs: []string{d.Redis}}})
	require.NoError(d.t, err)
	defer cfg.Deployment.Close()
	p, err := producer.New(cfg)
	require.NoError(d.t, err)
	answer, err := p.Grab(d.t.Context(), &hongbao.Grab{Campaign: d.Campaign, User: "program", RequestID: "r1"})
	require.NoError(d.t, err)
	require.NoError(d.t, p.Close(d.t.Context()))
	return answer
}

// hosts sends requests to each listener under its own names and under foreign names.
func (d *devServer) hosts() {
	d.t.Helper()
	for _, at := range []struct{ url, key string }{
		{d.API + "/v1/campaigns/demo", ""}, {d.Console + "/v1/campaigns", d.Key}, {d.Metrics + "/metrics", ""},
	} {
		for host, want := range map[string]int{
			"": http.StatusOK, "localhost": http.StatusOK, "localhost:1": http.StatusOK, "[::1]:8080": http.StatusOK,
			"evil.example": http.StatusMisdirectedRequest, "evil.example:8080": http.StatusMisdirectedRequest,
			"127.0.0.1.evil.example": http.StatusMisdirectedRequest, "localhost.evil.example": http.StatusMisdirectedRequest,
		} {
			require.Equal(d.t, want, d.get(at.url, host, at.key), "%s as %q", at.url, host)
		}
	}
	require.Equal(d.t, http.StatusUnauthorized, d.get(d.Console+"/v1/campaigns", "", d.Key[:len(d.Key)-1]+"x"))
}

// With --data-dir the next start continues with the data of the previous one, and prints a new API key. Two servers
// can't share a folder.
func TestDevKeepsItsData(t *testing.T) {
	t.Parallel()
	tmp, _ := demoEnv(t)
	folder := filepath.Join(t.TempDir(), "kept")
	require.NoError(t, os.Mkdir(folder, 0o755)) // other users may read a folder that a person has made
	first := startDev(t, []string{"TMPDIR=" + tmp}, "--data-dir", folder)
	info, err := os.Stat(folder)
	require.NoError(t, err)
	require.EqualValues(t, 0o700, info.Mode().Perm(), "only the owner may read the ledger")
	lines := first.printed()
	got := first.granted(first.shell(lines[0]))
	r := runProgram(t, []string{"TMPDIR=" + tmp}, "dev", "--listen", "127.0.0.1:0", "--data-dir", folder)
	require.Equal(t, 2, r.code, r.err)
	require.Contains(t, r.err, "another `hongbao dev` has")
	require.Contains(t, first.shell(lines[5]), "agrees")
	first.end(syscall.SIGTERM)
	require.Empty(t, descendants(t, folder, first.Cmd.Process.Pid))

	second := startDev(t, []string{"TMPDIR=" + tmp}, "--data-dir", folder)
	lines = second.printed()
	require.Equal(t, got, second.granted(second.shell(lines[0])), "the receipt is kept")
	require.Contains(t, second.shell(lines[4]), `"event":"`+got.Event+`"`, "the topic is kept")
	require.Contains(t, second.shell(lines[5]), "agrees")
	require.NotEqual(t, first.Key, second.Key)
	require.Equal(t, http.StatusUnauthorized, second.get(second.Console+"/v1/campaigns", "", first.Key))
	require.Equal(t, http.StatusOK, second.get(second.Console+"/v1/campaigns", "", second.Key))
	second.end(syscall.SIGINT)
	nothingLeft(t, tmp, second.Cmd.Process.Pid)
}

// `hongbao dev` refuses an impossible start before it creates anything, and leaves nothing behind.
func TestDevRefuses(t *testing.T) {
	t.Parallel()
	tmp, _ := demoEnv(t)
	foreign := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "letter.txt"), []byte("dear ann"), 0o600))
	var lc net.ListenConfig
	taken, err := lc.Listen(context.WithoutCancel(t.Context()), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	for _, c := range []struct {
		name  string
		env   []string
		args  []string
		code  int
		parts []string
	}{
		{"miniredis keeps nothing", []string{"PATH="}, []string{"--data-dir", filepath.Join(tmp, "no")}, 2,
			[]string{"--data-dir", "redis-server", "apt-get install"}},
		{"a folder of others", nil, []string{"--data-dir", foreign}, 2, []string{foreign, "has files", "empty folder"}},
		{"an open listener", nil, []string{"--listen", "0.0.0.0:0"}, 2, []string{"not on loopback", "serve.tls_cert",
			"control.tls_cert", "unsafe.allow"}},
		{"no address", nil, []string{"--listen", "8080"}, 2, []string{"--listen", "127.0.0.1:8080"}},
		{"no ports behind it", nil, []string{"--listen", "127.0.0.1:65534"}, 2, []string{"--listen", "two more ports"}},
		{"a taken port", nil, []string{"--listen", taken.Addr().String()}, 1, // or the port behind it, which another test may have
			[]string{"listen on 127.0.0.1:", "address already in use", "choose three other ports with --listen"}},
		{"too large a crowd", nil, []string{"--crowd", "10001"}, 2, []string{"--crowd", "0 to 10000"}},
		{"another server by flag", nil, []string{"--redis.addrs=127.0.0.1:1"}, 2, []string{"--redis.addrs", "leave it out"}},
		{"one port for all workers", nil, []string{"--work.ops_listen=127.0.0.1:8083"}, 2,
			[]string{"--work.ops_listen", "leave it out"}},
		{"a file of others", nil, []string{"--env", filepath.Join(foreign, "letter.txt")}, 2,
			[]string{"--env", "letter.txt is there already"}},
		{"another server by environment", []string{"HONGBAO_LEDGER_DSN=other.db"}, nil, 2,
			[]string{"HONGBAO_LEDGER_DSN", "unset it"}},
		{"another file", nil, []string{"--config", "x.yaml"}, 2, []string{"--config", "leave it out"}},
		{"a wrong knob", nil, []string{"--serve.rate=0"}, 2, []string{"serve.rate"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			own := t.TempDir()
			p := start(t, append([]string{"TMPDIR=" + own}, c.env...), append([]string{"dev"}, c.args...)...)
			r := p.wait(30 * time.Second)
			require.Equal(t, c.code, r.code, "%s%s", r.out, r.err)
			for _, part := range c.parts {
				require.Contains(t, r.err, part)
			}
			nothingLeft(t, own, p.Cmd.Process.Pid)
		})
	}
	require.NoDirExists(t, filepath.Join(tmp, "no"))
	letter, err := os.ReadFile(filepath.Join(foreign, "letter.txt"))
	require.NoError(t, err)
	require.Equal(t, "dear ann", string(letter))
}
