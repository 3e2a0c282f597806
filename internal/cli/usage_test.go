package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// An invalid command line exits with code 2, and the error names the help.
func TestUsageIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"nonsense"}, {"--nonsense"}, {"demo", "--nonsense"}, {"demo", "extra"}, {"demo", "--packets", "x"},
		{"campaign", "nonsense"},
		{"campaign", "create"}, {"campaign", "create", "a", "b"}, {"campaign", "load"}, {"campaign", "plan"},
		{"campaign", "pause"},
		{"campaign", "list", "x"}, {"config", "nonsense"}, {"config", "check", "x"}, {"grab", "rain"},
		{"grab", "rain", "u", "x"},
		{"work", "x"}, {"work", "--sink"}, {"audit", "x"}, {"audit", "last", "x"}, {"audit", "--wait", "soon"}, {"balance", "x"}, {"serve", "x"},
		{"balance", "funds", "x"}, {"balance", "fund", "w"}, {"key", "create", "--role", "client"},
		{"key", "create", "--role", "viewer", "--client", "w"}, {"tail", "x"}, {"export"}, {"export", "x"},
		{"version", "x"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			r := runProgram(t, nil, args...)
			require.Equal(t, 2, r.code, r.err)
			require.Contains(t, r.err, "--help`")
			require.Empty(t, r.out)
		})
	}
}

// Invalid arguments are refused before the command connects to a server: this test has none.
func TestWrongArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		says string
	}{
		{"demo, few packets", []string{"demo", "--packets", "9"}, "10 to 1,000,000 packets"},
		{"demo, many packets", []string{"demo", "--packets", "1000001"}, "10 to 1,000,000 packets"},
		{"demo, total too small", []string{"demo", "--packets", "100", "--total", "99"}, "at least as many minor units"},
		{"demo, total too large", []string{"demo", "--total", "9007199254740992"}, "9007199254740991"},
		{"demo, no users", []string{"demo", "--users", "0"}, "10,000,000 users"},
		{"grab, bad campaign", []string{"grab", "../x", "u"}, "campaign"},
		{"grab, bad user", []string{"grab", "rain", "a b"}, "user"},
		{"grab, bad request id", []string{"grab", "rain", "u", "--request-id", "a b"}, "request id"},
		{"pause, bad campaign", []string{"campaign", "pause", "{1}", "--by", "ann", "--why", "test"}, "campaign"},
		{"resume, bad campaign", []string{"campaign", "resume", "*", "--by", "ann", "--why", "test"}, "campaign"},
		{"load, bad campaign", []string{"campaign", "load", "1 or 1=1"}, "campaign"},
		{"show, bad campaign", []string{"campaign", "show", "18446744073709551616"}, "campaign"},
		{"audit, bad campaign", []string{"audit", "--campaign", "*"}, "campaign"},
		{"audit, negative wait", []string{"audit", "--wait", "-1s"}, "wait"},
		{"tail, bad campaign", []string{"tail", "--campaign", "*"}, "campaign"},
		{"export, no date", []string{"export", "--day", "yesterday"}, "2026-02-17"},
		{"export, bad campaign", []string{"export", "--day", "2026-02-17", "--campaign", "*"}, "campaign"},
		{"work, unknown sink", []string{"work", "--sink", "pigeon"}, "deployment.sinks"},
		{"work, sink twice", []string{"work", "--sink", "balance,balance"}, "balance"},
		{"no such file", []string{"campaign", "plan", "/no/such/file"}, "/no/such/file"},
		{"no such file to create", []string{"campaign", "create", "/no/such/file"}, "/no/such/file"},
		{"a folder", []string{"campaign", "plan", "/"}, "specification"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := runProgram(t, []string{"HONGBAO_REDIS_ADDRS=127.0.0.1:1", "HONGBAO_KAFKA_BROKERS=127.0.0.1:1"}, c.args...)
			require.Equal(t, 2, r.code, "%s%s", r.out, r.err)
			require.Contains(t, r.err, c.says)
			require.Empty(t, r.out)
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--help"}, {"campaign"}, {"config"}, {"demo", "--help"},
		{"config", "check", "--help"}} {
		r := runProgram(t, nil, args...)
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.out, "Usage:")
		require.Empty(t, r.err)
	}
	require.Contains(t, runProgram(t, nil, "config", "check", "--help").out, "--consumer.lease")
	require.NotContains(t, runProgram(t, nil, "--help").out, "Additional Commands", "each command is in a group")
	v := runProgram(t, nil, "version")
	require.Zero(t, v.code)
	require.Regexp(t, `^hongbao \S+.*\ngo1\.\S+, entries version 3, Redis schema \d+\n$`, v.out)
	flag := runProgram(t, nil, "--version")
	require.Zero(t, flag.code, flag.err)
	require.Equal(t, v.out, flag.out)
}

