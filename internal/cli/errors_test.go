package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lines has valid arguments for each command, by its path. server is the server that the command needs first, or "" for
// none.
var lines = map[string]struct{ server, args string }{
	"init":    {"redis", ""},
	"recover": {"redis", ""},
	"version": {}, "man": {}, "doctor": {}, "health": {"", "serve"}, "demo": {}, "dev": {},
	"config check": {}, "campaign plan": {}, "campaign verify": {},
	"campaign create": {"ledger", "configs/campaign.yaml"}, "campaign list": {"ledger", ""},
	"campaign reveal": {"ledger", "rain"},
	"quarantine list": {"ledger", ""}, "quarantine campaign": {"ledger", "rain --by ann --why gone"},
	"quarantine show": {"ledger", "7"}, "quarantine resolve": {"ledger", "7 --void --by ann --why forged"},
	"campaign load": {"redis", "rain"}, "campaign show": {"redis", "rain"}, "campaign watch": {"redis", "rain"}, "campaign pause": {"redis", "rain --by ann --why test"},
	"campaign resume": {"redis", "rain --by ann --why test"}, "campaign cancel": {"redis", "rain"},
	"campaign close": {"redis", "rain"}, "campaign refund": {"redis", "rain --amount 1"}, "grab": {"redis", "rain u1"},
	"receipts": {"redis", "rain u1"},
	"work":     {"redis", ""}, "status": {"redis", ""}, "audit": {"redis", ""}, "tail": {"kafka", ""},
	"replay":    {"redis", "again --to balance"},
	"dead list": {"redis", ""}, "dead show": {"redis", "kafka/0/1-1"}, "dead requeue": {"redis",
		"kafka/0/1-1 --by ann --why repaired"},
	"dead drop": {"redis", "kafka/0/1-1 --by ann --why poison"}, "balance": {"ledger", ""},
	"balance check": {"ledger", ""}, "balance funds": {"ledger", ""}, "balance migrate": {"ledger", ""},
	"balance fund":         {"ledger", "worker --amount 1 --currency CNY --id a --by ann --why budget"},
	"campaign refund-lost": {"redis", "rain --amount 1 --by ann --why gone"},
	"claim list":           {"redis", ""},
	"audit last":           {"redis", ""},
	"audit acknowledge":    {"ledger", "difference.json --until 1h --by ann --why known"},
	"claim settle":         {"redis", "kafka/0/w.1 --as published --by ann --why seen"},
	"dead confirm":         {"redis", "balance/0/1-1 --booked --by ann --why ticket"},
	"serve":                {"redis", ""},
	"control":              {"redis", ""},
	"key create":           {"ledger", "--role viewer"}, "key list": {"ledger", ""},
	"journal": {"ledger", ""}, "user show": {"redis", "u1"}, "why": {"redis", "u1 rain"}, "archive": {"ledger", "rain"}, "export": {"ledger", "--day 2026-02-18"}, "key rotate": {"ledger", "5xk2q7vmaz3t"}, "key revoke": {"ledger", "5xk2q7vmaz3t"},
	"sink list": {"redis", ""}, "sink pause": {"redis", "kafka --by ann --why maintenance"},
	"sink resume":     {"redis", "kafka --by ann --why repaired"},
	"campaign top-up": {"redis", "rain --packets 1 --total 1 --expect 1 --id a --by ann --why more"},
	"sink remove":     {"redis", "crm --by ann --why gone"},
	"sink limit":      {"redis", "kafka --rate 5 --by ann --why slow"},
	"hole list":       {"redis", "rain"}, "hole grant": {"redis", "rain --packet 1 --user u1 --by ann --why announced"},
	"hole release": {"redis", "rain --by ann --why released"},
}

