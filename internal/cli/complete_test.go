package cli

import (
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// completed returns what a shell offers for the last of args.
func completed(t *testing.T, env []string, args ...string) (values []string) {
	t.Helper()
	r := runProgram(t, env, append([]string{"__complete"}, args...)...)
	require.Zero(t, r.code, r.err)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	require.Regexp(t, `^:\d+$`, lines[len(lines)-1])
	for _, line := range lines[:len(lines)-1] {
		value, _, _ := strings.Cut(line, "\t")
		values = append(values, value)
	}
	return values
}

// Names from Redis, the ledger and the configuration are completed where a command expects them.
func TestCompletions(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true, shards: 2})
	d.campaign("spring-rain", 10, 1000)
	d.campaign("winter-rain", 10, 1000)
	d.ok("grab", "spring-rain", "u1")
	key := strings.Split(d.ok("key", "create", "--role", "viewer"), "_")[1]
	client := strings.Split(d.ok("key", "create", "--role", "client", "--client", "worker"), "_")[1]
	d.ok("replay", "repair", "--to", "balance")
	for _, c := range []struct{ line, want string }{
		{"campaign load s", "spring-rain"},
		{"campaign close ", "spring-rain winter-rain"},
		{"campaign close spring-rain ", ""},
		{"grab w", "winter-rain"},
		{"grab winter-rain ", ""}, // a user
		{"audit --campaign win", "winter-rain"},
		{"sink pause ", "balance kafka"},
		{"work --sink k", "kafka"},
		{"replay again --to ", "balance kafka topic:"},
		{"replay again --shard ", "0 1"},
		{"replay r", "repair"},
		{"key revoke ", key + " " + client},
		{"key create --role t", "treasurer"},
		{"key create --client ", "worker"},
		{"balance fund ", "worker"},
		{"dead list --class p", "permanent"},
		{"health w", "work"},
		{"campa", "campaign"},
		{"status ", ""},
	} {
		got := completed(t, d.env, strings.Split(c.line, " ")...)
		require.Equal(t, strings.Fields(c.want), append([]string{}, got...), c.line)
	}
}

// Dead letters and quarantined grants are completed with details that distinguish them. A letter that is already an
// argument is not offered again.
func TestCompletionsOfLetters(t *testing.T) {
	t.Parallel()
	s := newExampleEnv(t)
	s.ok("campaign", "create", spec(t, "spring-rain", 10, 1000))
	s.ok("campaign", "load", "spring-rain")
	s.ok("grab", "spring-rain", "u1")
	s.ok("grab", "spring-rain", "u2")
	s.addDeadLetters("kafka")
	first, second := "kafka/0/1771358400000-0", "kafka/0/1771358400123-0"
	require.Equal(t, []string{first, second}, completed(t, s.env, "dead", "requeue", ""))
	require.Equal(t, []string{second}, completed(t, s.env, "dead", "drop", first, "kafka/0"))
	require.Empty(t, completed(t, s.env, "dead", "show", first, ""))
}

// Completion prints nothing if the server is unreachable or never answers, or if the configuration is wrong.
func TestCompletionsAreSilent(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts, but never answers
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for _, addr := range []string{"127.0.0.1:1", silent.Addr().String()} {
		env := []string{"HONGBAO_REDIS_ADDRS=" + addr, "HONGBAO_LEDGER_DRIVER=postgres",
			"HONGBAO_LEDGER_DSN=postgres://u@" + addr + "/d"}
		for _, line := range []string{"campaign load ", "dead show ", "replay ", "key revoke ", "quarantine show "} {
			t.Run(addr+" "+line, func(t *testing.T) {
				t.Parallel()
				require.Empty(t, completed(t, env, strings.Split(line, " ")...))
			})
		}
	}
	require.Empty(t, completed(t, []string{"HONGBAO_REDIS_POOL_SIZE=-1"}, "sink", "pause", ""))
}

// Every placeholder of an argument is in byWord. A command uses every entry of byWord and of byFlag.
func TestEveryArgumentHasACompletion(t *testing.T) {
	t.Parallel()
	used, flags := map[string]bool{}, map[string]bool{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, word := range argumentWords(cmd) {
			_, ok := byWord[word]
			require.True(t, ok, "%s: %s is not in byWord", cmd.CommandPath(), word)
			used[word] = true
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root())
	require.Len(t, used, len(byWord), "byWord has a placeholder that no command uses")
	for name := range byFlag {
		require.True(t, flags[name], "no command has --%s", name)
	}
}

// Every call of the program builds all its commands. cobra copies the flags of all knobs into a command that is asked for
// its local flags, so nothing may ask all commands.
func TestCommandsAreBuiltCheaply(t *testing.T) {
	before, after := new(runtime.MemStats), new(runtime.MemStats)
	runtime.ReadMemStats(before)
	for range 10 {
		root()
	}
	runtime.ReadMemStats(after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/10, uint64(1<<20), "bytes to build all commands once")
}
