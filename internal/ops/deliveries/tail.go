package deliveries

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/topic"
)

// Tailed is a grant in the topic.
type Tailed struct {
	Partition int            `json:"partition"`
	Offset    int64          `json:"offset"`
	Event     string         `json:"event"`
	Campaign  string         `json:"campaign"`
	Packet    int64          `json:"packet"`
	User      string         `json:"user"`
	Amount    hongbao.Amount `json:"amount"`
	Currency  string         `json:"currency,omitempty"`
	Time      time.Time      `json:"time"`
	RequestID string         `json:"request_id,omitempty"`
	Code      string         `json:"code,omitempty"`
}

// Tail selects grants of the topic.
type Tail struct {
	// Campaigns selects the grants of these campaigns; if it is empty, of all campaigns.
	Campaigns []string
	// Follow waits for new grants, until ctx ends.
	Follow bool
	// Since selects grants that were sent at this time or later; the zero time selects all.
	Since time.Time
	// Last is how many of the last grants to show first; -1 for all.
	Last int
	// Says gets what a person should know besides the grants: a campaign without any, or that Kafka can't be read.
	Says func(text string)
}

// Tail sends the topic's grants to lines. It does not use Redis.
func (a Deliveries) Tail(ctx context.Context, o Tail, lines chan<- Tailed) error {
	topic, err := a.app.OpenTopic(ctx)
	if err != nil {
		return err
	}
	defer topic.Close()
	t := tailing{Tail: o, topic: topic, printed: make([]int64, a.app.Config.Publisher.Partitions), seen: map[string]bool{}}
	return t.scan(ctx, lines)
}

// tailing is one run of Tail.
type tailing struct {
	Tail
	topic   *publish.Log
	printed []int64 // per partition, the offset after the last printed grant

	mu   sync.Mutex
	seen map[string]bool // the campaigns of all grants that were read
	few  bool            // the topic has fewer grants than Last
}

// scan sends the selected grants to lines. With Follow it continues until ctx ends, even while the brokers are down.
func (t *tailing) scan(ctx context.Context, lines chan<- Tailed) error {
	var from []int64
	down := false
	for {
		next, err := t.turn(ctx, from, lines)
		if err == nil && from == nil && (t.Last < 0 || t.few) {
			t.sayMissing()
		}
		switch {
		case !t.Follow:
			return err
		case ctx.Err() != nil:
			return nil // Stopped by ctx, as requested
		case err == nil:
			from = next
			if down {
				t.Says("the topic can be read again")
			}
			down = false
		case !hongbao.IsOutage(err):
			return err
		case !down:
			t.Says(fmt.Sprintf("the topic can't be read: %v; tail waits and continues by itself", err))
			down = true
		}
		if !retry.Pause(ctx, 200*time.Millisecond) {
			return nil
		}
	}
}

// sayMissing names the selected campaigns of which the topic has no grant.
func (t *tailing) sayMissing() {
	others := slices.Sorted(maps.Keys(t.seen))
	for _, id := range t.Campaigns {
		if !t.seen[id] {
			t.Says(fmt.Sprintf("there is no grant of campaign %s here%s (`hongbao campaign list` shows the campaigns)", id,
				knob.Hint(id, others)))
		}
	}
}

// turn sends the selected grants from the given offsets on to lines. It returns the offsets for the next turn. For the
// first turn, from is nil.
func (t *tailing) turn(ctx context.Context, from []int64, lines chan<- Tailed) ([]int64, error) {
	if from == nil && t.Last >= 0 {
		return t.lastOnes(ctx, lines)
	}
	if from == nil && !t.Since.IsZero() {
		var err error
		if from, _, err = t.topic.Offsets(ctx, t.Since); err != nil {
			return nil, err
		}
	}
	return t.read(ctx, from, func(l *Tailed) {
		if l.Offset >= t.printed[l.Partition] { // smaller if it was printed before an error ended the last turn
			t.printed[l.Partition] = l.Offset + 1
			lines <- *l
		}
	})
}

// read calls fn for the grants of the selected campaigns, in one goroutine per partition.
func (t *tailing) read(ctx context.Context, from []int64, fn func(l *Tailed)) ([]int64, error) {
	r, err := t.topic.Scan(ctx, from, func(at publish.Position, e topic.Event) error {
		t.mu.Lock()
		t.seen[e.Grant.Campaign] = true
		t.mu.Unlock()
		if g := &e.Grant; len(t.Campaigns) == 0 || slices.Contains(t.Campaigns, g.Campaign) {
			fn(&Tailed{at.Partition, at.Offset, g.EventID(), g.Campaign, g.Packet, g.User, g.Amount, g.Currency, g.Time.UTC(),
				g.RequestID, g.Code})
		}
		return nil
	})
	return r.Next, err
}

// lastOnes sends the last grants of all partitions to lines, in chronological order. Kafka can only be read forward. So
// lastOnes reads each partition repeatedly, from earlier and earlier offsets, until it has enough grants or starts at
// the beginning.
func (t *tailing) lastOnes(ctx context.Context, lines chan<- Tailed) ([]int64, error) {
	start, next, err := t.topic.Offsets(ctx, t.Since)
	if err != nil {
		return nil, err
	}
	end, at, kept := next, slices.Clone(next), make([][]Tailed, len(next))
	for back := int64(t.Last); ; back *= 4 {
		from, short := slices.Clone(next), false
		for i := range at {
			if len(kept[i]) < t.Last && at[i] > start[i] {
				at[i] = max(start[i], end[i]-back)
				from[i], kept[i], short = at[i], nil, true
			}
		}
		if !short {
			break
		}
		if next, err = t.read(ctx, from, func(l *Tailed) {
			k := append(kept[l.Partition], *l)
			kept[l.Partition] = k[max(len(k)-t.Last, 0):]
		}); err != nil {
			return nil, err
		}
	}
	all := slices.Concat(kept...)
	slices.SortStableFunc(all, func(a, b Tailed) int { return a.Time.Compare(b.Time) })
	t.few = len(all) < t.Last
	for _, l := range all[max(len(all)-t.Last, 0):] {
		lines <- l
	}
	return next, nil
}
