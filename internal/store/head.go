package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Head is the progress of a shard.
type Head struct {
	Seq   int64 // seq of the last event
	Epoch int64
	// DoneFloor is the lowest seq whose done bits still exist. Every group has finished the events below it.
	DoneFloor int64
	// Frozen means that the shard refuses all calls, because its data may be out of date.
	Frozen bool
}

// at returns the shard's last event.
func (h Head) at() Sight { return Sight{Epoch: h.Epoch, Seq: h.Seq} }

// Fields of meta that make a Head.
const (
	seqField       = "seq"
	epochField     = "epoch"
	doneFloorField = "done_floor" // absent until the first bits are deleted
	frozenField    = "frozen"     // time of the freeze, in ms; absent while the shard is open
)

var headFields = []string{seqField, epochField, doneFloorField, frozenField}

// Refute returns a Conflict if neither a grab nor a close can have written the entry. It checks numbers only: either
// the shard has not reached the entry's seq or epoch, or the entry's events were trimmed long ago. The caller must
// read the entry first, then the head. A new entry and the shard's seq are written together, so an older head would
// refute it wrongly.
func (h Head) Refute(e *stream.Entry) error {
	const advice = "no grab wrote it; find out who can write to Redis"
	switch {
	case e.Last() > h.Seq || e.Epoch > h.Epoch:
		return hongbao.Errorf(hongbao.ClassConflict,
			"entry %s has events %d to %d of epoch %d, but shard %d has only reached event %d of epoch %d: "+advice,
			e.ID, e.Seq, e.Last(), e.Epoch, e.Shard, h.Seq, h.Epoch)
	case e.Seq < h.DoneFloor:
		return hongbao.Errorf(hongbao.ClassConflict,
			"entry %s has events %d to %d, but shard %d finished all below %d long ago and trimmed them: "+advice,
			e.ID, e.Seq, e.Last(), e.Shard, h.DoneFloor)
	}
	return nil
}

// Head returns the progress of the shard.
func (k *Shard) Head(ctx context.Context) (Head, error) {
	return k.parseHead(k.rdb.HMGet(ctx, k.Keys.Meta(), headFields...))
}

// OpenHead is like Head, but returns ErrFrozen for a frozen shard.
func (k *Shard) OpenHead(ctx context.Context) (Head, error) {
	return k.parseOpenHead(k.rdb.HMGet(ctx, k.Keys.Meta(), headFields...))
}

func (k *Shard) parseOpenHead(cmd *redis.SliceCmd) (Head, error) {
	h, err := k.parseHead(cmd)
	if err == nil {
		err = h.atWork(k.epoch)
	}
	return h, err
}

// parseHead parses the answer to an HMGET of headFields. It records the seq as seen by this process, even if the
// shard is frozen.
func (k *Shard) parseHead(cmd *redis.SliceCmd) (Head, error) {
	v, err := cmd.Result()
	if err != nil {
		return Head{}, fmt.Errorf("read seq and epoch of %s: %w", k.Keys.Meta(), Classify(err))
	}
	if v[0] == nil || v[1] == nil {
		return Head{}, k.notInitialized()
	}
	var h Head
	for i, into := range []*int64{&h.Seq, &h.Epoch, &h.DoneFloor} {
		text, _ := v[i].(string)
		if headFields[i] == doneFloorField && v[i] == nil {
			break
		}
		if *into, err = strconv.ParseInt(text, 10, 64); err != nil {
			return Head{}, hongbao.Errorf(hongbao.ClassBroken, "%s, field %s: someone changed it by hand: %w", k.Keys.Meta(),
				headFields[i], err)
		}
	}
	h.Frozen = v[3] != nil
	k.state.saw(h.Epoch, h.Seq)
	return h, nil
}

// atWork returns ErrFrozen if the shard is frozen, and ErrStale if its epoch is not the caller's (Shard.At); 0 is any.
func (h Head) atWork(epoch int64) error {
	if h.Frozen {
		return frozenError("it waits until what Redis may have lost is known")
	}
	if epoch != 0 && epoch != h.Epoch {
		return hongbao.Outagef(hongbao.ClassTransient, "%w: it is in epoch %d now", ErrStale, h.Epoch)
	}
	return nil
}

// notInitialized returns the error for a shard whose meta key is missing.
func (k *Shard) notInitialized() error {
	return frozenError(fmt.Sprintf("redis key %s has no seq, so Redis has lost the shard: %s", k.Keys.Meta(), afterLoss))
}

// afterLoss is the advice in errors about missing shards.
const afterLoss = "run `hongbao recover`, which shows what is lost; `hongbao init` is for a new deployment only"

// Decode parses entries that were read from the stream. It omits unreadable entries and forged ones (see
// Head.Refute), and returns their numbers. An entry in the format of a newer build is an error.
func (k *Shard) Decode(ctx context.Context, raw []RawEntry) (entries []stream.Entry, unreadable, forged int64,
	err error) {
	head, err := k.OpenHead(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	return k.decode(head, raw)
}

// decode is Decode with a head that was read after the entries.
func (k *Shard) decode(head Head, raw []RawEntry) (entries []stream.Entry, unreadable, forged int64, err error) {
	for i := range raw {
		e, err := stream.ParseEntry(k.Keys.Index(), raw[i].ID, raw[i].Values)
		switch {
		case errors.Is(err, stream.ErrNewerEntry):
			return nil, 0, 0, err
		case err != nil:
			unreadable++
		case head.Refute(&e) != nil:
			forged++
		default:
			entries = append(entries, e)
		}
	}
	return entries, unreadable, forged, nil
}
