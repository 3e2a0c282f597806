package cli

import (
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// control starts `hongbao control`, and returns the URLs of its two listeners.
func (d *deployment) control(knobs ...string) (p *program, base, ops string) {
	d.t.Helper()
	at, opsAt := testkit.FreeAddr(d.t), testkit.FreeAddr(d.t)
	p = d.start(append([]string{"control", "--control.listen=" + at, "--control.ops_listen=" + opsAt}, knobs...)...)
	p.says("serving the administration")
	testkit.Eventually(d.t, 10*time.Second, func() bool { // the two listeners open independently
		conn, err := net.Dial("tcp", opsAt)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, "the ops listener is open")
	return p, "http://" + at, "http://" + opsAt
}

// logIn logs in to the console with a key. It returns the status and the text of the first page.
func logIn(t *testing.T, base, key string) (status int, text string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	res, err := (&http.Client{Jar: jar}).PostForm(base+"/login", url.Values{"key": {key}})
	require.NoError(t, err)
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(all)
}

// While no `hongbao serve` runs, `hongbao control` serves the administration API and the console, runs commands for
// --server, and exports metrics.
func TestControlAlone(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 9, 900)
	p, base, ops := d.control()
	key := d.key("treasurer")
	at := atServer{t, []string{"HONGBAO_SERVER=" + base, "HONGBAO_KEY_FILE=" + keyFile(t, key, 0o600)}}
	require.Zero(t, at.run("campaign", "pause", "rain", "--by", "ann", "--why", "test").code)
	require.Equal(t, store.StatePaused, d.rdb.HGet(t.Context(), d.store.Home("rain").Keys.Campaign("rain"), "state").Val())
	require.Equal(t, http.StatusOK, (&visitor{t, base, key}).statusOf("GET", "/v1/campaigns/rain"))
	status, text := ask(t, base+"/login")
	require.Equal(t, http.StatusOK, status, text)
	text = scrape(t, ops, d.id())
	for _, line := range []string{`hongbao_http_requests_total{listener="control",route="/login",status="200"} 1`, `hongbao_state_up 1`} {
		require.Contains(t, text, line+"\n")
	}
	require.Regexp(t, `hongbao_build_info\{command="control",version="[^"]+"\} 1`, text)
	require.Contains(t, d.ok("health", "control", "--control.ops_listen="+strings.TrimPrefix(ops, "http://")), "control: ok")
	p.Signal(syscall.SIGTERM)
	require.Zero(t, p.wait(30*time.Second).code, p.Err.String())
}

// `hongbao serve` alone has no control listener, does not ask for the deployment's state, and needs no ledger.
func TestServeAloneHasNoControl(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 9, 900)
	at := testkit.FreeAddr(t)
	g := d.serveUsers("--control.listen=" + at)
	require.Equal(t, "granted", g.grab("rain", "u1", "r1").Outcome)
	_, err := net.Dial("tcp", at)
	require.ErrorContains(t, err, "refused")
	text := scrape(t, g.ops("serving grabs", "ops"), d.id())
	require.Contains(t, text, `hongbao_campaign_left_packets{campaign="rain"} 8`)
	require.NotContains(t, text, "hongbao_state_up")
	g.Signal(syscall.SIGTERM)
	require.Zero(t, g.wait(30*time.Second).code)
	require.NotContains(t, g.Err.String(), "serving the administration")
	require.Equal(t, "already_granted", d.serveUsers("--ledger.dsn=").grab("rain", "u1", "r2").Outcome)
	for _, command := range [][]string{{"control", "--ledger.dsn="}, {"serve", "--control", "--ledger.dsn="}} {
		d.refused(2, command, "ledger.dsn is empty: the administration needs the ledger")
	}
}