// pflag takes a text in backquotes in a flag's help as the name of its value, so the help would show "--grants hongbao
// tail". Each name must be one word.
func TestFlagsNameTheirValuesInOneWord(t *testing.T) {
	t.Parallel()
	seen := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			name, _ := pflag.UnquoteUsage(f)
			require.NotContains(t, name, " ", "%s --%s", cmd.CommandPath(), f.Name)
			seen++
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root())
	require.Greater(t, seen, 50)
}

// Every error in the configuration is reported at once, without secrets (B47).
func TestBadConfigurationNamesEverything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "hongbao.yaml")
	require.NoError(t, os.WriteFile(file, []byte("redis:\n  adrs: [a:1]\n  pool_size: -1\nconsumer: {lease: soon}\n"+
		"ledger: {driver: postgres, dsn: 'postgres://u:"+password+"@h/d'}\n"), 0o600))
	open := filepath.Join(dir, "password")
	require.NoError(t, os.WriteFile(open, []byte(password), 0o600))
	require.NoError(t, os.Chmod(open, 0o644))
	env := []string{"HONGBAO_NO_SUCH=1", "HONGBAO_REDIS_PASSWORD_FILE=" + open, "HONGBAO_KAFKA_PARTITIONS=0"}
	for _, command := range [][]string{{"config", "check"}, {"work"}, {"audit"}, {"tail"}, {"campaign", "list"},
		{"grab", "rain", "u"}} {
		r := runProgram(t, env, append(command, "--config", file, "--log.level=loud")...)
		require.Equal(t, 2, r.code, r.err)
		for _, part := range []string{
			"adrs", "pool_size", "consumer.lease", "ledger.dsn", "HONGBAO_NO_SUCH", "redis.password", "kafka.partitions",
			"--log.level",
		} {
			require.Contains(t, r.err, part)
		}
		require.Empty(t, r.out)
	}
	r := runProgram(t, nil, "config", "check", "--config", filepath.Join(dir, "none.yaml"))
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "none.yaml")
}

func TestConfigCheckPrintsEveryKnobWithItsSource(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "hongbao.yaml")
	require.NoError(t, os.WriteFile(file, []byte("deployment:\n  shards: 4\n"), 0o600))
	r := runProgram(t, []string{
		"HONGBAO_CONFIG=" + file, "HONGBAO_REDIS_POOL_SIZE=7", "HONGBAO_LEDGER_DRIVER=postgres",
		"HONGBAO_LEDGER_DSN=postgres://u:" + password + "@h/d", "HONGBAO_REDIS_PASSWORD=" + password,
	}, "config", "check", "--kafka.partitions=3")
	require.Zero(t, r.code, r.err)
	for _, line := range []string{
		`deployment.shards +4 +.*hongbao.yaml:2`, `redis.pool_size +7 +environment HONGBAO_REDIS_POOL_SIZE`, `kafka.partitions +3 +flag --kafka.partitions`,
		`consumer.lease +30s +default`, `ledger.dsn +\*\*\* +environment HONGBAO_LEDGER_DSN`, `redis.password +\*\*\* +environment`,
	} {
		require.Regexp(t, `(?m)^`+line, r.out)
	}
	require.Greater(t, strings.Count(r.out, "\n"), 70)
}
