package consumer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// childEnv makes the test binary run as a worker. Its value is "mode prefix address consumer".
const childEnv = "HONGBAO_CONSUMER_CHILD"

// The modes of a child. In each mode the handler writes what it does into a Redis list.
const (
	childHold   = "hold"   // the handler waits until it is cancelled, and then reports its grants as done
	childPoison = "poison" // the handler of event 1 kills the process
)

func childMain() {
	var mode, prefix, addr, name string
	if _, err := fmt.Sscan(os.Getenv(childEnv), &mode, &prefix, &addr, &name); err != nil {
		panic(err)
	}
	rdb := redis.NewClient(clientOptions(addr))
	note := func(format string, args ...any) {
		if err := rdb.RPush(context.Background(), prefix+":notes", name+" "+fmt.Sprintf(format, args...)).Err(); err != nil {
			panic(err)
		}
	}
	cfg := DefaultConfig()
	quick(&cfg)
	st, err := store.New(store.Config{Redis: rdb, Space: hongbao.Space{Prefix: prefix, Shards: 1}, Deployment: "test"})
	if err != nil {
		panic(err)
	}
	cfg.Deployment, cfg.Group, cfg.Consumer, cfg.Lease = deployment.Of(st, zap.NewNop()), group, name, shortLease
	cfg.Handler = newSink(func(ctx context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		switch {
		case mode == "down":
			note("down %d", len(grants))
			errs := make([]error, len(grants))
			for i := range errs {
				errs[i] = hongbao.Outagef(hongbao.ClassTransient, "down")
			}
			return errs
		case mode == childHold:
			note("holds %d", len(grants))
			<-ctx.Done()
			note("cancelled: %v", context.Cause(ctx))
		case grants[0].Seq == 1:
			note("poisoned among %d", len(grants))
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		for i := range grants {
			note("did %d", grants[i].Seq)
		}
		return nil
	})
	c, err := New(cfg)
	if err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := c.Run(ctx); err != nil {
		panic(err)
	}
	n := c.Stats()
	note("drained, %d done, %d leases lost", n.Done, n.LeasesLost)
	os.Exit(0)
}

// process is a worker in a child process.
type process struct {
	*exec.Cmd
	ended chan struct{}
	err   error // the result of Wait; valid once ended is closed
}

func (b *bundle) child(t *testing.T, mode, name string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{mode, b.name, b.addr, name}, " "))
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	p := &process{Cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // needed only if the test failed
		<-p.ended
	})
	return p
}

// notes returns the lines in the list of the children that contain text.
func (b *bundle) notes(t *testing.T, text string) []string {
	t.Helper()
	all, err := b.rdb.LRange(context.Background(), b.name+":notes", 0, -1).Result()
	require.NoError(t, err)
	var out []string
	for _, n := range all {
		if strings.Contains(n, text) {
			out = append(out, n)
		}
	}
	return out
}

func TestPeerTakesOverFromAKilledProcess(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 5, 5)
	cmd := b.child(t, childHold, "victim")
	testkit.Eventually(t, soon, func() bool { return len(b.notes(t, "victim holds")) == 1 }, "the worker has the entries")
	require.NoError(t, cmd.Process.Kill())
	<-cmd.ended
	require.ErrorContains(t, cmd.err, "killed")
	s := newSink(nil)
	cfg := b.config(t, "peer", s)
	cfg.Lease = shortLease
	w := start(t, cfg)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 10)
	require.Empty(t, b.notes(t, "did"))
	require.EqualValues(t, 2, w.Stats().Taken)
}

// A worker process is suspended for longer than its lease, and a peer takes over its entries. When the process
// continues, it notices the loss and writes nothing, even though its handler reports all grants as done.
func TestPausedProcessNoticesThatItsLeaseIsLost(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 5)
	cmd := b.child(t, childHold, "sleeper")
	testkit.Eventually(t, soon, func() bool { return len(b.notes(t, "sleeper holds")) == 1 }, "the worker has the entries")
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	out := make(chan struct{})
	s := newSink(func(context.Context, hongbao.Batch) []error { <-out; return nil })
	cfg := b.config(t, "peer", s)
	cfg.Lease = shortLease
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return s.numberOfCalls() == 1 }, "the peer has the entries")
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	testkit.Eventually(t, soon, func() bool { return len(b.notes(t, "did 5")) == 1 }, "its handler returned")
	require.Len(t, b.notes(t, "cancelled: "+errLeaseLost.Error()), 1)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	<-cmd.ended
	require.NoError(t, cmd.err)
	require.Len(t, b.notes(t, "drained, 0 done, 1 leases lost"), 1)
	holder, _ := b.holder(t, ids[0])
	require.Equal(t, "peer", holder)
	require.Empty(t, b.doneBits(t, 5))
	close(out)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 5)
}

// Event 1 kills every worker that handles it, and it is always the first event of its batch.
func TestPoisonThatKillsItsWorkersTakesNoNeighbourAlong(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, repeat(1, 20)...)
	lives := 0
	for begin := time.Now(); len(b.dead(t)) == 0; lives++ {
		require.Less(t, time.Since(begin), 2*soon)
		cmd := b.child(t, childPoison, fmt.Sprintf("w%d", lives))
		testkit.Eventually(t, soon, func() bool { return closed(cmd.ended) || len(b.dead(t)) == 1 },
			"the worker was killed, or the event is a dead letter")
		if !closed(cmd.ended) {
			b.pending(t, 0)
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			<-cmd.ended
			require.NoError(t, cmd.err)
		}
	}
	require.Equal(t, 5, lives, "MaxAttempts is 4; the fifth worker writes the dead letter")
	require.Len(t, b.notes(t, "poisoned"), 4)
	dead := b.dead(t)
	require.Len(t, dead, 1)
	require.Equal(t, "1", dead[0]["seq"])
	require.Contains(t, dead[0]["reason"], "no delivery of the grant was answered")
	require.Len(t, b.doneBits(t, 20), 20)
	for seq := 2; seq <= 20; seq++ {
		did := 0
		for _, note := range b.notes(t, "did ") {
			if strings.HasSuffix(note, fmt.Sprintf("did %d", seq)) {
				did++
			}
		}
		require.Equal(t, 1, did, "event %d", seq)
	}
}
