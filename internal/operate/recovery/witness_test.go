package recovery_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// process is a producer's process with its own client. After watch it also watches the shard.
type process struct {
	w      *world
	rdb    *redis.Client
	alarms chan string
	looked atomic.Int64 // successful checks of the shard
}

func (w *world) process(t *testing.T) *process {
	t.Helper()
	p := &process{w: w, rdb: w.server.Client(t), alarms: make(chan string, 100)}
	p.rdb.AddHook(lookHook{p})
	return p
}

// watch lets the process watch the servers until the returned function is called or the test ends.
func (p *process) watch(t *testing.T) func() {
	t.Helper()
	watch := &store.Watch{Store: p.w.over(p.rdb), Every: 10 * time.Millisecond,
		Alarm: func(code string, err error) { p.alarms <- code + ": " + err.Error() }}
	stop := testkit.Go(t, watch.Run)
	p.w.watching = append(p.w.watching, p)
	return func() {
		p.w.watching = slices.DeleteFunc(p.w.watching, func(o *process) bool { return o == p })
		stop()
	}
}

// soldOut lets a user grab from an empty stock through the process. The answer contains the shard's last seq.
func (p *process) soldOut(t *testing.T) {
	t.Helper()
	k := p.w.store.Shard(0)
	stock, err := p.w.rdb.LRange(t.Context(), k.Keys.Stock(id), 0, -1).Result()
	require.NoError(t, err)
	require.NoError(t, p.w.rdb.Del(t.Context(), k.Keys.Stock(id)).Err())
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeSoldOut: 1}, outcomes(p.w.grab(t, p.rdb, 1)))
	for _, packet := range stock {
		require.NoError(t, p.w.rdb.RPush(t.Context(), k.Keys.Stock(id), packet).Err())
	}
}

// Redis loses its last grants, and another process freezes the shard. Only an idle process knows of the grants, from a
// grant, a refusal, the head or an entry. It reports the highest seq that it has seen.
func TestIdleProcessReportsWhatItHasSeen(t *testing.T) {
	t.Parallel()
	for name, learns := range map[string]func(t *testing.T, p *process){
		"it granted": func(t *testing.T, p *process) { p.w.grab(t, p.rdb, 50) },
		"it refused a user": func(t *testing.T, p *process) {
			p.w.grab(t, p.w.server.Client(t), 50)
			p.soldOut(t)
		},
		"it read the head": func(t *testing.T, p *process) {
			p.w.grab(t, p.w.server.Client(t), 50)
			_, err := p.w.over(p.rdb).Shard(0).Head(t.Context())
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.grab(t, w.rdb, 100)
			w.settle(t)
			old := w.older(t)
			idle := w.process(t)
			learns(t, idle)
			w.restart(t, old)
			z, err := w.shard().Freeze(t.Context())
			require.NoError(t, err)
			require.True(t, z.Frozen, "another process freezes it")
			require.Equal(t, store.Sight{Epoch: 1, Seq: 100}, z.Seen)
			idle.watch(t)
			w.looks(t, idle)
			w.staysFrozen(t)
			reports, err := w.rec.Reports(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 150, reports[0].Seen)
		})
	}
}

// A shard was opened without the events that a slow process had seen. The process freezes the shard once more. After a
// person has accepted that loss, it does not freeze the shard again.
func TestLateWitness(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 100)
	w.settle(t)
	old := w.older(t)
	late := w.process(t)
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 50}, outcomes(w.grab(t, late.rdb, 50)))
	w.restart(t, old)
	w.opens(t)
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 1}, outcomes(w.grab(t, w.rdb, 1)), "the fault fired")
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 1}, outcomes(w.grab(t, late.rdb, 1)),
		"the highest event that it has seen is a new one")

	late.watch(t)
	w.isFrozen(t)
	require.Contains(t, <-late.alarms, store.LostData+": shard 0: event 150 was seen in epoch 1")
	w.staysFrozen(t)
	reports, err := w.rec.Reports(t.Context())
	require.NoError(t, err)
	require.True(t, reports[0].Lost())
	require.EqualValues(t, 150, reports[0].Late)
	require.Len(t, reports[0].Campaigns, 1, "the shard may have dealt packets twice")
	require.NoError(t, w.rec.Accept(t.Context(), reports[0], by("ann", "no one was paid twice")))
	w.looks(t, late)
	_, err = w.shard().OpenHead(t.Context())
	require.NoError(t, err, "the loss is accepted")
	skipped, err := w.shard().Skipped(t.Context())
	require.NoError(t, err)
	require.Equal(t, []stream.SeqRange{{First: 101, Last: store.ChunkEvents - 1},
		{First: store.ChunkEvents + 2, Last: 3*store.ChunkEvents - 1}}, skipped)
	require.Empty(t, late.alarms, "one alarm")
}

// looks waits until the process's watch has checked the shard five more times.
func (w *world) looks(t *testing.T, p *process) {
	t.Helper()
	until := p.looked.Load() + 5
	testkit.Eventually(t, 20*time.Second, func() bool { return p.looked.Load() >= until }, "the process looks")
}

// lookHook is a Redis hook that counts the successful checks by a process's watch.
type lookHook struct{ p *process }

func (h lookHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h lookHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h lookHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err == nil && cmds[0].Name() == "info" {
			h.p.looked.Add(1)
		}
		return err
	}
}

// A process saw events before a person accepted their loss, and it saw seqs in a skipped range. It freezes nothing.
func TestNoLateWitness(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 100)
	w.settle(t)
	old := w.older(t)
	p := w.process(t)
	w.grab(t, p.rdb, 50)
	w.restart(t, old)
	_, err := w.over(p.rdb).Shard(0).Freeze(t.Context())
	require.NoError(t, err)
	w.staysFrozen(t)
	reports, err := w.rec.Reports(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.rec.Accept(t.Context(), reports[0], by("ann", "the disk is gone")))
	p.watch(t)
	w.looks(t, p)
	for range 2 { // in between the process reads a head that is the last seq of a skipped range
		w.restart(t, "")
		w.opens(t)
		w.looks(t, p)
		_, err = w.shard().OpenHead(t.Context())
		require.NoError(t, err)
	}
	require.Empty(t, p.alarms)
}
