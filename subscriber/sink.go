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

// Sink runs the effect of events and remembers which events have had it. NewSQL and NewFuncSink make one. Its methods
// are called concurrently, for events of different partitions. Each call must end by itself: a hanging call blocks
// its partition.
type Sink interface {
	// Push runs the effect of the events that it has not seen, in their order, and remembers them. Without an error
	// all of them are handled. With an error the first Report.Next are handled; the others have had no effect and are
	// handed over again. An error that is an outage (hongbao.Outagef) says that the sink is down. It is repeated
	// without end and counts as no event's failure. Permanent and Conflict say that the event will never work, Broken
	// that Run has to end; any other error is tried again MaxAttempts times.
	Push(ctx context.Context, events []topic.Event) (Report, error)
	// Skip remembers an event that became a dead letter, so that it is not handed over again.
	Skip(ctx context.Context, event topic.Event) error
}

// Report is the result of a Push.
type Report struct {
	// Next is how many events from the front are handled.
	Next int
	// Done of these events had their effect now, Repeated had it before.
	Done, Repeated int
	// TooOld are the indices of the events for which it is unknown: they had no effect now and become dead letters.
	TooOld []int
}

// shardOf identifies a shard of a deployment.
type shardOf struct {
	source string
	shard  int
}

func shardFor(e *topic.Event) shardOf { return shardOf{source: e.Source, shard: e.Grant.Shard} }

// funcSink remembers in memory the events that this process handled.
type funcSink struct {
	cfg FuncSinkConfig

	mu   sync.Mutex
	seen map[shardOf]*shardSeen
}

// FuncSinkConfig configures NewFuncSink. A zero is refused.
type FuncSinkConfig struct {
	// Effect of one event. It is called for one event of a shard at a time, and concurrently for events of different
	// shards. Its context ends after Timeout: Effect must return then, or its partition is blocked. The class of its
	// error decides what happens next, see Sink.
	Effect func(ctx context.Context, event topic.Event) error
	// Timeout bounds one effect. An event whose effect takes longer has failed, and is tried again as any other. 1 ms to 1
	// h.
	Timeout time.Duration
}

// shardSeen is the position of a shard; its lock is taken while one of its events has its effect.
type shardSeen struct {
	sync.Mutex
	position
}

// NewFuncSink makes a Sink for effects that are not in a database: a push to a front end, a mail. It remembers in memory
// the events that this process handled. After a restart or a rebalance the events since the last commit come again. So
// the effect must recognise a repeat: by dedup's push-once with the event's id, or by a unique key of its own.
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

// one runs the effect of an event that is fresh. It returns what the position knew of the event.
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
			return sight, fmt.Errorf("it did not end within %s: %w", f.cfg.Timeout, err)
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