// `hongbao control` is killed and started while a worker restores a shard. It is no witness of what users know, although
// it shows their grants: so no restore waits for it.
func TestControlDelaysNoRestore(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 9, 900)
	g := d.serveUsers()
	require.Equal(t, "granted", g.grab("rain", "u1", "r1").Outcome)
	k := d.store.Home("rain")
	key := d.key("operator")
	// witnessed requires that only serve is registered, after control has shown a grant.
	witnessed := func(control string) {
		t.Helper()
		require.Equal(t, http.StatusOK, (&visitor{t, control, key}).statusOf("GET", "/v1/campaigns/rain/trail?user=u1"))
		registered, err := k.Witnesses(t.Context())
		require.NoError(t, err)
		require.Len(t, registered, 1)
	}
	p, control, _ := d.control()
	witnessed(control)
	g.Signal(syscall.SIGSTOP) // the restore waits for this witness
	require.NoError(t, d.rdb.HSet(t.Context(), k.Keys.Meta(), "frozen", time.Now().UnixMilli()).Err())
	d.start("work")
	testkit.Eventually(t, 60*time.Second, func() bool {
		a, err := k.Attempt(t.Context())
		return err == nil && a.Epoch > 0
	}, "a worker restores the shard")
	p.Kill()
	p, control, _ = d.control()
	witnessed(control)
	g.Signal(syscall.SIGCONT)
	testkit.Eventually(t, 60*time.Second, func() bool {
		status, _ := g.call("POST", "/v1/campaigns/rain/grabs", "k1", "u1", `{"request_id":"r2"}`)
		return status == http.StatusOK
	}, "the shard is open again")
	witnessed(control)
	require.Equal(t, "already_granted", g.grab("rain", "u1", "r2").Outcome)
	p.Signal(syscall.SIGTERM)
	require.Zero(t, p.wait(30*time.Second).code, p.Err.String())
}

// `hongbao control` starts before Redis. People can log in and see what the ledger has. Changes are refused until Redis is
// open, which needs no restart.
func TestControlWithoutRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	server := testkit.NewRedis(t, testkit.RedisOptions{Dir: t.TempDir(), Args: map[string]string{"appendfsync": "always"}})
	d := setup(t, options{redis: server})
	d.campaign("rain", 9, 900)
	key := d.key("operator")
	require.NoError(t, server.Kill())
	p, base, ops := d.control()
	status, text := ask(t, ops+"/readyz")
	require.Equal(t, http.StatusOK, status, text)
	status, text = logIn(t, base, key)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "Spring rain")
	const pause, why = "/v1/campaigns/rain/pause", `{"why":"test"}`
	status, text = (&visitor{t, base, key}).send("POST", pause, "application/json", why)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "redis was not opened since this process started")
	status, _ = (&visitor{t, base, key}).send("POST", "/language", "application/x-www-form-urlencoded", "language=zh-Hans")
	require.NotEqual(t, http.StatusServiceUnavailable, status, "the language is the browser's")
	require.NoError(t, server.Restart())
	d.start("work") // opens the shard after it has checked for a loss
	require.Equal(t, http.StatusOK, (&administrator{t, base, key}).post(pause, why, "pause", nil))
	p.Signal(syscall.SIGTERM)
	require.Zero(t, p.wait(30*time.Second).code, p.Err.String())
}

// The ledger goes down while nobody uses `hongbao control`. An operator can still log in, and pause a
// campaign.
func TestControlWithoutTheLedger(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	d.campaign("rain", 9, 900)
	key := d.key("operator", "--expires", "720h")
	dsn, err := url.Parse(d.dsn)
	require.NoError(t, err)
	ledger := testkit.NewProxy(t, dsn.Host)
	dsn.Host = ledger.Addr
	d.set("LEDGER_DSN", dsn.String())
	direct, err := pgx.Connect(t.Context(), d.dsn)
	require.NoError(t, err)
	defer direct.Close(t.Context())
	reads := func() (n int) {
		require.NoError(t, direct.QueryRow(t.Context(), `SELECT coalesce(seq_scan, 0) + coalesce(idx_scan, 0)
			FROM pg_stat_user_tables WHERE relname = 'console_session'`).Scan(&n))
		return n
	}
	before := reads()
	_, base, _ := d.control()
	testkit.Eventually(t, 60*time.Second, func() bool { return reads() > before }, "it has read the keys and the sessions")
	ledger.Refuse(true)
	ledger.CutAll()
	testkit.Eventually(t, 60*time.Second, func() bool {
		status, _ := logIn(t, base, key)
		return status == http.StatusOK
	}, "the operator logs in, once control knows that the ledger is down")
	status, text := (&visitor{t, base, key}).send("POST", "/v1/campaigns/rain/pause", "application/json", `{"why":"test"}`)
	require.Equal(t, http.StatusOK, status, text)
}

// A flag that has moved to section control is refused with what to do.
func TestMovedFlag(t *testing.T) {
	t.Parallel()
	r := runProgram(t, nil, "serve", "--serve.control_listen=127.0.0.1:1")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "unknown flag: --serve.control_listen: it is control.listen now: rename it, and run `hongbao control`")
}
