package store

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var (
	restoreScript = newDrainScript("restore").with(unguarded) // also runs on a frozen shard, before it opens
	keptScript    = newDrainScript("kept").with(unguarded)
)

// NewControl is a decision that the ledger does not have yet.
type NewControl struct {
	stream.Control
	text string
}

// NewControls asks all shards at once for the decisions that the ledger does not have yet. It returns a list or an
// error for each shard.
func (s *Store) NewControls(ctx context.Context) ([][]NewControl, []error) {
	pipe := s.rdb.Pipeline()
	answers := make([]*redis.MapStringStringCmd, s.Len())
	for i := range answers {
		answers[i] = pipe.HGetAll(ctx, s.shards[i].Keys.Controls())
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	all, errs := make([][]NewControl, len(answers)), make([]error, len(answers))
	for i, answer := range answers {
		fields, err := answer.Result()
		if err != nil {
			errs[i] = fmt.Errorf("read the decisions that the ledger does not have: %w", Classify(err))
			continue
		}
		for name, text := range fields {
			c, err := stream.ParseControl(name, text)
			if err != nil {
				errs[i] = err
				continue
			}
			all[i] = append(all[i], NewControl{c, text})
		}
	}
	return all, errs
}

// ControlKept records that the ledger has a decision. A newer decision about the same subject still waits for the
// ledger.
func (k *Shard) ControlKept(ctx context.Context, c *NewControl) error {
	_, err := k.run(ctx, keptScript, []string{k.Keys.Controls()}, []any{c.Name(), c.text})
	return err
}

// RestoreControl restores a decision from the ledger, unless the shard has that decision or a newer one about the
// same subject. It reports whether it changed the shard.
func (k *Shard) RestoreControl(ctx context.Context, c *stream.Control) (restored bool, err error) {
	var keys []string
	var field, prefix string
	switch c.Kind {
	case stream.ControlCampaign:
		keys, field, prefix = []string{k.Keys.Campaign(c.Campaign)}, "state", "pause_"
	case stream.ControlSink:
		keys, field = []string{k.Keys.Sink(c.Sink)}, "paused"
	case stream.ControlRate:
		keys, field, prefix = []string{k.Keys.Sink(c.Sink)}, "rate", "limit_"
	case stream.ControlSinkCampaign:
		keys = []string{k.Keys.SinkCampaigns(c.Sink), k.Keys.Sink(c.Sink)}
		field, prefix = c.Campaign+":paused", c.Campaign+":"
	default:
		return false, nil // a kind that only later builds know
	}
	reply, err := k.run(ctx, restoreScript, keys, []any{field, prefix, c.Value, c.By, c.Why, controlTime(c.At), c.Rev})
	return err == nil && reply[0] == "restored", err
}

func controlTime(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
