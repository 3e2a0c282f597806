package recovery

import (
	"context"
	"maps"
	"slices"

	"go.uber.org/zap"
)

// alarm logs what was lost and why it is not restored. It logs the same text only once. The reason is stored for the
// person who runs the command that the alarm names.
func (r *Recoverer) alarm(ctx context.Context, v *ShardReport, why string) error {
	v.Unrestored = why
	what, t := v.String(), &r.shards[v.Shard]
	var err error
	if v.Redis >= 0 { // without a meta the report shows the loss itself
		err = r.cfg.Store.Shard(v.Shard).SetUnrestored(ctx, v.state.Token, why)
	}
	if t.alarmed == what {
		return err
	}
	t.alarmed = what
	r.cfg.Log.Error("ALARM: Redis went back in time and the shard stays frozen; let no one write to this Redis, keep its "+
		"files, and run `hongbao recover`",
		zap.String("code", "redis_went_back"), zap.Int("shard", v.Shard), zap.String("lost", what))
	return err
}

// shown returns the report on a shard for a person, which includes what workers say. If they can't restore the shard
// although nothing is known to be lost, every campaign that may have granted something is in doubt.
func (r *Recoverer) shown(ctx context.Context, shard int) (*ShardReport, error) {
	v, err := r.report(ctx, shard, nil)
	if err != nil || !v.Frozen {
		return v, err
	}
	v.Unrestored, err = r.cfg.Store.Shard(shard).Unrestored(ctx, v.state.Token)
	if err == nil && v.Unrestored != "" && !v.lostEvents() && len(v.Campaigns) == 0 {
		v.doubtAll()
	}
	return v, err
}

func (v *ShardReport) doubtAll() {
	for _, id := range slices.Sorted(maps.Keys(v.here)) {
		if c := v.here[id]; c.grants {
			v.Campaigns = append(v.Campaigns, Doubt{Campaign: id, Why: v.Unrestored, places: c.places})
		}
	}
}
