package subscriber

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/turn"
	"github.com/hongbao-project/hongbao/topic"
)

// Sink runs the effects of events, and remembers which events have had their effect. NewSQL and NewFuncSink return
// Sinks. The methods are called concurrently for different partitions. Each call must return in a bounded time,
// because a call that hangs blocks its partition.
type Sink interface {
	// Push runs the effects of the events that it has not seen, in their order, and remembers these events. The key of
	// an event is its campaign and packet; two wins can have the same shard and seq. If Push returns no error, all events
	// are handled. Otherwise the first Report.Next events are handled. The other events had no effect, and Push is called
	// again with them.
	//
	// The class of an error says what happens next. An outage (hongbao.Outagef) means that the sink is down: Push is
	// retried without limit, and no event loses an attempt. Permanent and Conflict mean that the event can never
	// succeed. Broken ends Run. After any other error, also of hongbao.Waitingf, the event is tried MaxAttempts times.
	Push(ctx context.Context, events []topic.Event) (Report, error)
	// Skip remembers an event that became a dead letter, so that Push does not run its effect later.
	Skip(ctx context.Context, event topic.Event) error
}

// Report is the result of a Push.
type Report struct {
	// Next is the number of events, from the front, that are handled.
	Next int
	// Of these events, Done had their effect now, and Repeated had it before.
	Done, Repeated int
}

// funcSink remembers in memory which events this process has handled.
type funcSink struct {
	cfg FuncSinkConfig

	mu     sync.Mutex
	shards map[shardOf]*shardSeen
}

// shardOf identifies a shard of a deployment.
type shardOf struct {
	source string
	shard  int
}

// FuncSinkConfig configures NewFuncSink. All fields are required.
type FuncSinkConfig struct {
	// Effect does your program's work for one event, for example adds points to the user's account. It is called
	// concurrently for events of different shards, but not for events of the same shard. Its context ends after
	// Timeout; Effect must return then, because its partition waits. The class of its error says what happens next, see
	// Sink.
	Effect func(ctx context.Context, event topic.Event) error
	// Timeout limits one call of Effect, from 1 ms to 1 h. After the timeout the event has failed, and is retried like
	// any other failed event.
	Timeout time.Duration
}

// rememberedChunks limits the memory of a funcSink: two maps of this size, with 512 bytes for each chunk, make 1 MiB
// for each shard.
const rememberedChunks = 1024

// shardSeen has the packets of a shard that were seen. It forgets chunks that it has not used for a long time. Its lock
// is held while an effect of the shard runs.
type shardSeen struct {
	turn.Lock
	// used has the chunks that were used last, at most rememberedChunks, and older those used before.
	used, older map[chunkKey]*bitmap
}

// chunk returns the bitmap of the event's chunk.
func (s *shardSeen) chunk(e *topic.Event) *bitmap {
	k := chunkOf(e)
	if b := s.used[k]; b != nil {
		return b
	}
	b := s.older[k]
	if b == nil {
		b = &bitmap{}
	}
	if s.used == nil || len(s.used) == rememberedChunks {
		s.used, s.older = map[chunkKey]*bitmap{}, s.used
	}
	s.used[k] = b
	return b
}

// NewFuncSink returns a Sink for effects that are not in a database, such as a push to a front end or a mail. It
// remembers in memory which events this process has handled, by (campaign, packet), up to 1 MiB for each shard. After a
// restart or a rebalance, the events since the last commit are delivered again. So the effect must detect repeated
// events, by dedup's push-once with campaign and packet as the id, or by its own unique key.
func NewFuncSink(cfg FuncSinkConfig) (Sink, error) {
	if cfg.Effect == nil {
		return nil, errors.New("subscriber: an Effect is required")
	}
	if cfg.Timeout < time.Millisecond || cfg.Timeout > time.Hour {
		return nil, fmt.Errorf("subscriber: Timeout of an effect is %s: want 1ms to 1h", cfg.Timeout)
	}
	return &funcSink{cfg: cfg, shards: map[shardOf]*shardSeen{}}, nil
}

func (f *funcSink) shard(e *topic.Event) *shardSeen {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := shardOf{source: e.Source, shard: e.Grant.Shard}
	s := f.shards[k]
	if s == nil {
		s = &shardSeen{}
		f.shards[k] = s
	}
	return s
}

// Push implements Sink.
func (f *funcSink) Push(ctx context.Context, events []topic.Event) (r Report, err error) {
	for i := range events {
		if err := ctx.Err(); err != nil {
			return r, hongbao.Errorf(hongbao.ClassTransient, "event %s was not started: %w", events[i].Grant.EventID(), err)
		}
		fresh, err := f.one(ctx, &events[i])
		if err != nil {
			return r, fmt.Errorf("the effect of event %s: %w", events[i].Grant.EventID(), err)
		}
		if fresh {
			r.Done++
		} else {
			r.Repeated++
		}
		r.Next++
	}
	return r, nil
}

// one runs the effect of an event that was not seen. It reports whether the effect has run.
func (f *funcSink) one(ctx context.Context, e *topic.Event) (fresh bool, err error) {
	s := f.shard(e)
	if err := s.LockContext(ctx); err != nil {
		return false, hongbao.Errorf(hongbao.ClassTransient, "event %s was not started: %w", e.Grant.EventID(), err)
	}
	defer s.Unlock()
	seen := s.chunk(e)
	if seen.has(e) {
		return false, nil
	}
	limited, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	if err := f.effect(limited, e); err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			return false, fmt.Errorf("the effect did not end within %s: %w", f.cfg.Timeout, err)
		}
		return false, err
	}
	seen.add(e)
	return true, nil
}

// effect runs the effect. A panic is an error, so that Report counts the events before it.
func (f *funcSink) effect(ctx context.Context, e *topic.Event) (err error) {
	defer recovered(&err)
	return f.cfg.Effect(ctx, *e)
}

// Skip implements Sink.
func (f *funcSink) Skip(ctx context.Context, event topic.Event) error {
	s := f.shard(&event)
	if err := s.LockContext(ctx); err != nil {
		return hongbao.Errorf(hongbao.ClassTransient, "event %s was not skipped: %w", event.Grant.EventID(), err)
	}
	defer s.Unlock()
	s.chunk(&event).add(&event)
	return nil
}
