package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// atServer runs commands with --server, which have no configuration of Redis or the ledger.
type atServer struct {
	t   *testing.T
	env []string
}

// server starts a control listener. It returns an atServer that uses a key of the role, and the URL and the key.
func (d *deployment) server(role string) (at atServer, base, key string) {
	d.t.Helper()
	control := testkit.FreeAddr(d.t)
	d.serve("--control.listen=" + control)
	key, base = d.key(role), "http://"+control
	return atServer{d.t, []string{"HONGBAO_SERVER=" + base, "HONGBAO_KEY_FILE=" + keyFile(d.t, key, 0o600)}}, base, key
}

func keyFile(t *testing.T, key string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte(key+"\n"), 0o600))
	require.NoError(t, os.Chmod(path, mode))
	return path
}

func (s atServer) run(args ...string) result {
	s.t.Helper()
	return runProgram(s.t, s.env, args...)
}

// passing matches what differs between two runs of a command: durations, and the width of the columns that have them.
var passing = regexp.MustCompile(`[0-9.]+m?(s\b)|("(?:oldest_seconds|seen_seconds_ago)":)[0-9.]+|(SEEN|ago) +|(ends in )[0-9]+m`)

// requireSame runs a command on the stores and with --server, and requires the same output and exit code.
func (s atServer) requireSame(d *deployment, args ...string) result {
	s.t.Helper()
	local, remote := d.run(args...), s.run(args...)
	require.Equal(s.t, local.code, remote.code, "%v: %s%s", args, local.err, remote.err)
	require.Equal(s.t, passing.ReplaceAllString(local.out, "$1$2$3$4"), passing.ReplaceAllString(remote.out, "$1$2$3$4"), args)
	return remote
}

// With --server a command prints the same text and JSON, and has the same exit code, as on the stores.
func TestServerAnswersAsTheStores(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1000)
	d.campaign("snow", 5, 500)
	for _, user := range []string{"u0", "u1", "u2", "u3", "u4"} {
		d.ok("grab", "rain", user)
	}
	d.buried(configs.SinkBalance)
	at, _, _ := d.server("treasurer")
	page := decided[listed](t, at.requireSame(d, "dead", "list", "--json").out)
	require.Len(t, page.Letters, 5)
	var ids []string
	for i := range page.Letters {
		ids = append(ids, page.Letters[i].ID)
	}
	for _, args := range [][]string{
		{"dead", "list"}, {"dead", "list", "--limit", "2", "--json"}, {"dead", "list", "--after", ids[1]},
		{"dead", "list", "--sink", "balance", "--campaign", "rain", "--class", "permanent", "--user", "u2", "--reason", "closed",
			"--from-time", "2026-01-01T00:00:00Z", "--to-time", "2099-01-01T00:00:00Z"},
		{"dead", "list", "--campaign", "snow", "--json"},
		{"dead", "show", ids[0]}, {"dead", "show", "balance/0/1-1"}, {"dead", "show", "kafka/0/1-1"},
		{"sink", "list"}, {"sink", "list", "--json"}, {"status"}, {"status", "--json"},
		{"audit", "last"}, {"audit", "last", "--json"},
		{"quarantine", "list"}, {"quarantine", "list", "--all", "--json"}, {"quarantine", "show", "1"}, {"quarantine", "show", "99"},
		{"quarantine", "resolve", "99", "--pay", "--by", "ann", "--why", "asked"},
		{"journal", "--limit", "3"}, {"journal", "--campaign", "rain", "--json"}, {"journal", "--who", "nobody"},
		{"user", "show", "u1"}, {"user", "show", "u1", "--json"}, {"user", "show", "none", "--limit", "1"},
		{"why", "rain", "u1"}, {"why", "rain", "u1", "--json"}, {"why", "snow", "u9"}, {"why", "none", "u1"},
		{"campaign", "refund", "rain"}, {"campaign", "refund", "none"}, {"campaign", "close", "rain"},
		{"campaign", "cancel", "rain"}, {"campaign", "reveal", "rain"},
		{"campaign", "list"}, {"campaign", "list", "--json"}, {"campaign", "show", "rain"}, {"campaign", "show", "rain", "--json"}, {"campaign", "show", "none"},
		{"dead", "requeue", "--all", "--dry-run", "--by", "ann", "--why", "open"},
		{"dead", "drop", "--user", "u1", "--dry-run", "--by", "ann", "--why", "open", "--json"},
		{"dead", "drop", "--user", "u1", "--expect", "7", "--by", "ann", "--why", "open"},
		{"sink", "pause", "balance", "--campaign", "none", "--by", "ann", "--why", "open"},
		{"campaign", "pause", "none", "--by", "ann", "--why", "open"},
	} {
		r := at.requireSame(d, args...)
		require.NotContains(t, r.out, "HONGBAO_", args)
	}
	at.changes(d, ids)
	at.begins(d)
}

