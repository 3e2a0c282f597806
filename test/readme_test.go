package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The tests in this file run the console blocks of README.md and other pages. A line "$ command" is a command, and the
// lines below it are its output.

// step is a command of a console block, and its output on the page.
type step struct {
	command string
	prints  []string
}

// section returns the text of README.md from a heading to the next heading of the same level.
func section(t *testing.T, heading string) string {
	t.Helper()
	_, after, found := strings.Cut(page(t, "README.md"), "\n## "+heading+"\n")
	require.True(t, found, "README.md has no section %q", heading)
	before, _, _ := strings.Cut(after, "\n## ")
	return before
}

var fence = regexp.MustCompile("(?s)```(\\w+)\n(.*?)```")

// steps returns the steps in the console blocks of a text.
func steps(text string) []step {
	var out []step
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		if block[1] != "console" {
			continue
		}
		for line := range strings.Lines(block[2]) {
			line = strings.TrimRight(line, "\n")
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				out = append(out, step{command: command})
			} else if n := len(out); n > 0 && strings.HasSuffix(out[n-1].command, "\\") {
				out[n-1].command += "\n" + line
			} else if n > 0 {
				out[n-1].prints = append(out[n-1].prints, line)
			}
		}
	}
	return out
}

// shapes are patterns of texts that differ between runs, with the marks that replace them.
var shapes = []struct {
	is   *regexp.Regexp
	mark string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`), "<time>"},
	{regexp.MustCompile(`\b[0-9a-f]{16,64}\b`), "<hex>"},
	{regexp.MustCompile(`request id \S+|"request_id":"[^"]+"`), "<request id>"},
	{regexp.MustCompile(`\d+(\.\d+)?(ms|µs|s)\b`), "<duration>"},
	{regexp.MustCompile(`\d+(\.\d+)?`), "<n>"},
	{regexp.MustCompile(`#+`), "<bar>"},
	{regexp.MustCompile(` {2,}`), " "},
}

// shape replaces the texts of a line that differ between runs.
func shape(line string) string {
	for _, s := range shapes {
		line = s.is.ReplaceAllString(line, s.mark)
	}
	return strings.TrimSpace(line)
}

