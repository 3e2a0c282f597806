package recovery

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/shards"
)

// restoreControls brings back what people have told the workers of the sinks, for Redis may have lost that too. It goes
// by all shards: one that is paused pauses the sink here, and the bound that was set last counts. A shard that can't be
// read is passed over, so that its server keeps no other one closed. What no shard has any more is lost.
func (r *Recoverer) restoreControls(ctx context.Context, shard int) error {
	for _, sink := range r.cfg.Sinks {
		var pause, limit shards.SinkControl
		controls, errs := shards.SinkControls(ctx, r.cfg.Redis, r.cfg.Space, sink)
		for i, c := range controls {
			if errs[i] != nil {
				r.cfg.Log.Warn("a shard can't tell whether a sink is paused: see `hongbao sink list` when it can",
					zap.Int("shard", i), zap.String("sink", sink), zap.Error(errs[i]))
				continue
			}
			if c.Paused && !pause.Paused {
				pause = c
			}
			if c.LimitAt.After(limit.LimitAt) {
				limit = c
			}
		}
		k := shards.Of(r.cfg.Redis, r.cfg.Space.Shard(shard))
		if pause.Paused {
			if _, _, err := k.PauseSink(ctx, sink, pause.By, pause.Why); err != nil {
				return fmt.Errorf("pause sink %s again: %w", sink, err)
			}
		}
		if !limit.LimitAt.IsZero() {
			if _, _, err := k.LimitSink(ctx, sink, limit.Rate, limit.LimitBy, limit.LimitWhy); err != nil {
				return fmt.Errorf("bound the rate of sink %s again: %w", sink, err)
			}
		}
	}
	return nil
}