// begins creates campaigns and replays with --server. A repeat returns the same answer, on the stores and with
// --server.
func (s atServer) begins(d *deployment) {
	t, by := s.t, []string{"--by", "ann", "--why", "asked"}
	dir, from := t.TempDir(), time.Now().UTC()
	spec := func(id, rest string) string {
		path := filepath.Join(dir, id+".yaml")
		text := fmt.Sprintf("id: %s\nname: Hail\nsponsor: acme\npackets: 4\nsplit: {mode: even}\nfrom: %s\nto: %s\n%s\n", id,
			from.Format(time.RFC3339), from.Add(time.Hour).Format(time.RFC3339), rest)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for id, rest := range map[string]string{"hail": "kind: red_packet\ncurrency: CNY\ntotal: 400",
		"tea": "kind: coupon\ncodes: {pattern: RAIN-#######}"} {
		path := spec(id, rest)
		r := s.run("campaign", "create", path)
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.out, "campaign "+id+" created and funded")
		s.requireSame(d, "campaign", "create", path, "--json")
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "codes.txt"), []byte("A1\nA2\nA3\nA4\n"), 0o600))
	r := s.run("campaign", "create", spec("fog", "kind: coupon\ncodes: {file: codes.txt}"))
	require.Equal(t, exitRefused, r.code, r.err)
	require.Contains(t, r.err, "codes.file names a file. Only `hongbao campaign create` without --server can read it")

	more := append([]string{"campaign", "top-up", "hail", "--packets", "2", "--total", "200", "--expect", "400", "--id", "more"}, by...)
	require.Contains(t, s.requireSame(d, more...).out, "next: hongbao campaign load hail\n", "it is not loaded yet")
	require.Contains(t, s.run("campaign", "load", "hail").out, "campaign hail loaded: 4 packets")
	require.Contains(t, s.requireSame(d, "campaign", "load", "hail").out, "campaign hail was loaded already: 4 packets")
	s.requireSame(d, "campaign", "load", "hail", "--json")
	require.Contains(t, s.requireSame(d, more...).out, "\ndealt ")
	require.Contains(t, s.run("campaign", "top-up", "hail", "--packets", "2", "--total", "200").err, "--expect is required at a server")
	last := append([]string{"campaign", "top-up", "hail", "--packets", "1", "--total", "100", "--expect", "600", "--id", "last"}, by...)
	require.Contains(t, s.run(last...).out, "\ndealt ")
	for _, args := range [][]string{
		{"campaign", "load", "none"}, append([]string{"campaign", "top-up", "hail", "--packets", "2", "--total", "200", "--expect", "7", "--id", "x"}, by...),
		{"replay", "again", "--to", "balance", "--campaign", "none"},
	} {
		require.Equal(t, 1, s.requireSame(d, args...).code, args)
	}

	does := func(want string, args ...string) {
		t.Helper()
		r := s.run(args...)
		require.Zero(t, r.code, "%v: %s", args, r.err)
		require.Contains(t, r.out, want)
	}
	does(`"dry_run":true`, "replay", "again", "--to", "balance", "--campaign", "rain", "--dry-run", "--json")
	does("is finished", "replay", "again", "--to", "balance", "--campaign", "rain", "--rate", "100")
	require.Contains(t, d.ok("replay", "again", "--to", "balance", "--campaign", "rain"), "is finished: 0 grants delivered now")
	require.Contains(t, s.requireSame(d, "replay", "again", "--to", "balance", "--user", "u1").err, "replay_exists_with_other_range")
	known := append([]string{"audit", "acknowledge", lineFiles(t).Replace("difference.json"), "--until", "2h"}, by...)
	does("seq_gap", known...)
	require.Contains(t, d.ok("journal", "--json", "--limit", "1"), `"why":"ann: asked"`)
}