func shapesOf(lines []string) []string {
	out := []string{}
	for _, l := range lines {
		if s := shape(l); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// build returns a folder with bin, the folder of the programs, and with copies of configs and examples/clients.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	bin, err := programs()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(bin, filepath.Join(dir, "bin")))
	for _, folder := range []string{"configs", "examples/clients"} {
		require.NoError(t, os.CopyFS(filepath.Join(dir, folder), os.DirFS("../"+folder)))
	}
	return dir
}

// The quick start works as written, on real servers.
func TestQuickStart(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
	// The page's ports may be in use, so the test uses others. It does not need the server's drain delay.
	api, ops := testkit.FreeAddr(t), testkit.FreeAddr(t)
	runPage(t, "docs/quickstart.md", strings.NewReplacer("go run ./examples/grab ", "bin/grab ",
		"http://127.0.0.1:8080/", "http://"+api+"/",
		"http://127.0.0.1:8082/", "http://"+ops+"/", "bin/hongbao serve ", "bin/hongbao serve --serve.listen="+api+
			" --serve.ops_listen="+ops+" --control.listen=127.0.0.1:0 --serve.drain_delay=0s ").
		Replace(page(t, "docs/quickstart.md")))
}

// All commands of docs/start.md, the page for newcomers, work on `hongbao dev`.
func TestStartPage(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
	runPageOnDev(t, "docs/start.md", page(t, "docs/start.md"))
}

// The crowd of docs/load-test.md gets all packets.
func TestLoadTestPage(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
	text := page(t, "docs/load-test.md")
	require.Contains(t, text, "\ngranted 1000\nsold_out 4000\n") // runPageOnDev compares shapes, so check the numbers
	check := strings.NewReplacer("go run ./examples/load ", "bin/load ", "-users 5000\n", "-users 5000 | tee load.txt\n",
		"$ bin/hongbao audit", "$ grep -cx -e 'granted 1000' -e 'sold_out 4000' load.txt | grep -qx 2\n$ bin/hongbao audit")
	runPageOnDev(t, "docs/load-test.md", check.Replace(text))
}

// runPageOnDev runs a page in two shells, as the page says. The command of its sh block runs until the other commands
// have ended. The test uses free ports, because the page's ports may be in use.
func runPageOnDev(t *testing.T, page, text string) {
	t.Helper()
	block := fence.FindStringSubmatch(text)
	require.Len(t, block, 3)
	require.Equal(t, "sh", block[1])
	command, found := strings.CutPrefix(strings.TrimSpace(block[2]), "make build\n")
	require.True(t, found, "%s does not begin with make build", page)
	dir := build(t)
	cmd := exec.Command("bash", "-c", "exec "+command+" --listen 127.0.0.1:0")
	cmd.Dir, cmd.Env = dir, testkit.Environ()
	server := testkit.StartProgram(t, cmd)
	runSteps(t, steppedPage{name: page, text: text, dir: dir, server: server})
	server.Signal(syscall.SIGINT)
	require.Zero(t, server.Wait(time.Minute), "%s%s", server.Out.String(), server.Err.String())
}

// runPage runs the commands of a page in a shell, and compares the output of each with the page. It replaces only the
// variables that name the servers.
func runPage(t *testing.T, page, text string) {
	t.Helper()
	rdb, kafka := testkit.NewRedis(t, testkit.RedisOptions{}), testkit.Kafka(t)
	pg := newLedgerServer(t)
	database, err := pg.CreateDatabase(t.Context())
	require.NoError(t, err)
	runPageOn(t, page, text, []string{"HONGBAO_REDIS_ADDRS=" + rdb.Addr, "HONGBAO_KAFKA_BROKERS=" + kafka.Addr,
		"HONGBAO_LEDGER_DRIVER=postgres", "HONGBAO_LEDGER_DSN=" + pg.DSN(database),
		"HONGBAO_KAFKA_CREATE_TOPIC=true", "HONGBAO_KAFKA_REPLICATION_FACTOR=1"})
}

// newLedgerServer starts a PostgreSQL with fsync and full_page_writes.
func newLedgerServer(t *testing.T) *testkit.PostgresServer {
	t.Helper()
	return testkit.NewPostgres(t, testkit.PostgresOptions{Settings: map[string]string{"fsync": "on",
		"full_page_writes": "on"}})
}

// runPageOn runs the commands of a page like runPage. env has values for all variables that the page exports.
func runPageOn(t *testing.T, page, text string, env []string) {
	t.Helper()
	topic := fmt.Sprintf("readme-%d", time.Now().UnixNano())
	named := regexp.MustCompile(`export (HONGBAO_\w+)=`).FindAllStringSubmatch(text, -1)
	require.Len(t, named, len(env))
	for _, v := range named {
		require.True(t, slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, v[1]+"=") }),
			"the test does not set %s", v[1])
	}
	runSteps(t, steppedPage{name: page, text: text, dir: build(t), env: append(env, "HONGBAO_KAFKA_TOPIC="+topic)},
		topic, "hongbao.grants")
}

// steppedPage is a page whose commands a test runs.
type steppedPage struct {
	name, text string
	dir        string           // working directory of the commands
	env        []string         // environment of the commands
	server     *testkit.Program // runs in the background; may be nil
}

// runSteps runs the commands of a page, and compares the output of each with the page. renamed has pairs of a name in
// this run and the name on the page.
func runSteps(t *testing.T, page steppedPage, renamed ...string) {
	t.Helper()
	todo := steps(page.text)
	require.Greater(t, len(todo), 1)
	const mark = "@@@ next"
	script := strings.Builder{}
	for _, s := range todo {
		fmt.Fprintf(&script, "%s\necho '%s'\n", s.command, mark)
	}
	http, listen := overHTTP(t, page.text)
	script.WriteString(http)
	page.env = slices.Concat(page.env, listen)
	out := runScript(t, page, script.String())
	parts := strings.Split(strings.NewReplacer(renamed...).Replace(out), mark+"\n")
	require.Len(t, parts, len(todo)+1)
	for i, s := range todo {
		require.Equal(t, shapesOf(s.prints), shapesOf(strings.Split(parts[i], "\n")), page.name+
			" shows another output of\n$ %s\nnow it prints\n%s",
			s.command, parts[i])
	}
	if http != "" {
		require.Regexp(t, `(?s)^hb_\S+\n.*"outcome":"granted".*"packet":`, parts[len(todo)],
			"the HTTP block of %s", page.name)
	}
}