// lineFiles returns a replacer that puts the paths of real files in place of the file names in lines.
func lineFiles(t *testing.T) *strings.Replacer {
	t.Helper()
	example, err := filepath.Abs("../../configs/campaign.yaml")
	require.NoError(t, err)
	difference := filepath.Join(t.TempDir(), "difference.json")
	require.NoError(t, os.WriteFile(difference, []byte(`{"kind":"seq_gap","where":"shard 0","detail":"x"}`), 0o600))
	return strings.NewReplacer("configs/campaign.yaml", example, "difference.json", difference)
}

// If a server is unreachable, each command reports what it tried, what failed and what to do, and exits with 5. For an
// unknown flag or an unreadable configuration, the exit code is 2.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	env := []string{"HONGBAO_REDIS_ADDRS=127.0.0.1:1", "HONGBAO_LEDGER_DRIVER=postgres",
		"HONGBAO_LEDGER_DSN=postgres://u@127.0.0.1:2/d",
		"HONGBAO_KAFKA_BROKERS=127.0.0.1:3", "HONGBAO_PUBLISHER_ATTEMPT_TIME=1s", "HONGBAO_PUBLISHER_REQUEST_TIMEOUT=500ms"}
	says := map[string][]string{
		"redis": {"redis at 127.0.0.1:1", "connection refused", "redis.addrs", "`hongbao doctor`"},
		"kafka": {"kafka at 127.0.0.1:3", "connection refused", "kafka.brokers", "`hongbao doctor`"},
		"ledger": {"open the postgres ledger", "127.0.0.1:2", "connection refused", "ledger.dsn",
			"`hongbao doctor`"},
	}
	files := lineFiles(t)
	all := examples(t, root(), map[string][]string{})
	require.Len(t, lines, len(all), "a command is not in the table, or is gone")
	for path := range all {
		name := strings.TrimPrefix(path, "hongbao ")
		c, ok := lines[name]
		require.True(t, ok, "%s is not in the table", path)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line := strings.Fields(name + " " + files.Replace(c.args))
			r := runProgram(t, env, append(strings.Fields(name), "--nonsense")...)
			require.Equal(t, 2, r.code, r.err)
			require.Contains(t, r.err, "unknown flag: --nonsense (see `"+path+" --help`)")
			if c.server == "" {
				return
			}
			r = runProgram(t, env, append(line, "--config", "/no/such.yaml")...)
			require.Equal(t, 2, r.code, r.err)
			for _, part := range []string{"configuration", "/no/such.yaml", "--config", "HONGBAO_CONFIG"} {
				require.Contains(t, r.err, part)
			}
			if name == "work" || name == "serve" || name == "control" { // they wait: TestProcessesWaitForRedis
				return
			}
			r = runProgram(t, env, line...)
			require.Equal(t, 5, r.code, r.err)
			for _, part := range says[c.server] {
				require.Contains(t, r.err, part)
			}
			require.Empty(t, r.out)
		})
	}
}

// `hongbao config check --connect` tries every server and prints an error for each that is down. It prints nothing
// else.
func TestConfigCheckNamesEveryServerThatIsAway(t *testing.T) {
	t.Parallel()
	r := runProgram(t, []string{
		"HONGBAO_REDIS_ADDRS=127.0.0.1:1", "HONGBAO_LEDGER_DRIVER=postgres", "HONGBAO_LEDGER_DSN=postgres://u@127.0.0.1:2/d",
		"HONGBAO_KAFKA_BROKERS=127.0.0.1:3",
	}, "config", "check", "--connect")
	require.Equal(t, 5, r.code, r.err)
	for _, part := range []string{"redis at 127.0.0.1:1", "127.0.0.1:2", "kafka at 127.0.0.1:3", "redis.addrs",
		"ledger.dsn", "kafka.brokers"} {
		require.Contains(t, r.err, part)
	}
	require.True(t, strings.HasPrefix(r.err, "hongbao: "), r.err)
	require.NotContains(t, r.out, "as they must be")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	require.Regexp(t, `^failed: .*kafka at 127\.0\.0\.1:3`, lines[len(lines)-1], "`| tail -n 1` shows a failure")
	require.Equal(t, 3, strings.Count(r.out, "\nfailed: "))
}
