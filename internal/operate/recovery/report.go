package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// latest is how many openings of a shard Restored looks at. A restore needs all notes: Redis can come back from a file
// of before any of them.
const latest = 100

// Restored returns the latest openings that restored or withheld something, by shard, newest first. Without the ledger
// it returns none.
func (r *Recoverer) Restored(ctx context.Context) (list []model.Restored, err error) {
	if r.cfg.Ledger == nil {
		return nil, nil
	}
	for shard := range r.cfg.Store.Len() {
		noted, err := r.noted(ctx, shard)
		if err != nil {
			return nil, err
		}
		head, err := r.cfg.Store.Shard(shard).Head(ctx)
		if err != nil && !errors.Is(err, store.ErrFrozen) {
			return nil, err
		}
		for i := range noted[:min(len(noted), latest)] {
			if noted[i].Changed() && (!noted[i].Planned || noted[i].Epoch == head.Epoch) {
				list = append(list, noted[i])
			}
		}
	}
	return list, nil
}

// noted returns the ledger's notes of a shard's openings, newest first. It includes restores that were planned and not
// completed. An opening that restored nothing has only Next.
func (r *Recoverer) noted(ctx context.Context, shard int) (list []model.Restored, err error) {
	fences, err := r.cfg.Ledger.Fences(ctx, shard)
	if err != nil {
		return nil, err
	}
	for _, f := range fences {
		if f.Note == "" {
			continue
		}
		one := model.Restored{Shard: f.Shard, Epoch: f.Epoch, At: f.Opened}
		if err := json.Unmarshal([]byte(f.Note), &one.RestoreCounts); err != nil {
			return nil, fmt.Errorf("the ledger's note of epoch %d of shard %d: %w", f.Epoch, shard, err)
		}
		list = append(list, one)
	}
	return list, nil
}

// noteText is the text of the ledger's note of an attempt. The first note has only the latest event that a process had
// seen when the attempt began: Redis may lose that while the process dies.
type noteText struct {
	*model.RestoreCounts
	SeenIn int64 `json:"seen_epoch,omitempty"`
	Seen   int64 `json:"seen_seq,omitempty"`
}

func (r *Recoverer) writeNote(ctx context.Context, shard int, epoch int64, note noteText) error {
	text, err := json.Marshal(note)
	if err != nil {
		return err
	}
	return r.cfg.Ledger.NoteOpening(ctx, shard, epoch, string(text))
}

// askFences raises Seen to the last event that Redis had, or that a process had seen, when an earlier attempt began. The
// process of that attempt may have died, and Redis may have lost more since. Redis had no later epoch then than now if no
// epoch lies between its present one and that of the fence.
func (r *Recoverer) askFences(ctx context.Context, v *ShardReport) error {
	fences, err := r.cfg.Ledger.Fences(ctx, v.Shard)
	if err != nil {
		return err
	}
	saw := func(at store.Sight) {
		if at.After(store.Sight{Epoch: v.SeenIn, Seq: v.Seen}) && at.After(store.Sight{Epoch: v.Opening, Seq: v.Redis}) {
			v.Seen, v.SeenIn = at.Seq, at.Epoch
		}
	}
	for _, f := range fences {
		if f.Epoch == v.Opening+1 {
			saw(store.Sight{Epoch: v.Opening, Seq: f.Floor})
		}
		var note noteText
		if f.Note != "" && json.Unmarshal([]byte(f.Note), &note) == nil { // noted reports a note that can't be read
			saw(store.Sight{Epoch: note.SeenIn, Seq: note.Seen})
		}
	}
	return nil
}

// logOpening logs what an opening restored and withheld. done is nil if it was nothing. f is nil if nobody was asked.
func (r *Recoverer) logOpening(v *ShardReport, f *facts, done *model.RestoreCounts) {
	fields := []zap.Field{zap.Int("shard", v.Shard), zap.Int64("epoch", v.opened), zap.Int64("seq", v.Redis),
		zap.Duration("frozen for", v.For), zap.Bool("every process has reported", f != nil && f.complete)}
	if f != nil {
		f.lap(&f.steps.Open)
		fields = append(fields, zap.Any("steps", f.steps))
		if f.doubt != "" { // nothing was lost: else a person decides
			r.cfg.Log.Warn("a shard opens although the topic can't be trusted; a worker that is cut off may still publish "+
				"grants again", zap.Int("shard", v.Shard), zap.String("topic", f.doubt))
		}
	}
	what := "a frozen shard is open again"
	switch {
	case done != nil && done.First > 0:
		what += ": what Redis had lost was restored"
	case f != nil && f.complete:
		what += ", nothing was lost"
	default:
		what += ", no loss is known, but a process that has not reported may know of one"
	}
	if done != nil {
		fields = append(fields, zap.Any("restored", done))
	}
	if done == nil || done.First == 0 && done.Withheld == 0 {
		r.cfg.Log.Info(what, fields...)
		return
	}
	if done.Withheld > 0 {
		what += fmt.Sprintf("; packets withheld: %d, see `hongbao hole list`", done.Withheld)
	}
	r.cfg.Log.Warn(what, append(fields, zap.String("code", "redis_restored"))...)
}