// runScript runs the commands of a page, and returns their output. A command may wait for a server without a limit, so
// runScript kills it when the server in the background ends, or after four minutes.
func runScript(t *testing.T, page steppedPage, script string) string {
	t.Helper()
	cmd := exec.Command("bash", "-eu", "-c", script)
	cmd.Dir, cmd.Env = page.dir, testkit.Environ(page.env...)
	cmd.WaitDelay = 10 * time.Second // background processes keep the output open
	shell := testkit.StartProgram(t, cmd)
	var ended <-chan struct{}
	if page.server != nil {
		ended = page.server.Done
	}
	limit := time.NewTimer(4 * time.Minute)
	defer limit.Stop()
	select {
	case <-shell.Done:
	case <-ended:
		shell.Kill()
	case <-limit.C:
		shell.Kill()
	}
	if !cmd.ProcessState.Success() {
		require.Fail(t, "the commands of "+page.name+" failed", "%v\n%s\n%s\n%s", cmd.ProcessState, &shell.Out, &shell.Err,
			logsBeside(t, page))
	}
	return shell.Out.String()
}

// logsBeside returns the output of the servers in the background.
func logsBeside(t *testing.T, page steppedPage) string {
	t.Helper()
	var all strings.Builder
	if page.server != nil {
		fmt.Fprintf(&all, "the server:\n%s\n%s\n", &page.server.Out, &page.server.Err)
	}
	logs, err := filepath.Glob(filepath.Join(page.dir, "*.log"))
	require.NoError(t, err)
	for _, path := range logs {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		fmt.Fprintf(&all, "%s:\n%s\n", filepath.Base(path), text)
	}
	return all.String()
}

// overHTTP returns the sh block of a page that starts a server and grabs over HTTP, or "" if there is none. It replaces
// the ports and the drain delay, and appends commands that stop the server.
func overHTTP(t *testing.T, text string) (script string, env []string) {
	t.Helper()
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		if block[1] == "sh" && strings.Contains(block[2], "bin/hongbao serve ") {
			script = block[2] + "kill %%\nwait %%\n"
		}
	}
	if script == "" {
		return "", nil
	}
	for port, knob := range map[string]string{"8080": "SERVE_LISTEN", "8081": "CONTROL_LISTEN", "8082": "SERVE_OPS_LISTEN"} {
		at := testkit.FreeAddr(t)
		script = strings.ReplaceAll(script, "127.0.0.1:"+port, at)
		env = append(env, "HONGBAO_"+knob+"="+at)
	}
	return script, append(env, "HONGBAO_SERVE_DRAIN_DELAY=0s")
}

// README.md shows a part of examples/grab, which TestQuickStart runs, without its indentation.
func TestReadmeShowsTheExample(t *testing.T) {
	t.Parallel()
	blocks := fence.FindAllStringSubmatch(section(t, "Use it"), -1)
	require.Len(t, blocks, 2)
	require.Equal(t, "go", blocks[1][1])
	require.Contains(t, strings.ReplaceAll(page(t, "examples/grab/main.go"), "\n\t", "\n"), blocks[1][2])
}

// The grab over HTTP of README.md works on the `hongbao dev` of README.md.
func TestReadmeGrab(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
	dev := regexp.MustCompile("`make build && (bin/hongbao dev .*?)`").FindStringSubmatch(section(t, "Try it"))
	require.Len(t, dev, 2)
	text := strings.Replace(section(t, "Use it"), "$ . ./dev.env\n",
		"$ until test -s dev.env; do sleep 1; done; . ./dev.env\n", 1)
	runPageOnDev(t, "README.md", "```sh\nmake build\n"+dev[1]+"\n```\n"+text)
}

