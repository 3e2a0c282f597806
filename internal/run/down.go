package run

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/store"
)

// downEvery is how often a worker looks whether its sinks are down, and downAgain how often it repeats its report about
// a sink that still is.
const downEvery, downAgain = time.Second, 5 * time.Second

// reportDown stores in Redis which sinks are down for this process, so that everybody who asks for the state of the
// sinks sees the reason. While the sinks work, it writes nothing.
func (all sinkWorkers) reportDown(ctx context.Context) error {
	reported := make([]downReported, len(all))
	for retry.Pause(ctx, downEvery) {
		for i, w := range all {
			if err := reported[i].step(ctx, w.process.Store(), w.config.Group, w.down()); err != nil && ctx.Err() == nil {
				w.process.Log().Debug("the state of a sink can't be stored", zap.String("sink", w.config.Group), zap.Error(err))
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for i, w := range all {
		if err := reported[i].step(ctx, w.process.Store(), w.config.Group, nil); err != nil {
			return nil // Redis does not answer, and the report expires
		}
	}
	return nil
}

// downReported is the last report about a sink that is down. It is zero while the sink works.
type downReported struct {
	code string
	at   time.Time
}

// step stores the report if it has a new code or is due again, and withdraws the last one if down is nil.
func (r *downReported) step(ctx context.Context, st *store.Store, sink string, down *store.DownReport) error {
	switch {
	case down == nil && r.code == "":
		return nil
	case down == nil:
		err := st.WithdrawDown(ctx, sink)
		if err == nil {
			*r = downReported{}
		}
		return err
	case down.Code == r.code && time.Since(r.at) < downAgain:
		return nil
	}
	err := st.ReportDown(ctx, sink, *down)
	if err == nil {
		*r = downReported{down.Code, time.Now()}
	}
	return err
}

// down returns the worker's report about its sink; nil if it is not down on any shard. A shard that waits for Redis
// says nothing about its sink.
func (w *sinkWorker) down() *store.DownReport {
	w.mu.Lock()
	c := w.consumer
	w.mu.Unlock()
	h := w.health()
	if c != nil {
		h = healthOf(slices.DeleteFunc(c.Health(), func(h consumer.Health) bool {
			return h.Code != consumer.SinkDown && h.Code != consumer.ShardBroken
		}))
	}
	if h.bad == 0 || h.code == sinkOpening || h.worst.Err == nil {
		return nil
	}
	return &store.DownReport{Worker: w.process.Worker(), Code: h.code, Since: h.worst.Since, Shards: h.bad, Error: h.worst.Err.Error()}
}
