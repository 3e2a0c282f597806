package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var ackScript = newDrainScript("ack", "bits")

// Ack marks events as done by the group's sink, counts them by campaign, and acks the entries ids, in one step. A
// repeated call has no further effect. Ack returns how many entries this call acked.
func (g Group) Ack(ctx context.Context, events []stream.CampaignRange, ids []string) (int, error) {
	g.shard.saw(ctx, stream.Seqs(events)...)
	m, campaigns := newCounted(g.shard.Keys, g.name, []string{g.shard.Keys.Events(), g.shard.Keys.Meta()}, events)
	args := make([]any, 3, 3+5*len(m.pieces)+len(ids))
	args[0], args[1], args[2] = g.name, campaigns, len(m.pieces)
	for _, p := range m.pieces {
		args = append(args, p.key, p.first, p.last, p.base, p.campaign)
	}
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := g.shard.run(ctx, ackScript, m.keys, args)
	if err != nil {
		return 0, err
	}
	return one(ackScript, reply, strconv.Atoi)
}

// Done returns which of the events of a range the sink has finished. Bitset.Has returns the answer for one event.
func (g Group) Done(ctx context.Context, r stream.SeqRange) (Bitset, error) {
	pipe := g.shard.rdb.Pipeline()
	read := readBits(ctx, pipe, g.shard.Keys, g.name, r)
	_, _ = pipe.Exec(ctx) // each command has its own error
	return read()
}

// Progress is the state that a consumer group reads before it delivers a batch: see Shard.Progress.
type Progress struct {
	Head
	Done []Bitset // the done bits of each range
	Sink SinkControl
}

// Progress reads the head, the done bits of a consumer group in ranges of events, and whether the sink is paused, in one
// round trip. Events below the done floor count as done, because their bits have been deleted.
func (g Group) Progress(ctx context.Context, ranges ...stream.SeqRange) (Progress, error) {
	pipe := g.shard.rdb.Pipeline()
	read := g.shard.askProgress(ctx, pipe, g.name, ranges)
	_, _ = pipe.Exec(ctx) // each command has its own error
	return read()
}

// askProgress queues the reads of Progress in a pipeline. The function that it returns parses the replies.
func (k *Shard) askProgress(ctx context.Context, pipe redis.Pipeliner, group string,
	ranges []stream.SeqRange) func() (Progress, error) {
	read := make([]func() (Bitset, error), len(ranges))
	for i, r := range ranges {
		read[i] = readBits(ctx, pipe, k.Keys, group, r)
	}
	// The floor is read after the bits: it rises before any bit is deleted, so each deleted bit is below it.
	head := pipe.HMGet(ctx, k.Keys.Meta(), headFields...)
	control := pipe.HGetAll(ctx, k.Keys.Sink(group))
	return func() (p Progress, err error) {
		if p.Sink, err = k.readControl(group, control); err != nil {
			return p, err
		}
		if p.Head, err = k.parseHead(head); err != nil {
			return p, err
		}
		if err := p.atWork(k.epoch); err != nil {
			return p, err
		}
		p.Done = make([]Bitset, len(ranges))
		for i := range ranges {
			if p.Done[i], err = read[i](); err != nil {
				return p, err
			}
			p.Done[i].behind = p.DoneFloor
		}
		return p, nil
	}
}

// FinishedEvents is Done for the bits of a consumer group: events below the done floor count as done.
func (g Group) FinishedEvents(ctx context.Context, r stream.SeqRange) (Bitset, error) {
	p, err := g.Progress(ctx, r)
	if err != nil {
		return Bitset{}, err
	}
	return p.Done[0], nil
}

// readBits queues the reads of a range's bits in a pipeline. The function that it returns parses the reply.
func readBits(ctx context.Context, pipe redis.Pipeliner, k Keys, sink string, r stream.SeqRange) func() (Bitset,
	error) {
	type piece struct {
		answer *redis.StringCmd
		bytes  int64
	}
	var pieces []piece
	for first := r.First; first <= r.Last; {
		chunk := first / ChunkEvents
		last := min(r.Last, (chunk+1)*ChunkEvents-1)
		low, high := first%ChunkEvents/8, last%ChunkEvents/8
		pieces = append(pieces, piece{pipe.GetRange(ctx, k.Done(sink, chunk), low, high), high - low + 1})
		first = last + 1
	}
	return func() (Bitset, error) {
		set := Bitset{first: r.First / 8 * 8, bits: make([]byte, 0, r.Len()/8+2)}
		for _, p := range pieces {
			s, err := p.answer.Result()
			if err != nil {
				return set, fmt.Errorf("read done bits of %s on shard %d: %w", sink, k.Index(), Classify(err))
			}
			set.bits = append(set.bits, s...)
			set.bits = append(set.bits, make([]byte, p.bytes-int64(len(s)))...)
		}
		return set, nil
	}
}

// Bitset is a run of done bits.
type Bitset struct {
	first  int64 // seq of the first bit
	bits   []byte
	behind int64 // every event before this seq is done
}

// Has reports whether seq is done. seq must be within the range that the caller asked for.
func (b Bitset) Has(seq int64) bool {
	if seq < b.behind {
		return true
	}
	i := seq - b.first
	return b.bits[i/8]&(0x80>>(i%8)) != 0
}

// one parses a reply that must be a single string.
func one[T any](s *script, reply []string, parse func(string) (T, error)) (T, error) {
	var zero T
	if len(reply) != 1 {
		return zero, fmt.Errorf("script %s answered %d strings, want 1", s.name, len(reply))
	}
	v, err := parse(reply[0])
	if err != nil {
		return zero, fmt.Errorf("script %s: %w", s.name, err)
	}
	return v, nil
}