// `hongbao demo` prints the lines that README.md shows, in this order. In README.md, "..." stands for omitted lines.
// The test skips progress lines and lines about the kill.
func TestReadmeDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the demo")
	}
	t.Parallel()
	todo := steps(section(t, "Try it"))
	require.Len(t, todo, 1)
	require.Equal(t, "make demo", todo[0].command)
	path, err := program()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), path, "demo")
	cmd.Env = testkit.Environ()
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	varies := regexp.MustCompile(`^<duration> granted|^<n>:<n>:<n> |^\.\.\.$`)
	shown := slices.DeleteFunc(shapesOf(todo[0].prints), func(s string) bool { return varies.MatchString(s) })
	require.Greater(t, len(shown), 6)
	rest := shapesOf(strings.Split(string(out), "\n"))
	for _, line := range shown {
		i := slices.Index(rest, line)
		require.GreaterOrEqual(t, i, 0, "the demo does not print %q there, now it prints\n%s", line, out)
		rest = rest[i+1:]
	}
	require.Contains(t, string(out), "AGREES")
}

// Every test and every row of TestLosses that docs/guarantees.md and docs/testing.md name exists.
func TestGuaranteesNameTests(t *testing.T) {
	t.Parallel()
	all := strings.Builder{}
	sources(t, []string{"_test.go"}, func(file string) { all.WriteString(page(t, file)) })
	text := page(t, "docs/guarantees.md") + page(t, "docs/testing.md")
	named := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(text, -1)
	require.Greater(t, len(named), 15)
	for _, name := range named {
		require.Contains(t, all.String(), "\nfunc "+name+"(t *testing.T)")
	}
	_, table, found := strings.Cut(text, "test: row of `TestLosses` |\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	losses := page(t, "test/losses_test.go")
	rows := strings.Split(table, "\n")[1:]
	require.Greater(t, len(rows), 5)
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), "|")
		require.Len(t, cells, 5, row)
		first, _, _ := strings.Cut(strings.TrimSpace(cells[4]), ",")
		require.Contains(t, losses, `name: "`+first, row)
	}
}

// anchors returns the anchors that GitHub generates for the headings of a document.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^#+ (.+)$").FindAllStringSubmatch(text, -1) {
		words := regexp.MustCompile(`[^\pL\pN_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(words, " ", "-")] = true
	}
	return all
}

// Every file, heading and make target that a document refers to exists.
func TestDocsNameWhatIsThere(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	target := regexp.MustCompile("(?m)(?:`|^\\$ |^    )make ([a-z]+)")
	sources(t, []string{".md"}, func(file string) {
		text, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			linked := filepath.Join("..", file)
			if m[1] != "" {
				linked = filepath.Join("..", filepath.Dir(file), m[1])
				require.FileExists(t, linked, "%s links to %s", file, m[1])
			}
			if m[2] != "" {
				page, err := os.ReadFile(linked)
				require.NoError(t, err)
				require.Contains(t, anchors(string(page)), m[2], "%s links to a heading that %s does not have", file, linked)
			}
		}
		for _, m := range target.FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, string(makefile), "\n"+m[1]+":", "%s names make %s", file, m[1])
		}
	})
}

func TestExampleCampaign(t *testing.T) {
	t.Parallel()
	f, err := os.Open("../configs/campaign.yaml")
	require.NoError(t, err)
	defer f.Close()
	c, err := campaign.Read(f)
	require.NoError(t, err)
	require.NoError(t, campaign.Validate(c, c.From.Add(-time.Hour)))
	require.Equal(t, hongbao.Amount(100_000), c.Total)
	require.EqualValues(t, 1, c.UserHold())
}

// Lines that differ in changing values only have the same shape; lines with different content do not.
func TestShape(t *testing.T) {
	t.Parallel()
	require.Equal(t, shape("packet 7, amount 12, request id ab-1"), shape("packet 912, amount 1, request id zz"))
	require.NotEqual(t, shape("granted"), shape("sold_out"))
	require.NotEqual(t, shape("lost 0"), shape("lost none"))
	s := steps("```console\n$ a \\\n  b\nout\n$ c\n```\n```sh\n$ d\n```\n")
	require.Equal(t, []step{{command: "a \\\n  b", prints: []string{"out"}}, {command: "c"}}, s)
}