// changes makes each change with --server.
func (s atServer) changes(d *deployment, letters []string) {
	t, by := s.t, []string{"--by", "ann", "--why", "the bank asked"}
	does := func(want string, args ...string) {
		t.Helper()
		r := s.run(args...)
		require.Zero(t, r.code, "%v: %s", args, r.err)
		require.Contains(t, r.out, want)
	}
	does("balance is paused\n", append([]string{"sink", "pause", "balance"}, by...)...)
	require.Regexp(t, `balance is paused by "key:[a-z0-9]+" since .*: "ann: the bank asked"`, d.ok("sink", "list"),
		"the server records the key, and the person in the reason")
	does(`balance was paused already, by "key:`, append([]string{"sink", "pause", "balance"}, by...)...)
	does("balance is resumed\n", append([]string{"sink", "resume", "balance"}, by...)...)
	does("campaign rain is paused at balance\n", append([]string{"sink", "pause", "balance", "--campaign", "rain"}, by...)...)
	does(`campaign rain was paused at balance already, by "key:`, append([]string{"sink", "pause", "balance", "--campaign", "rain"}, by...)...)
	does("campaign rain is resumed at balance\n", append([]string{"sink", "resume", "balance", "--campaign", "rain"}, by...)...)
	does("balance is limited to 7 grants a second\n", append([]string{"sink", "limit", "balance", "--rate", "7"}, by...)...)
	does("balance is limited to the knob", append([]string{"sink", "limit", "balance", "--by-knob"}, by...)...)
	does("campaign rain is paused\n", "campaign", "pause", "rain", "--by", "ann", "--why", "closed")
	does(`campaign rain was paused already, by "key:`, "campaign", "pause", "rain", "--by", "ann", "--why", "lunch")
	does(`{"campaign":"rain","state":"open","changed":true}`, "campaign", "resume", "rain", "--by", "ann", "--why", "open", "--json")
	does("campaign rain is open already: nothing was changed\n", "campaign", "resume", "rain", "--by", "ann", "--why", "open")
	does("1 of 1 letter was requeued", append([]string{"dead", "requeue", letters[0]}, by...)...)
	does("2 of 2 letters were dropped", append([]string{"dead", "drop", letters[1], letters[2]}, by...)...)
	does("2 of 2 letters were requeued", append([]string{"dead", "requeue", "--sink", "balance", "--expect", "2"}, by...)...)
	require.Empty(t, decided[listed](t, d.ok("dead", "list", "--json")).Letters)
	does("campaign snow was closed", "campaign", "close", "snow", "--early")
	s.requireSame(d, "campaign", "refund", "snow")
	require.Equal(t, exitUndecided, s.requireSame(d, "campaign", "refund", "snow", "--amount", "500").code, "no worker settles")
	d.start("work")
	s.requireSame(d, "campaign", "refund", "snow", "--amount", "499")
	does("campaign snow was refunded", "campaign", "refund", "snow", "--amount", "500", "--wait", "5s")
	s.requireSame(d, "campaign", "refund", "snow", "--amount", "500")
	s.requireSame(d, "campaign", "reveal", "snow")
	require.Equal(t, []string{"balance"}, completed(t, s.env, "sink", "pause", ""))
	require.Contains(t, strings.Join(completed(t, s.env, "campaign", "pause", ""), " "), "rain")
}

