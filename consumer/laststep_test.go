package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestHandlerThatHangsStopsTheStepsOfItsShard(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	called, release := make(chan struct{}), make(chan struct{})
	first := true
	s := newSink(func(context.Context, hongbao.Batch) []error {
		if first {
			first = false
			close(called)
			<-release
		}
		return nil
	})
	cfg := b.config(t, "w", s)
	cfg.Lease, cfg.HandleTimeout = shortLease, 50*time.Millisecond
	w := start(t, cfg)
	b.add(t, 0, 1)
	<-called
	hung := w.Health()[0]
	testkit.Eventually(t, soon, func() bool { return w.Stats().LeasesLost == 1 }, "the lease is given up")
	noticed := time.Now()
	testkit.Eventually(t, soon, func() bool { return w.Health()[1].LastStep.After(noticed) }, "the idle shard steps")
	now := w.Health()[0]
	require.Equal(t, hung.LastStep, now.LastStep, "the shard with the hanging handler does not")
	require.Equal(t, Working, now.Code)
	close(release)
	testkit.Eventually(t, soon, func() bool { return w.Health()[0].LastStep.After(noticed) }, "the shard steps again")
	b.idle(t, 0)
	require.NoError(t, w.stop())
}

// A shard that waits for a bounded time still updates LastStep. This holds for a paused sink, a sink that is down, and
// a broken shard.
func TestShardThatWaitsSteps(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	down := newSink(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		return failGrants(func() error { return hongbao.Outagef(hongbao.ClassTransient, "down") })(grants)
	})
	w := start(t, b.config(t, "w", down))
	b.add(t, 0, 1)
	testkit.Eventually(t, soon, func() bool { return w.Health()[0].Code == SinkDown }, "down")
	before := time.Now()
	testkit.Eventually(t, soon, func() bool { return w.Health()[0].LastStep.After(before) }, "the shard tries again")
	b.pause(t)
	testkit.Eventually(t, soon, func() bool { return w.Health()[0].Code == SinkPaused }, "paused")
	before = time.Now()
	testkit.Eventually(t, soon, func() bool { return w.Health()[0].LastStep.After(before) }, "the shard asks again")
	require.NoError(t, w.stop())
}
