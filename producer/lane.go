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
	// unknownFor is how long the producer remembers that a campaign does not exist.
	unknownFor = time.Second
	// maxUnknown limits how many missing campaigns the producer remembers.
	maxUnknown = 10_000
	// idleFor is how long a campaign stays in memory without a grab.
	idleFor = time.Minute
)

// campaign has one lane per place of a campaign. A grab may pass from lane to lane, see internal/base/walk.
type campaign struct {
	p      *Producer
	id     string
	course *walk.Course
	lanes  []*lane

	known winners.SoldOutCache // which users certainly lost, once all places are empty; guarded by mu, except CertainlySoldOut and Renew

	mu     sync.Mutex // guards the lanes too
	memory *walk.Memory
	plan   string // the hash of the plan, as the places report it; empty before the first report
	filter filterSearch
}

// lane is the queue of the grabs that wait at one place of a campaign for the next call to its shard.
type lane struct {
	*campaign
	place int
	shard store.Place
	seen  atomic.Pointer[info] // nil until the first look
	// terms are those of the last call. The next call sends them, so the script need not return them again.
	terms atomic.Pointer[store.LimitPeriods]

	// The campaign's mu guards the fields below.
	waiting   []*waiter
	left      int       // number of waiting grabs whose callers have left
	loops     int       // running send loops
	calls     int       // calls in flight
	undecided bool      // the last call had an undecided outcome
	down      error     // the error of the last call, if it was an outage
	worked    time.Time // when the newest call began that was no outage
	watched   bool      // watchQueue runs
	slow      bool      // grabs have waited for long
	used      time.Time // when the last call ended
	alive     time.Time // when an answer last showed that the campaign exists and has not ended; zero after its end
	lost      bool      // the campaign vanished before its end
}

// info returns the settings that this place reported. Before the first report it returns the settings of the
// campaign's home.
func (l *lane) info() *info {
	if i := l.seen.Load(); i != nil {
		return i
	}
	return l.lanes[0].seen.Load()
}

// campaign returns a campaign, and looks it up in Redis if it is new. It returns nil if Redis does not have it.
// Concurrent callers share one lookup.
func (p *Producer) campaign(ctx context.Context, id string) (*campaign, error) {
	c, known := p.recall(id)
	if known {
		return c, nil
	}
	late := time.NewTimer(p.cfg.QueueTimeout + p.cfg.UndecidedTimeout) // the shard may be frozen
	defer late.Stop()
	select {
	case r := <-p.looks.DoChan(id, func() (any, error) { return p.open(id) }):
		c, _ = r.Val.(*campaign) // nil with an error
		return c, r.Err
	case <-late.C:
		return nil, hongbao.Outagef(hongbao.ClassTransient,
			"grab in campaign %s: Redis has not answered the lookup of the campaign yet; this try did nothing", id)
	case <-ctx.Done():
		return nil, hongbao.Errorf(hongbao.ClassTransient,
			"grab in campaign %s: the lookup of the campaign was not finished; this try did nothing: %w", id, ctx.Err())
	}
}

// recall returns a campaign that was looked up before, nil if a recent lookup did not find it. known is false if the
// campaign must be looked up.
func (p *Producer) recall(id string) (c *campaign, known bool) {
	if c = (*p.campaigns.Load())[id]; c != nil {
		return c, true
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return nil, time.Now().Before(p.unknown[id])
}

// change replaces the map of campaigns with a changed copy. The caller holds mu.
func (p *Producer) change(how func(campaigns map[string]*campaign)) {
	campaigns := maps.Clone(*p.campaigns.Load())
	how(campaigns)
	p.campaigns.Store(&campaigns)
}

// withoutCampaign returns the answer to a grab whose campaign was not found.
func withoutCampaign(err error) (hongbao.Answer, error) {
	switch {
	case errors.Is(err, store.ErrFrozen):
		return hongbao.Answer{Outcome: hongbao.OutcomeFrozen, Time: time.Now()}, nil
	case err != nil:
		return hongbao.Answer{}, err
	}
	return hongbao.Answer{Outcome: hongbao.OutcomeUnknownCampaign, Time: time.Now()}, nil
}

// open looks a campaign up in Redis and creates its lanes. It returns nil if the campaign does not exist. Calls for one
// campaign do not overlap. An earlier call may have ended right before this one began; then this one looks nothing up.
func (p *Producer) open(id string) (*campaign, error) {
	if c, known := p.recall(id); known {
		return c, nil
	}
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
	p.Watch()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(time.Now())
	if !found {
		p.noteUnknown(id)
		return nil, nil
	}
	p.change(func(campaigns map[string]*campaign) { campaigns[id] = c })
	return c, nil
}

// firstLook looks the campaign up on its home. It retries for up to UndecidedTimeout while the shard is frozen,
// because all callers wait for this lookup.
func (c *campaign) firstLook() (found bool, err error) {
	for until := time.Now().Add(c.p.cfg.UndecidedTimeout); ; {
		found, err = c.lanes[0].first(c.p.ctx)
		pause := undecidedPause()
		if !errors.Is(err, store.ErrFrozen) || time.Now().Add(pause).After(until) || !retry.Pause(c.p.ctx, pause) {
			return found, err
		}
	}
}

// layCourse adds a lane for each further place of the campaign.
func (c *campaign) layCourse() {
	i := c.lanes[0].info()
	if i.Places > 1 {
		c.addLanes(c.p.store.Places(c.id, i.Places)[1:]...)
	}
	c.course, c.memory = walk.NewCourse(c.id, i.Places, i.PerUser), walk.NewMemory(i.Places)
}

func (c *campaign) addLanes(places ...store.Place) {
	for _, k := range places {
		c.lanes = append(c.lanes, &lane{campaign: c, place: len(c.lanes), shard: k, used: time.Now()})
	}
}

// learn stores the current terms of a place. If the id belongs to another campaign now, learn discards what is known
// about the old campaign.
func (l *lane) learn(terms *store.LimitPeriods) {
	l.terms.Store(terms)
	plan, _, _ := strings.Cut(terms.Revision(), ".")
	c := l.campaign
	c.mu.Lock()
	replaced := c.plan != "" && c.plan != plan
	c.plan = plan
	c.known.End(time.Now()) // the terms may announce a new generation
	if replaced {
		c.memory = walk.NewMemory(len(c.lanes))
	}
	c.mu.Unlock()
	if replaced || terms.Places() != len(c.lanes) {
		c.p.drop(c) // so that the next grab looks it up again
	}
}

// noteUnknown remembers for unknownFor that a campaign does not exist. The caller holds mu.
func (p *Producer) noteUnknown(campaign string) {
	if len(p.unknown) >= maxUnknown {
		clear(p.unknown)
	}
	p.unknown[strings.Clone(campaign)] = time.Now().Add(unknownFor)
}

// sweep removes idle campaigns. A caller that already has such a campaign can still use it. The caller holds mu.
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

// drop removes a campaign, so that the next grab looks it up again.
func (p *Producer) drop(c *campaign) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if (*p.campaigns.Load())[c.id] == c {
		p.change(func(campaigns map[string]*campaign) { delete(campaigns, c.id) })
	}
}

// dropMissing removes a campaign that the lane's place does not have. Only the campaign's home proves that the campaign
// does not exist: another place may have lost it, or may not have it yet.
func (l *lane) dropMissing() {
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
