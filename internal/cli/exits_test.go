package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestExitCodeOfAnError(t *testing.T) {
	t.Parallel()
	stopped, end := context.WithCancelCause(context.Background())
	end(signalled{syscall.SIGTERM})
	outage := hongbao.Outagef(hongbao.ClassTransient, "connection refused")
	broken := hongbao.Errorf(hongbao.ClassBroken, "appendonly is no")
	for _, c := range []struct {
		what string
		ctx  context.Context
		err  error
		want int
	}{
		{"done", t.Context(), nil, 0},
		{"done although a signal stopped it", stopped, nil, 0},
		{"no class", t.Context(), io.ErrUnexpectedEOF, 1},
		{"conflict", t.Context(), hongbao.Errorf(hongbao.ClassConflict, "another specification"), 1},
		{"usage", t.Context(), fmt.Errorf("grab: %w", app.Usage("no user")), 2},
		{"found", t.Context(), errors.Join(nil, app.NeedsAttention("differences")), 3},
		{"settling", t.Context(), fmt.Errorf("refund: %w",
			hongbao.Errorf(hongbao.ClassTransient, "%w: 1 of 2", payment.ErrSettling)), 4},
		{"undecided", t.Context(), undecidedError{errors.New("busy")}, 4},
		{"outage", t.Context(), fmt.Errorf("redis: %w", outage), 5},
		{"two outages", t.Context(), errors.Join(outage, fmt.Errorf("ledger: %w", errors.Join(outage))), 5},
		{"an outage and another", t.Context(), errors.Join(outage, fmt.Errorf("redis: %w", broken)), 1},
		{"SIGTERM", stopped, fmt.Errorf("read: %w", context.Canceled), 143},
		{"SIGTERM, by the cause", stopped, fmt.Errorf("read: %w", context.Cause(stopped)), 143},
		{"SIGTERM cut a connection", stopped, fmt.Errorf("read: %w", outage), 143},
		{"broken before SIGTERM", stopped, fmt.Errorf("sink kafka: %w", broken), 1},
	} {
		require.Equal(t, c.want, exitCode(c.ctx, c.err), c.what)
	}
}