// A command without support for --server, or one that the key does not allow, is refused before it does anything.
func TestServerIsRefused(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	at, base, key := d.server("viewer")
	for _, c := range []struct {
		code int
		env  []string
		args string
		says string
	}{
		{1, nil, "sink pause balance --by a --why b", "forbidden"},
		{2, nil, "recover", "`hongbao recover` works with the stores, not at a server: leave out --server, and unset HONGBAO_SERVER"},
		{2, nil, "work", "works with the stores"},
		{2, nil, "dead requeue balance/0/1-1 --rate 5 --by a --why b", "--rate works without --server only"},
		{2, []string{"HONGBAO_KEY_FILE="}, "sink list", "--key-file"},
		{2, []string{"HONGBAO_KEY_FILE=" + keyFile(t, key, 0o644)}, "sink list", "chmod"},
		{2, []string{"HONGBAO_KEY_FILE=/no/such"}, "sink list", "/no/such"},
		{2, []string{"HONGBAO_SERVER_CA=/no/such.pem"}, "sink list", "--server-ca"},
		{2, []string{"HONGBAO_SERVER=ftp://x"}, "sink list", "want https://HOST:PORT"},
		{2, []string{"HONGBAO_SERVER=http://control.example:8081"}, "sink list", "unencrypted"},
		{1, []string{"HONGBAO_KEY_FILE=" + keyFile(t, "hb_none", 0o600)}, "sink list", "unauthorized"},
		{5, []string{"HONGBAO_SERVER=http://127.0.0.1:1"}, "sink list", "connection refused"},
		{0, nil, "version", ""},
	} {
		r := runProgram(t, append(at.env[:2:2], c.env...), strings.Fields(c.args)...)
		require.Equal(t, c.code, r.code, "%s: %s", c.args, r.err)
		require.Contains(t, r.err, c.says, c.args)
	}
	require.Zero(t, runProgram(t, nil, "sink", "list", "--server", base, "--key-file", keyFile(t, key, 0o400)).code)
}

// A command whose effect can't be undone first prints which deployment it changes, on standard error.
func TestDangerousCommandsSayWhere(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	d.campaign("rain", 10, 1000)
	at, base, _ := d.server("treasurer")
	r := d.run("campaign", "close", "rain", "--early", "--json")
	require.Contains(t, r.err, "hongbao: acting on deployment "+d.prefix+": Redis "+d.rdb.Options().Addr+", ledger postgres 127.0.0.1:")
	require.True(t, strings.HasPrefix(r.out, "{"), r.out)
	r = at.run("campaign", "refund", "rain")
	require.Contains(t, r.err, "hongbao: acting on the deployment of server "+base+"\n")
	require.NotContains(t, d.run("campaign", "show", "rain").err, "acting on")
}

// docs/administration.md lists the commands that support --server.
func TestCommandsOfAServerAreDocumented(t *testing.T) {
	t.Parallel()
	env := []string{"HONGBAO_SERVER=http://127.0.0.1:1", "HONGBAO_KEY_FILE=" + keyFile(t, "hb_key", 0o600)}
	text, err := os.ReadFile("../../docs/administration.md")
	require.NoError(t, err)
	_, list, _ := strings.Cut(string(text), "These commands take `--server`: ")
	list, _, _ = strings.Cut(list, ".\n")
	files := lineFiles(t)
	var want, got []string
	for _, word := range regexp.MustCompile("`[^`]+`").FindAllString(list, -1) {
		want = append(want, strings.Trim(word, "`"))
	}
	running := map[string]*program{}
	for name, c := range lines {
		if c.server == "" || c.server == "kafka" {
			continue
		}
		args := append(strings.Fields(name), strings.Fields(files.Replace(c.args))...)
		running[name] = start(t, env, args...) // each tries the server for some seconds
	}
	for name, p := range running {
		r := p.wait(time.Minute)
		if r.code == exitOutage {
			require.Contains(t, r.err, "connection refused", name)
			got = append(got, name)
			continue
		}
		require.Equal(t, exitRefused, r.code, "%s: %s", name, r.err)
		require.Contains(t, r.err, "works with the stores, not at a server", name)
	}
	require.ElementsMatch(t, want, got)
}

