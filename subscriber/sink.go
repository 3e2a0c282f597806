package subscriber

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/topic"
)

// Sink runs the effects of events, and remembers which events have had their effect. NewSQL and NewFuncSink return
// Sinks. The methods are called concurrently for different partitions. Each call must return in a bounded time,
// because a call that hangs blocks its partition.
type Sink interface {
	// Push runs the effects of the events that it has not seen, in their order, and remembers these events. If it
	// returns no error, all events are handled. Otherwise the first Report.Next events are handled. The other events
	// had no effect, and Push is called again with them.
	//
	// The class of an error says what happens next. An outage (hongbao.Outagef) means that the sink is down: Push is
	// retried without limit, and no event loses an attempt. Permanent and Conflict mean that the event can never
	// succeed. Broken ends Run. After any other error, also of hongbao.Heldf, the event is tried MaxAttempts times.
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
	// TooOld has the indices of the events for which the Sink has forgotten whether they had their effect. They had no
	// effect now, and become dead letters.
	TooOld []int
}

// shardOf identifies a shard of a deployment.
type shardOf struct {
	source string
	shard  int
}

func shardFor(e *topic.Event) shardOf { return shardOf{source: e.Source, shard: e.Grant.Shard} }

// funcSink remembers in memory which events this process has handled.
type funcSink struct {
	cfg FuncSinkConfig

	mu   sync.Mutex
	seen map[shardOf]*shardSeen
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

// shardSeen is the position of a shard. Its lock is held while an effect of the shard runs.
type shardSeen struct {
	sync.Mutex
	position
}

// NewFuncSink returns a Sink for effects that are not in a database, such as a push to a front end or a mail. It
// remembers in memory which events this process has handled. After a restart or a rebalance, the events since the last
// commit are delivered again. So the effect must detect repeated events, by dedup's push-once with campaign and
// packet as the id, or by its own unique key.
func NewFuncSink(cfg FuncSinkConfig) (Sink, error) {
	if cfg.Effect == nil {
		return nil, errors.New("subscriber: an Effect is required")
	}
	if cfg.Timeout < time.Millisecond || cfg.Timeout > time.Hour {
		return nil, fmt.Errorf("subscriber: Timeout of an effect is %s: want 1ms to 1h", cfg.Timeout)
	}
	return &funcSink{cfg: cfg, seen: map[shardOf]*shardSeen{}}, nil
}

func (f *funcSink) shard(e *topic.Event) *shardSeen {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.seen[shardFor(e)]
	if s == nil {
		s = &shardSeen{}
		f.seen[shardFor(e)] = s
	}
	return s
}

// Push implements Sink.
func (f *funcSink) Push(ctx context.Context, events []topic.Event) (r Report, err error) {
	for i := range events {
		if err := ctx.Err(); err != nil {
			return r, hongbao.Errorf(hongbao.ClassTransient, "event %s was not started: %w", events[i].Grant.EventID(), err)
		}
		sight, err := f.one(ctx, &events[i])
		if err != nil {
			return r, fmt.Errorf("the effect of event %s: %w", events[i].Grant.EventID(), err)
		}
		switch sight {
		case sightSeen:
			r.Repeated++
		case sightTooOld:
			r.TooOld = append(r.TooOld, i)
		case sightFresh:
			r.Done++
		}
		r.Next++
	}
	return r, nil
}

// one runs the effect of an event if the position has not seen it. It returns what the position had said.
func (f *funcSink) one(ctx context.Context, e *topic.Event) (sight, error) {
	s := f.shard(e)
	s.Lock()
	defer s.Unlock()
	sight := s.Look(e.Grant.Seq)
	if sight != sightFresh {
		return sight, nil
	}
	limited, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	if err := f.cfg.Effect(limited, *e); err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			return sight, fmt.Errorf("the effect did not end within %s: %w", f.cfg.Timeout, err)
		}
		return sight, err
	}
	s.Add(e.Grant.Seq)
	return sight, nil
}

// Skip implements Sink.
func (f *funcSink) Skip(_ context.Context, event topic.Event) error {
	s := f.shard(&event)
	s.Lock()
	defer s.Unlock()
	s.Add(event.Grant.Seq)
	return nil
}