// docs/scripts.md and the help have the same exit codes as exits.go.
func TestExitCodesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/scripts.md")
	require.NoError(t, err)
	var rows []exit
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| (.*) \|$`).FindAllSubmatch(page, -1) {
		var code int
		_, err := fmt.Sscan(string(m[1]), &code)
		require.NoError(t, err)
		rows = append(rows, exit{code, string(m[2])})
	}
	require.Equal(t, exits, rows)
	help := runProgram(t, nil, "--help").out
	for _, e := range exits {
		require.Contains(t, help, fmt.Sprintf("%3d  %s\n", e.code, e.what))
	}
}

// An undecided grab, an audit with differences and a failed audit each have their own exit code, so that a script can
// distinguish them.
func TestExitCodesOfAnswers(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1000)
	worker := d.start("work")
	d.ok("grab", "rain", "u0")
	testkit.Eventually(t, 20*time.Second, func() bool { return d.show("rain").Ledger.Granted > 0 }, "it is settled")
	worker.stop(syscall.SIGTERM)
	d.set("CONSUMER_LEASE", "3s", "REDIS_READ_TIMEOUT", "900ms")
	d.ok("grab", "rain", "u1")
	busy := d.run("grab", "rain", "u2", "--producer.max_backlog=1", "--producer.undecided_timeout=0s", "--json")
	require.Equal(t, 4, busy.code, "%s%s", busy.out, busy.err)
	require.Equal(t, hongbao.OutcomeBusy, decided[hongbao.Answer](t, busy.out).Outcome)
	require.Contains(t, busy.err, "--request-id "+decided[app.Grabbed](t, busy.out).RequestID)

	testkit.Eventually(t, 20*time.Second, func() bool { return d.run("status").code == 3 }, "the worker counts as dead")
	for _, command := range []string{"status", "audit"} {
		d.refused(3, []string{command}, "1 for sink balance", "no worker is alive", "`hongbao work`")
	}
	d.refused(5, []string{"audit", "--redis.addrs=127.0.0.1:1"}, "redis.addrs")

	require.NoError(t, d.rdb.HIncrBy(t.Context(), d.store.Home("rain").Keys.Campaign("rain"), "loaded", 1).Err())
	d.refused(3, []string{"audit"}, "the audit found differences")
	require.Equal(t, 0, d.run("grab", "rain", "u1").code)
	require.Equal(t, 1, d.run("campaign", "load", "drizzle").code)
	require.Equal(t, 2, d.run("grab", "rain", "a b").code)
}

// Ctrl-C during a long command says what is done and how to go on, and blames no server.
func TestInterruptSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1000)
	d.ok("grab", "rain", "u0")
	d.ok("campaign", "close", "rain", "--early")
	runs := map[*program]string{}
	for line, want := range map[string]string{
		"audit --wait 60s": "audit: ended by a signal: interrupt; it stored no verdict: run it again",
		"campaign refund rain --wait 60s --amount " + fmt.Sprint(int64(d.show("rain").Redis.LeftAmount)): "campaign refund: ended " +
			"by a signal: interrupt; a campaign is refunded once: run the same command again, also if the money has moved",
	} {
		runs[d.start(strings.Fields(line)...)] = want
	}
	require.True(t, retry.Pause(t.Context(), 2*time.Second)) // both wait for a worker, and there is none
	for p, want := range runs {
		p.Signal(syscall.SIGINT)
		r := p.wait(20 * time.Second)
		require.Equal(t, 130, r.code, r.err)
		require.Contains(t, r.err, "hongbao: "+want+"\n")
	}
}

// Ctrl-C ends a command that waits for standard input.
func TestInterruptEndsTheWaitForInput(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"campaign", "plan", "-"}, {"campaign", "create", "-"}, {"campaign", "verify", "-"}} {
		for signal, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
			t.Run(strings.Join(args, " ")+" "+signal.String(), func(t *testing.T) {
				t.Parallel()
				read, write, err := os.Pipe()
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, errors.Join(read.Close(), write.Close())) })
				self, err := os.Executable()
				require.NoError(t, err)
				cmd := exec.Command(self, args...)
				cmd.Stdin = read
				p := launch(t, t.TempDir(), nil, cmd)
				// A pipe buffers 64 KiB. Writing more than that blocks until the command reads.
				_, err = write.WriteString(strings.Repeat("\n", 70<<10))
				require.NoError(t, err)
				p.Signal(signal)
				r := p.wait(20 * time.Second)
				require.Equal(t, code, r.code, r.err)
				require.Equal(t, fmt.Sprintf("hongbao: %s: ended by a signal: %s; run the same command again%s\n",
					strings.Join(args[:2], " "), signal, map[bool]string{true: ": it continues"}[args[1] == "create"]), r.err)
			})
		}
	}
}

func TestUnknownCommandsAreSuggested(t *testing.T) {
	t.Parallel()
	for typed, meant := range map[string]string{"audti": "audit", "cmapaign": "campaign", "campaign crate": "create",
		"dead requeu": "requeue", "sink status": "list", "dead ls": "list", "sink rm": "remove", "key delete": "revoke",
		"campaign status": "show"} {
		r := runProgram(t, nil, strings.Fields(typed)...)
		require.Equal(t, 2, r.code)
		require.Contains(t, r.err, "did you mean "+meant+"?", typed)
	}
}

var snake = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// oneDocument checks that text is one JSON document, an object, with names in snake_case.
func oneDocument(t *testing.T, what, text string) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	var doc, more any
	require.NoError(t, decoder.Decode(&doc), "%s: %s", what, text)
	require.ErrorIs(t, decoder.Decode(&more), io.EOF, "%s printed more than one document: %s", what, text)
	_, isObject := doc.(map[string]any)
	require.True(t, isObject, "%s: %s", what, text)
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, inner := range v {
				require.Regexp(t, snake, name, "%s: %s", what, text)
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	walk(doc)
}

// Each of several errors begins a line with the name of the program. An error that wraps several others stays one text.
func TestEachErrorBeginsALine(t *testing.T) {
	t.Parallel()
	first, second := errors.New("export rain: not over"), errors.New("export drizzle: not over")
	for want, err := range map[string]error{
		"hongbao: export rain: not over\nhongbao: export drizzle: not over\n": errors.Join(nil, errors.Join(first), second),
		"hongbao: both: export rain: not over, export drizzle: not over\n":    fmt.Errorf("both: %w, %w", first, second),
	} {
		var out strings.Builder
		printError(t.Context(), &out, root(), err)
		require.Equal(t, want, out.String())
	}
}
