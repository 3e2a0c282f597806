package subscriber

import (
	"context"
	"fmt"
	"sync"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/topic"
)

// Event is a grant as the topic tells it, and the deployment that it comes from.
type Event = topic.Event

// Sink has the effect of events and remembers which have had it. SQL and Apart are Sinks.
type Sink interface {
	// Push has the effect of those of the events that it has not seen, in their order, and remembers them. Without an error all of them are
	// dealt with. With one, the first Report.Next are; the rest has had no effect and is handed over again. An error that
	// is an outage (hongbao.Outagef) says that the sink is down: it is repeated without end and held against no event.
	// Permanent and Conflict say that the event will never work, Broken that Run has to end; anything else is tried again MaxAttempts times.
	Push(ctx context.Context, events []Event) (Report, error)
	// Skip remembers an event that became a dead letter, so that it is not handed over again.
	Skip(ctx context.Context, event Event) error
}

// Report is what became of a Push.
type Report struct {
	// Next is how many events from the front are dealt with.
	Next int
	// Done of these had their effect now, Repeated had it before.
	Done, Repeated int
	// TooOld are the indices of those of which it can't be told: they had no effect now and are to become dead letters.
	TooOld []int
}

// shardOf names a shard of a deployment.
type shardOf struct {
	source string
	shard  int
}

func shardFor(e *Event) shardOf { return shardOf{source: e.Source, shard: e.Grant.Shard} }

// Apart is a Sink for effects that are not in a database: a push to a front end, a mail. It remembers in memory what
// this process did. After a restart or a rebalance the events since the last commit come again, so the effect must
// recognise a repeat: by dedup's push-once with the event's id, or by a unique key of its own.
type Apart struct {
	effect func(ctx context.Context, event Event) error

	mu   sync.Mutex
	seen map[shardOf]*Position
}

// NewApart makes an Apart. effect is called for one event at a time; its error's class says what is to be done, see Sink.
func NewApart(effect func(ctx context.Context, event Event) error) (*Apart, error) {
	if effect == nil {
		return nil, fmt.Errorf("subscriber: an effect is required")
	}
	return &Apart{effect: effect, seen: map[shardOf]*Position{}}, nil
}

func (a *Apart) position(e *Event) *Position {
	p := a.seen[shardFor(e)]
	if p == nil {
		p = &Position{}
		a.seen[shardFor(e)] = p
	}
	return p
}

// Push is Sink's.
func (a *Apart) Push(ctx context.Context, events []Event) (r Report, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range events {
		if err := ctx.Err(); err != nil {
			return r, hongbao.Errorf(hongbao.Transient, "event %s was not begun: %w", events[i].Grant.EventID(), err)
		}
		p := a.position(&events[i])
		switch p.Look(events[i].Grant.Seq) {
		case Seen:
			r.Repeated++
		case TooOld:
			r.TooOld = append(r.TooOld, i)
		case Fresh:
			if err := a.effect(ctx, events[i]); err != nil {
				return r, fmt.Errorf("the effect of event %s: %w", events[i].Grant.EventID(), err)
			}
			p.Add(events[i].Grant.Seq)
			r.Done++
		}
		r.Next++
	}
	return r, nil
}

// Skip is Sink's.
func (a *Apart) Skip(_ context.Context, event Event) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.position(&event).Add(event.Grant.Seq)
	return nil
}
