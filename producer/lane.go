package producer

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/winners"
)

const (
	// unknownFor is how long a missing campaign is not looked for again.
	unknownFor = time.Second
	// maxUnknown bounds how many such campaigns are remembered.
	maxUnknown = 10_000
	// idleFor is how long a campaign's lanes stay without a grab.
	idleFor = time.Minute
)

// campaign has a lane for each place of a campaign. A grab goes from one to another, see internal/base/walk.
type campaign struct {
	p      *Producer
	id     string
	course *walk.Course
	lanes  []*lane

	known winners.Known // the users who certainly lost, once nothing is left; under mu, except Late and Renew

	mu     sync.Mutex // also for the lanes
	memory *walk.Memory
	plan   string // its hash, as the places report it; empty until one has
	filter filterLook
}

// lane is where the grabs at one place of a campaign wait for the next call to its shard.
type lane struct {
	*campaign
	place int
	shard *store.Shard
	seen  atomic.Pointer[info] // nil until the first look
	// terms are those that the last call got: a new call need not ask.
	terms atomic.Pointer[store.Terms]

	// under the campaign's mu
	waiting   []*waiter
	left      int       // waiting grabs whose callers have left
	loops     int       // that send
	calls     int       // under way
	undecided bool      // the last call had an undecided outcome
	used      time.Time // when the last call ended
	alive     time.Time // when an answer last showed that the campaign is there and not over; zero once it is over
	lost      bool      // it vanished while it was alive
}

// info returns the settings that the lane's shard reported, or those of the campaign's home until the lane has asked.
func (l *lane) info() *info {
	if i := l.seen.Load(); i != nil {
		return i
	}
	return l.lanes[0].seen.Load()
}

// campaign finds a campaign, or looks for it once; nil if it is not in Redis. Concurrent callers share one look.
func (p *Producer) campaign(ctx context.Context, id string) (*campaign, error) {
	c := (*p.campaigns.Load())[id]
	if c != nil || p.isUnknown(id) {
		return c, nil
	}
	select {
	case r := <-p.looks.DoChan(id, func() (any, error) { return p.open(id) }):
		c, _ = r.Val.(*campaign) // nil with an error
		return c, r.Err
	case <-ctx.Done():
		return nil, hongbao.Errorf(hongbao.ClassTransient,
			"grab in campaign %s: it was still being looked for; nothing happened: %w", id, ctx.Err())
	}
}

// isUnknown reports whether a campaign was not there a moment ago.
func (p *Producer) isUnknown(campaign string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return time.Now().Before(p.unknown[campaign])
}

// change replaces the map of campaigns; under mu.
func (p *Producer) change(how func(campaigns map[string]*campaign)) {
	campaigns := maps.Clone(*p.campaigns.Load())
	how(campaigns)
	p.campaigns.Store(&campaigns)
}

// withoutCampaign answers a grab for whose campaign there is no lane.
func withoutCampaign(err error) (hongbao.Answer, error) {
	switch {
	case errors.Is(err, store.ErrFrozen):
		return hongbao.Answer{Outcome: hongbao.OutcomeFrozen, Time: time.Now()}, nil
	case err != nil:
		return hongbao.Answer{}, err
	}
	return hongbao.Answer{Outcome: hongbao.OutcomeUnknownCampaign, Time: time.Now()}, nil
}

// open takes the first look at a campaign and makes its lanes; nil if the campaign is not in Redis.
func (p *Producer) open(id string) (*campaign, error) {
	p.mu.RLock()
	if p.closed.Load() {
		p.mu.RUnlock()
		return nil, hongbao.Errorf(hongbao.ClassTransient, "grab in campaign %s: %w", id, ErrClosed)
	}
	p.sending.Add(1)
	p.mu.RUnlock()
	defer p.sending.Done()
	c := &campaign{p: p, id: id}
	c.addLanes(p.store.Home(id))
	found, err := c.firstLook()
	if err != nil {
		return nil, err
	}
	if found {
		c.layCourse()
	}
	p.startWatch()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(time.Now())
	if !found {
		p.noteUnknown(id)
		return nil, nil
	}
	if other := (*p.campaigns.Load())[id]; other != nil { // from a look that ended just now
		return other, nil
	}
	p.change(func(campaigns map[string]*campaign) { campaigns[id] = c })
	return c, nil
}

// firstLook looks at the campaign's home. While the shard is frozen it looks again, up to UndecidedTimeout: all callers of
// the campaign wait for this one look.
func (c *campaign) firstLook() (found bool, err error) {
	for until := time.Now().Add(c.p.cfg.UndecidedTimeout); ; {
		found, err = c.lanes[0].first(c.p.ctx)
		pause := undecidedPause()
		if !errors.Is(err, store.ErrFrozen) || time.Now().Add(pause).After(until) || !retry.Pause(c.p.ctx, pause) {
			return found, err
		}
	}
}

// layCourse adds the lanes of the other places that the campaign's home names.
func (c *campaign) layCourse() {
	i := c.lanes[0].info()
	if i.places > 1 {
		c.addLanes(c.p.store.Places(c.id, i.places)[1:]...)
	}
	c.course, c.memory = walk.NewCourse(c.id, i.places, i.hold), walk.NewMemory(i.places)
}

func (c *campaign) addLanes(places ...*store.Shard) {
	for _, k := range places {
		c.lanes = append(c.lanes, &lane{campaign: c, place: len(c.lanes), shard: k, used: time.Now()})
	}
}

// learn keeps the present terms of a place. If another campaign has taken the id, nothing that is known of the old one
// stays.
func (l *lane) learn(terms *store.Terms) {
	l.terms.Store(terms)
	plan, _, _ := strings.Cut(terms.Revision(), ".")
	c := l.campaign
	c.mu.Lock()
	replaced := c.plan != "" && c.plan != plan
	c.plan = plan
	c.known.End(time.Now()) // a newer generation may have been announced
	if replaced {
		c.memory = walk.NewMemory(len(c.lanes))
	}
	c.mu.Unlock()
	if replaced || terms.Places() != len(c.lanes) {
		c.p.drop(c) // the next grab looks at it again
	}
}

// noteUnknown remembers for a moment that a campaign is not there; under mu.
func (p *Producer) noteUnknown(campaign string) {
	if len(p.unknown) >= maxUnknown {
		clear(p.unknown)
	}
	p.unknown[strings.Clone(campaign)] = time.Now().Add(unknownFor)
}

// sweep removes the campaigns that were idle for long; under mu. A caller that already has one finishes there.
func (p *Producer) sweep(now time.Time) {
	for id, c := range *p.campaigns.Load() {
		if c.idle(now) {
			p.change(func(campaigns map[string]*campaign) { delete(campaigns, id) })
		}
	}
}

func (c *campaign) idle(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lanes {
		if l.loops > 0 || len(l.waiting) > 0 || now.Sub(l.used) <= idleFor {
			return false
		}
	}
	return true
}

// drop removes a campaign, so that the next grab looks at it again.
func (p *Producer) drop(c *campaign) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if (*p.campaigns.Load())[c.id] == c {
		p.change(func(campaigns map[string]*campaign) { delete(campaigns, c.id) })
	}
}

// gone removes a campaign that is not at the lane's place. Only the campaign's home can say that it is nowhere:
// another place may not have it yet, or have lost it.
func (l *lane) gone() {
	l.mu.Lock()
	l.known.End(time.Now())
	l.mu.Unlock()
	l.p.drop(l.campaign)
	if l.place == 0 {
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		l.p.noteUnknown(l.id)
	}
}