// inputs are invalid inputs, as arguments of a command, as a request of the API and as a form of the console. Each must
// be refused.
var inputs = []struct {
	args string // of the command
	code string // of the API
	path string // of the API, with the query
	body string // empty for GET
	page string // of the console; empty if no form has this input
	form url.Values
}{
	{"dead list --class odd", "invalid_parameter", "/v1/dead-letters?class=odd", "", "", nil},
	{"dead list --campaign A", "invalid_parameter", "/v1/dead-letters?campaign=A", "", "", nil},
	{"dead list --sink pigeon", "unknown_sink", "/v1/dead-letters?sink=pigeon", "", "", nil},
	{"dead list --limit 0", "invalid_parameter", "/v1/dead-letters?limit=0", "", "", nil},
	{"dead list --after x", "invalid_parameter", "/v1/dead-letters?after=x", "", "", nil},
	{"dead list --from-time 2026-02-02T00:00:00Z --to-time 2026-02-01T00:00:00Z", "invalid_parameter",
		"/v1/dead-letters?from=2026-02-02T00:00:00Z&to=2026-02-01T00:00:00Z", "", "", nil},
	{"dead requeue --by a --why b", "invalid_value", "/v1/dead-letters/requeue", `{"why":"b"}`, "/letters/requeue",
		url.Values{"why": {"b"}}},
	{"dead drop --all --user u --by a --why b --dry-run", "invalid_value", "/v1/dead-letters/drop",
		`{"all":true,"user":"u","dry_run":true,"why":"b"}`, "", nil},
	{"dead drop --all --by a --why b", "invalid_value", "/v1/dead-letters/drop", `{"all":true,"why":"b"}`, "", nil},
	{"dead drop balance/0/1-1 --expect 1 --by a --why b", "invalid_value", "/v1/dead-letters/drop",
		`{"letter":"balance/0/1-1","expect":1,"why":"b"}`, "", nil},
	{"dead drop balance/0/1-1 --by a", "invalid_value", "/v1/dead-letters/drop", `{"letter":"balance/0/1-1"}`, "/letters/drop",
		url.Values{"id": {"balance/0/1-1"}}},
	{"dead drop x --by a --why b", "unknown_letter", "/v1/dead-letters/drop", `{"letter":"x","why":"b"}`, "/letters/drop",
		url.Values{"id": {"x"}, "why": {"b"}}},
	{"dead drop --user u --after x --expect 1 --by a --why b", "invalid_value", "/v1/dead-letters/drop",
		`{"user":"u","after":"x","expect":1,"why":"b"}`, "/letters/drop",
		url.Values{"all": {"1"}, "user": {"u"}, "after": {"x"}, "expect": {"1"}, "why": {"b"}}},
	{"dead requeue --sink pigeon --dry-run --by a --why b", "unknown_sink", "/v1/dead-letters/requeue",
		`{"sink":"pigeon","dry_run":true,"why":"b"}`, "", nil},
	{"sink pause pigeon --by a --why b", "unknown_sink", "/v1/sinks/pigeon/pause", `{"why":"b"}`, "/sinks/pigeon/pause",
		url.Values{}},
	{"sink pause balance --by a", "invalid_value", "/v1/sinks/balance/pause", `{}`, "", nil},
	{"sink pause balance --campaign A --by a --why b", "invalid_value", "/v1/sinks/balance/pause",
		`{"campaign":"A","why":"b"}`, "", nil},
	{"sink limit balance --by a --why b", "invalid_value", "/v1/sinks/balance/limit", `{"why":"b"}`, "", nil},
	{"sink limit balance --rate 5 --by-knob --by a --why b", "invalid_value", "/v1/sinks/balance/limit",
		`{"grants_per_second":5,"by_knob":true,"why":"b"}`, "", nil},
	{"sink limit balance --rate -1 --by a --why b", "invalid_value", "/v1/sinks/balance/limit",
		`{"grants_per_second":-1,"why":"b"}`, "", nil},
	{"campaign pause A --by a --why b", "campaign_invalid", "/v1/campaigns/A/pause", `{"why":"b"}`, "/campaigns/A/pause", url.Values{}},
	{"quarantine list --after -1", "invalid_parameter", "/v1/quarantine?after=-1", "", "", nil},
	{"quarantine list --limit 0", "invalid_parameter", "/v1/quarantine?limit=0", "", "", nil},
	{"quarantine resolve 7 --by a --why b", "invalid_value", "/v1/quarantine/7/decide", `{"why":"b"}`, "/quarantine/7",
		url.Values{"why": {"b"}}},
	{"quarantine resolve 7 --pay --by a", "invalid_value", "/v1/quarantine/7/decide", `{"decision":"pay"}`, "/quarantine/7",
		url.Values{"decision": {"pay"}}},
	{"journal --limit 1001", "invalid_parameter", "/v1/journal?limit=1001", "", "", nil},
	{"replay again --to topic:a\rb", "invalid_value", "/v1/replays/again", `{"to":"topic:a\rb"}`, "/replays",
		url.Values{"name": {"again"}, "to": {"topic:a\rb"}}},
	{"journal --after x", "invalid_parameter", "/v1/journal?after=x", "", "", nil},
	{"user show é", "invalid_parameter", "/v1/user-data?user=%C3%A9", "", "", nil},
	{"why é rain", "invalid_parameter", "/v1/campaigns/rain/trail?user=%C3%A9", "", "", nil},
	{"user show u1 --after A", "invalid_parameter", "/v1/user-data?user=u1&after=A", "", "", nil},
	{"user show u1 --limit 0", "invalid_parameter", "/v1/user-data?user=u1&limit=0", "", "", nil},
	{"journal --campaign A", "invalid_parameter", "/v1/journal?campaign=A", "", "", nil},
	{"campaign refund rain --amount 1 --missing -1", "invalid_value", "/v1/campaigns/rain/refund",
		`{"amount":1,"missing":-1}`, "", nil},
	{"campaign close A", "campaign_invalid", "/v1/campaigns/A/close", `{}`, "", nil},
	{"campaign cancel A", "campaign_invalid", "/v1/campaigns/A/cancel", `{}`, "", nil},
	{"campaign load A", "campaign_invalid", "/v1/campaigns/A/load", `{}`, "/campaigns/A/load", url.Values{}},
	{"campaign top-up rain --packets 0 --total 1 --expect 1 --id x --by a --why b", "invalid_value",
		"/v1/campaigns/rain/top-ups", `{"id":"x","packets":0,"total":1,"expect":1,"why":"b"}`, "/campaigns/rain/top-ups",
		url.Values{"order": {"x"}, "packets": {"0"}, "total": {"1"}, "expect": {"1"}, "why": {"b"}}},
	{"campaign top-up rain --packets 1 --total 1 --expect 1 --id é --by a --why b", "invalid_value",
		"/v1/campaigns/rain/top-ups", `{"id":"é","packets":1,"total":1,"expect":1,"why":"b"}`, "/campaigns/rain/top-ups",
		url.Values{"order": {"é"}, "packets": {"1"}, "total": {"1"}, "expect": {"1"}, "why": {"b"}}},
	{"campaign top-up rain --packets 1 --total 1 --expect 1 --id x --tier 2by3 --by a --why b", "invalid_value",
		"/v1/campaigns/rain/top-ups", `{"id":"x","packets":1,"total":1,"expect":1,"tiers":"2by3","why":"b"}`,
		"/campaigns/rain/top-ups",
		url.Values{"order": {"x"}, "packets": {"1"}, "total": {"1"}, "expect": {"1"}, "why": {"b"}, "tiers": {"2by3"}}},
	{"replay again --to kafak", "unknown_sink", "/v1/replays/again", `{"to":"kafak"}`, "", nil},
	{"replay again --to topic:", "invalid_value", "/v1/replays/again", `{"to":"topic:"}`, "/replays",
		url.Values{"name": {"again"}, "to": {"topic:"}}},
	{"replay a.b --to balance", "invalid_name", "/v1/replays/a.b", `{"to":"balance"}`, "/replays",
		url.Values{"name": {"a.b"}, "to": {"balance"}}},
	{"replay again --to kafka", "unknown_sink", "/v1/replays/again", `{"to":"kafka"}`, "", nil},
	{"replay again --to topic:copy --missing", "invalid_value", "/v1/replays/again", `{"to":"topic:copy","missing":true}`,
		"/replays", url.Values{"name": {"again"}, "to": {"topic:copy"}, "missing": {"on"}}},
	{"replay again --to balance --dead balance", "invalid_value", "/v1/replays/again", `{"to":"balance","dead":"balance"}`, "", nil},
	{"replay again --to balance --dead pigeon", "unknown_sink", "/v1/replays/again", `{"to":"balance","dead":"pigeon"}`, "", nil},
	{"replay again --to balance --campaign A", "invalid_value", "/v1/replays/again", `{"to":"balance","campaign":"A"}`,
		"/replays", url.Values{"name": {"again"}, "to": {"balance"}, "campaign": {"A"}}},
	{"replay again --to balance --user é", "invalid_value", "/v1/replays/again", `{"to":"balance","user":"é"}`, "", nil},
	{"replay again --to balance --shard 1", "invalid_value", "/v1/replays/again", `{"to":"balance","shard":"1"}`, "", nil},
	{"replay again --to balance --shard -1", "invalid_value", "/v1/replays/again", `{"to":"balance","shard":"-1"}`, "", nil},
	{"replay again --to balance --seq 2-1", "invalid_value", "/v1/replays/again",
		`{"to":"balance","first_seq":2,"last_seq":1}`, "", nil},
	{"replay again --to balance --rate -1", "invalid_value", "/v1/replays/again", `{"to":"balance","rate":-1}`, "", nil},
	{"replay again --to balance --from-time 2026-02-02T00:00:00Z --to-time 2026-02-01T00:00:00Z", "invalid_value",
		"/v1/replays/again", `{"to":"balance","from":"2026-02-02T00:00:00Z","until":"2026-02-01T00:00:00Z"}`, "", nil},
	{"audit --campaign rain,A", "invalid_value", "/v1/audit", `{"campaign":"rain,A"}`, "", nil},
	{"audit --wait -1s", "invalid_value", "/v1/audit", `{"wait_seconds":-1}`, "", nil},
	{"audit acknowledge odd.json --until 1h --by a --why b", "invalid_value", "/v1/audit/acknowledgements",
		`{"kind":"odd","where":"ledger","detail":"x","until":"2099-01-01T00:00:00Z","why":"b"}`, "", nil},
	{"campaign show A", "campaign_invalid", "/v1/campaigns/A", "", "", nil},
}

