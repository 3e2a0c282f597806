package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/topic"
)

// FenceSince returns the time, by the clock of Redis, from which Fence must read the partition. last is the time of the
// last write that Redis still has. Each session that may have made a claim after last has a record in the partition
// from the returned time on.
func (l *Log) FenceSince(last time.Time) time.Time {
	return last.Add(-AnnouncedFor - l.cfg.MaxClaimAge - stream.ClockSkew)
}

// Fence makes the broker refuse every batch that an older session may still send to the partition of a shard. It
// returns the shard's grants that such sessions have sent. Before the call, the ledger must have the shard's new epoch:
// a session that starts later reads that epoch (Config.Epoch).
//
// A session has epoch 0. A fence record with the same producer id and a higher epoch makes the broker refuse batches
// with epoch 0. Fence sends such a record for each producer id that it finds in a claim, or in the part of the
// partition that exists at the call. Then it reads up to the last of these records. A session that appears only in this
// newer part started after the call. It is fenced only if it has sent a grant of the shard. Fencing all of them would
// not end, since live publishers of other shards start new sessions as fast as they are fenced. A fenced live publisher
// finds its batch in the log, or sends it again.
//
// If the broker refuses a fence record, Fence returns the grants in the partition with the error.
//
// After an error, call Fence again: the broker drops a second copy of a fence record. Calls for other shards of the
// partition may run concurrently.
func (l *Log) Fence(ctx context.Context, f stream.TopicFence) (stream.Fenced, error) {
	r := fencing{l: l, shard: f.Shard, partition: l.Partition(f.Shard), sessions: map[int64]int16{},
		fenced: map[int64]int16{}}
	if err := l.refuseCompaction(ctx); err != nil {
		return stream.Fenced{}, err
	}
	b, err := l.ends(ctx, r.partition)
	if err != nil {
		return stream.Fenced{}, err
	}
	r.end = b.end
	r.claims(f.Claims)
	if b.start, err = l.offsetAt(ctx, r.partition, f.Since, b); err != nil {
		return stream.Fenced{}, err
	}
	for {
		if err := l.read(ctx, r.partition, b, r.one); err != nil {
			return stream.Fenced{}, err
		}
		b.start = b.end
		open := r.open()
		if len(open) == 0 {
			return r.result(), nil
		}
		for _, n := range open {
			at, err := l.fence(ctx, r.partition, n)
			if err != nil {
				return r.result(), err
			}
			r.fenced[n.producer] = n.epoch
			r.producers++
			b.end = max(b.end, at+1)
		}
	}
}

// fencing is the state of one call of Fence.
type fencing struct {
	l                  *Log
	shard, partition   int
	end                int64           // end of the log when Fence was called
	sessions, fenced   map[int64]int16 // epoch of each producer id
	grants             []hongbao.Grant // in the order of the log; may contain duplicates
	records, producers int
	doubt              string
}

// claims records the producer ids of the claims. If the log is shorter than when a claim was made, it sets doubt.
func (r *fencing) claims(claims []stream.Claim) {
	for i := range claims {
		st, err := r.l.readStored(r.partition, &claims[i])
		if err != nil {
			r.doubt = err.Error()
			continue
		}
		if st.noted > r.end {
			r.doubt = fmt.Sprintf("%s went back: its end is at offset %d, but claim %s has seen offset %d", r.l.where(r.partition),
				r.end, claims[i].ID, st.noted)
		}
		r.met(st.numbers)
	}
}

func (r *fencing) met(n numbers) { r.sessions[n.producer] = max(r.sessions[n.producer], n.epoch) }

func (r *fencing) one(rec *record) error {
	r.records++
	if rec.batch.producer < 0 || !r.l.own(rec) {
		return nil
	}
	if rec.isFence() && rec.batch.epoch > 0 {
		r.fenced[rec.batch.producer] = max(r.fenced[rec.batch.producer], rec.batch.epoch)
		return nil
	}
	if rec.offset < r.end {
		r.met(rec.batch)
	}
	e, err := topic.DecodeMessage(rec.headers, rec.key, rec.value)
	if err != nil {
		if !errors.Is(err, topic.ErrForeign) {
			r.doubt = fmt.Sprintf("offset %d of %s: %v", rec.offset, r.l.where(r.partition), err)
		}
		return nil
	}
	if e.Grant.Shard == r.shard {
		r.met(rec.batch)
		r.grants = append(r.grants, e.Grant)
	}
	return nil
}

// open returns the producer ids that still need a fence record, with the epoch for that record.
func (r *fencing) open() (open []numbers) {
	for _, producer := range slices.Sorted(maps.Keys(r.sessions)) {
		if epoch := r.sessions[producer]; r.fenced[producer] <= epoch {
			open = append(open, numbers{producer: producer, epoch: epoch + 1})
		}
	}
	return open
}

func (r *fencing) result() stream.Fenced {
	slices.SortFunc(r.grants, func(a, b hongbao.Grant) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Campaign, b.Campaign),
			cmp.Compare(a.Packet, b.Packet), cmp.Compare(a.User, b.User))
	})
	return stream.Fenced{Grants: slices.Compact(r.grants), Records: r.records, Producers: r.producers, Doubt: r.doubt}
}

// fence sends a fence record with the producer id and the epoch of n, and returns an offset. All batches with an
// earlier epoch of that producer id are before this offset.
func (l *Log) fence(ctx context.Context, partition int, n numbers) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.AttemptTime)
	defer cancel()
	for {
		ms := time.Now().UnixMilli()
		b := newBatch(l.source)
		b.addFounding(l.cfg.Founding)
		b.start(n, ms)
		b.addFence(n, ms)
		sent := l.send(ctx, partition, b.finish(), func(bool) error { return nil })
		switch sent.outcome {
		case appended:
			return sent.base, nil
		case fenced, lookBack: // send one more, with a new id, to get an offset
			err := l.ask(ctx, "taking a producer id", func(ctx context.Context) (err error) {
				n, err = l.newProducer(ctx)
				return err
			})
			if err != nil {
				return 0, err
			}
			n.epoch++
		case again:
			return 0, hongbao.Outagef(hongbao.ClassUnknown, "sending a fence record to %s: no conclusive answer in time: %w",
				l.where(partition), plain(sent.err))
		case tooMuch, refused, absent:
			return 0, l.sinkError("sending a fence record to "+l.where(partition), sent.outcome, sent.err)
		}
	}
}

// refuseCompaction returns an error if the topic is compacted: records may be missing from it.
func (l *Log) refuseCompaction(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.AttemptTime)
	defer cancel()
	k := &check{l: l, values: map[string]string{}}
	if err := k.describe(ctx, kafka.ResourceTypeTopic, l.cfg.Topic, cleanup); err != nil {
		return err
	}
	if k.keepsAll(); len(k.refusals) > 0 {
		return hongbao.Errorf(hongbao.ClassBroken, "topic %s can't be used: %w", l.cfg.Topic, k.refusals[0])
	}
	return nil
}
