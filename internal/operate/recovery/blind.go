package recovery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// blindEpochs is the least number by which an opening without the ledger raises the epoch. The ledger may know later
// epochs than Redis.
const blindEpochs = 1 << 20

// blindEpoch returns the epoch of an opening without the ledger. It depends on the time: if a failover loses this
// opening, the next opening gets another epoch.
func blindEpoch(epoch int64, now time.Time) int64 {
	return epoch + blindEpochs + max(0, now.UnixMilli()-time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
}

// Blind returns why a frozen shard can't be opened without the ledger; nil if it can be opened.
func (v *ShardReport) Blind() error {
	const advice = "bring the ledger back, and run `hongbao recover` with it"
	switch {
	case v.Redis < 0:
		return hongbao.Errorf(hongbao.ClassPermanent, "shard %d can't be opened without the ledger, nothing was changed: Redis "+
			"has lost the shard, and only the ledger knows which seqs are used: %s", v.Shard, advice)
	case v.lostEvents():
		return hongbao.Errorf(hongbao.ClassPermanent, "shard %d can't be opened without the ledger, nothing was changed: Redis "+
			"has lost events, and only the ledger can say of which campaigns (%s): %s", v.Shard, v, advice)
	case v.Unrestored != "":
		return hongbao.Errorf(hongbao.ClassPermanent, "shard %d can't be opened without the ledger, nothing was changed: workers "+
			"can't restore it (%s): %s", v.Shard, v.Unrestored, advice)
	}
	return nil
}

// openBlind opens a shard while the ledger is down. The decision waits in the shard's meta. Workers take no grants from
// the shard until the ledger has recorded the decision.
func (r *Recoverer) openBlind(ctx context.Context, v *ShardReport, by stream.Decision) error {
	if err := v.Blind(); err != nil {
		return err
	}
	if err := by.Check(); err != nil {
		return hongbao.Errorf(hongbao.ClassPermanent, "open shard %d without the ledger: %w", v.Shard, err)
	}
	now := time.Now()
	epoch := blindEpoch(v.Epoch, now)
	list := append(slices.Clone(v.Unrecorded), store.Unrecorded{Epoch: epoch, Seq: v.Redis, Last: v.skipTo(),
		Decision: by, Lost: fmt.Sprintf("%s; opened without the ledger in epoch %d", v, epoch), At: now.UTC()})
	opened, err := r.cfg.Store.Shard(v.Shard).Reopen(ctx, &store.Reopening{
		Was: v.state, Epoch: epoch, Last: v.skipTo(), Known: v.Known(), Unrecorded: list, Sinks: r.cfg.Sinks,
		Evidence: store.AnyEvidence})
	if err == nil && !opened {
		err = hongbao.Errorf(hongbao.ClassTransient, "shard %d changed meanwhile, nothing was done: run the command again",
			v.Shard)
	}
	return err
}

// fencedRounds is the number of keepOpenings' rounds from one call of FreezeFenced for a shard to the next.
const fencedRounds = 10

// keepOpenings records openings without the ledger in the ledger, and freezes shards whose epoch the ledger refuses,
// until ctx ends.
func (r *Recoverer) keepOpenings(ctx context.Context) {
	failed := map[int]bool{}
	for round := 0; ; round++ {
		for shard := range r.cfg.Store.Len() {
			err := r.KeepOpening(ctx, shard)
			if (round+shard)%fencedRounds == 0 {
				_ = r.FreezeFenced(ctx, shard) // the sinks report a ledger that does not answer
			}
			if err != nil && ctx.Err() == nil && !failed[shard] {
				r.cfg.Log.Warn("recording an opening of a shard in the ledger failed, and the shard's grants wait; the worker tries "+
					"again", zap.Int("shard", shard), zap.Error(err))
			}
			failed[shard] = err != nil
		}
		if !retry.Pause(ctx, keepEvery) {
			return
		}
	}
}

// FreezeFenced freezes a shard that is open in an epoch that the ledger refuses. Such a shard was opened by one worker
// while another one, which believed it frozen, noted a later attempt in the ledger. Its next opening takes a later epoch.
func (r *Recoverer) FreezeFenced(ctx context.Context, shard int) error {
	if r.cfg.Ledger == nil {
		return nil
	}
	state, err := r.cfg.Ledger.Shard(ctx, shard) // read first: an opening is noted in the ledger before Redis has it
	if err != nil {
		return err
	}
	_, err = r.cfg.Store.Shard(shard).FreezeBefore(ctx, state.Epoch)
	return err
}

// KeepOpening records in the ledger that a person opened the shard while the ledger was down. Then workers take grants
// from the shard again. If the ledger knows an event, a campaign or an epoch that Redis did not have at the opening,
// KeepOpening freezes the shard, and a person decides.
func (r *Recoverer) KeepOpening(ctx context.Context, shard int) error {
	k := r.cfg.Store.Shard(shard)
	if list, _, err := k.Unrecorded(ctx); err != nil || len(list) == 0 {
		return err
	}
	_, err := r.withRecoveryLock(ctx, shard, func(ctx context.Context) error {
		list, text, err := k.Unrecorded(ctx)
		if err != nil || len(list) == 0 {
			return err
		}
		z, err := k.Freeze(ctx)
		if err != nil || z.Frozen {
			return err // the next opening of the frozen shard records it
		}
		v := &ShardReport{Shard: shard, Redis: z.Seq, Seen: z.Seen.Seq, SeenIn: z.Seen.Epoch, Opening: z.Epoch, Topic: -1,
			Epoch: max(z.Epoch, 0), Unrecorded: list, state: z, dealt: map[string]int64{}, silent: map[int]bool{},
			here: map[string]here{}, ended: map[string]*store.LostCampaign{}}
		return r.keepOpening(ctx, k, v, text)
	})
	return err
}

// keepOpening does the work of KeepOpening for a shard that is open, under the shard's lock.
func (r *Recoverer) keepOpening(ctx context.Context, k *store.Shard, v *ShardReport, text string) error {
	if err := r.askLedger(ctx, v); err != nil {
		return err
	}
	if err := r.askCampaigns(ctx, v); err != nil {
		return err
	}
	state, err := r.cfg.Ledger.Shard(ctx, v.Shard)
	if err != nil {
		return err
	}
	before, last := v.Unrecorded[0].Seq, v.Unrecorded[len(v.Unrecorded)-1].Epoch
	if v.Late > 0 || len(v.Campaigns) > 0 || state.Epoch > last {
		r.cfg.Log.Error("ALARM: a shard was opened without the ledger, and the ledger knows more than Redis had; it is frozen "+
			"again: run `hongbao recover`", zap.String("code", "redis_went_back"), zap.Int("shard", v.Shard),
			zap.Int64("epoch in the ledger", state.Epoch), zap.Stringer("lost", v))
		return k.FreezeLate(ctx, max(v.Late, before, 1))
	}
	if err := r.restoreControls(ctx, v.Shard); err != nil {
		return err
	}
	if _, err := r.record(ctx, v, state.Epoch); err != nil {
		return err
	}
	for id, dealt := range v.dealt { // after the epoch is raised: see Ledger.TopUpDealt
		if err := r.cfg.Ledger.TopUpsLost(ctx, id, dealt); err != nil {
			return err
		}
	}
	if err := k.Recorded(ctx, text); err != nil {
		return err
	}
	r.cfg.Log.Info("the ledger has recorded an opening that was made without it; workers settle the shard's grants again",
		zap.Int("shard", v.Shard), zap.Int64("epoch", last))
	return nil
}

// record adds the openings that were made without the ledger to the ledger, except those that the ledger already has.
// from is the ledger's epoch of the shard, and record returns the epoch after it. If an opening's epoch is not above
// the ledger's, it is recorded under the ledger's next epoch.
func (r *Recoverer) record(ctx context.Context, v *ShardReport, from int64) (int64, error) {
	if len(v.Unrecorded) == 0 {
		return from, nil
	}
	has, err := r.Accepted(ctx)
	if err != nil {
		return from, err
	}
	for i := range v.Unrecorded {
		u := &v.Unrecorded[i]
		if slices.ContainsFunc(has, func(a model.AcceptedLoss) bool { return a.Shard == v.Shard && a.Lost == u.Lost }) {
			continue
		}
		epoch := max(u.Epoch, from+1)
		decision := model.AcceptedLoss{Shard: v.Shard, Epoch: epoch, Decision: u.Decision, Lost: u.Lost}
		if err := r.cfg.Ledger.AcceptLoss(ctx, from, v.state.Token, decision); err != nil {
			return from, err
		}
		from = epoch
	}
	return from, nil
}