// An invalid input is refused by the command, the API and the console, and changes nothing.
func TestBadInputsOnAllSurfaces(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	at, base, key := d.server("treasurer")
	v := &visitor{t, base, key}
	files := lineFiles(t)
	odd := filepath.Join(t.TempDir(), "odd.json")
	require.NoError(t, os.WriteFile(odd, []byte(`{"kind":"odd","where":"ledger","detail":"x"}`), 0o600))
	for _, in := range inputs {
		t.Run(in.args, func(t *testing.T) {
			args := strings.Fields(strings.Replace(files.Replace(in.args), "odd.json", odd, 1))
			for where, r := range map[string]result{"the stores": d.run(args...), "a server": at.run(args...)} {
				require.Equal(t, exitRefused, r.code, "at %s: %s%s", where, r.out, r.err)
				require.Contains(t, r.err, "hongbao: ")
				require.Empty(t, r.out)
			}
			method := http.MethodGet
			if in.body != "" {
				method = http.MethodPost
			}
			_, text := v.send(method, in.path, "application/json", in.body)
			var problem struct{ Code string }
			require.NoError(t, json.Unmarshal([]byte(text), &problem), text)
			require.Equal(t, in.code, problem.Code, text)
			if in.page != "" {
				status, text := v.send(http.MethodPost, in.page, "application/x-www-form-urlencoded", in.form.Encode())
				require.True(t, status == http.StatusBadRequest || status == http.StatusNotFound, "%d: %s", status, text)
			}
		})
	}
	require.Empty(t, decided[listed](t, d.ok("dead", "list", "--json")).Letters)
	require.NotContains(t, d.ok("journal", "--json"), `"action":"pause_sink"`)
}
