package campaign

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// PlansConfig configures Plans.
type PlansConfig struct {
	// Source returns a campaign's specification and seed, and its top-ups with their seeds in the order of the
	// generations. Plans calls it when it makes a plan, and again when a caller asks for a packet that the plan lacks. It
	// must be safe for concurrent use. settlement.Ledger.Plan is one. Required.
	Source func(ctx context.Context, campaign string) (hongbao.Campaign, Seed, []TopUp, error)
	// The most packets in the plans that a settler keeps in memory. Each packet takes 8 bytes.
	//
	// Any plan fits. A plan that is being made is not counted; only one is made at a time.
	MaxPackets int64 `knob:"campaign.cached_packets" default:"20000000" want:"10_000_000 to 10_000_000_000 packets"`
}

// Plans is a cache of the most recently used plans. It is safe for concurrent use.
type Plans struct {
	source func(context.Context, string) (hongbao.Campaign, Seed, []TopUp, error)
	most   int64
	making chan struct{} // a semaphore: only one plan is made at a time, to limit memory

	mu      sync.Mutex
	held    map[string]*list.Element // of *heldPlan
	recent  *list.List               // most recently used first
	packets int64                    // of all cached plans
	calls   map[string]*call
}

type heldPlan struct {
	campaign string
	plan     *Plan
}

// call makes a plan; several callers may wait for it. plan, err and again are set before done is closed.
type call struct {
	done  chan struct{}
	plan  *Plan
	short *Plan // the cached plan, which lacks the newest top-ups; may be nil
	err   error
	again bool // the caller that made the plan was cancelled, so the other callers must try again
}

// NewPlans returns an empty Plans, or an error that names every problem of the configuration.
func NewPlans(config PlansConfig) (*Plans, error) {
	errs := knob.Check(&config)
	if config.Source == nil {
		errs = append(errs, errors.New("Source is nil: set the function that returns a campaign and its seed"))
	}
	if len(errs) > 0 {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "plans can't be kept: %w", errors.Join(errs...))
	}
	return &Plans{
		source: config.Source,
		most:   config.MaxPackets,
		making: make(chan struct{}, 1),
		held:   make(map[string]*list.Element),
		recent: list.New(),
		calls:  make(map[string]*call),
	}, nil
}

// Amount returns the planned amount of a packet, and false if the campaign has no such packet. Concurrent callers for
// the same campaign share one call of Source. Amount wraps errors of Source and does not cache them, so the next call
// asks Source again.
func (p *Plans) Amount(ctx context.Context, campaign string, packet int64) (hongbao.Amount, bool, error) {
	for joined := false; ; {
		plan, f, mine := p.find(campaign, packet)
		switch {
		case mine:
			p.run(ctx, campaign, f)
		case f != nil:
			select {
			case <-f.done:
			case <-ctx.Done():
				return 0, false, hongbao.Errorf(hongbao.ClassTransient, "waiting for the plan of campaign %.80q: %w", campaign,
					ctx.Err())
			}
			if f.again {
				continue
			}
		}
		if f != nil {
			if f.err != nil {
				return 0, false, f.err
			}
			plan = f.plan
		}
		amount, ok := plan.Amount(packet)
		if !ok && f != nil && !mine && !joined {
			joined = true // that call may have read the top-ups before this packet was added
			continue
		}
		return amount, ok, nil
	}
}

// find returns the cached plan if it may have the packet. Otherwise it returns the call that makes the plan, and mine
// is true if the caller must run that call.
func (p *Plans) find(campaign string, packet int64) (plan *Plan, f *call, mine bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.held[campaign]; e != nil {
		p.recent.MoveToFront(e)
		plan = e.Value.(*heldPlan).plan //nolint:forcetypeassert // the list contains nothing else
		if packet <= int64(len(plan.Amounts)) {
			return plan, nil, false
		}
	}
	if f = p.calls[campaign]; f != nil {
		return nil, f, false
	}
	f = &call{done: make(chan struct{}), again: true, short: plan}
	p.calls[campaign] = f
	return nil, f, true
}

// run makes the plan and ends the call, even if Source panics.
func (p *Plans) run(ctx context.Context, campaign string, f *call) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.calls, campaign)
		if f.plan != nil {
			p.hold(campaign, f.plan)
		}
		close(f.done)
	}()
	f.plan, f.err = p.make(ctx, campaign, f.short)
	f.again = f.err != nil && ctx.Err() != nil
}

// make makes the plan of a campaign. If short is not nil, it draws only the packets that short lacks.
func (p *Plans) make(ctx context.Context, campaign string, short *Plan) (*Plan, error) {
	c, seed, added, err := p.source(ctx, campaign)
	if err != nil {
		return nil, fmt.Errorf("finding the plan of campaign %.80q: %w", campaign, err)
	}
	if c.ID != campaign {
		return nil, hongbao.Errorf(hongbao.ClassBroken,
			"the source was asked for campaign %.80q, but returned campaign %.80q", campaign, c.ID)
	}
	select {
	case p.making <- struct{}{}:
		defer func() { <-p.making }()
	case <-ctx.Done():
		return nil, hongbao.Errorf(hongbao.ClassTransient, "waiting to make the plan of campaign %.80q: %w", campaign,
			ctx.Err())
	}
	plan := short
	if plan == nil {
		plan, err = NewPlan(c, seed, added...)
	} else {
		plan, err = plan.with(c, added)
	}
	if err != nil {
		return nil, fmt.Errorf("making the plan of campaign %.80q: %w", campaign, err)
	}
	return plan, nil
}

// hold adds a plan to the cache, and drops the least recently used plans if there are too many packets. The caller
// holds p.mu.
func (p *Plans) hold(campaign string, plan *Plan) {
	if short := p.held[campaign]; short != nil {
		p.drop(short)
	}
	p.held[campaign] = p.recent.PushFront(&heldPlan{campaign, plan})
	p.packets += int64(len(plan.Amounts))
	for p.packets > p.most {
		p.drop(p.recent.Back())
	}
}

// drop removes a plan from the cache. The caller holds p.mu.
func (p *Plans) drop(e *list.Element) {
	h := p.recent.Remove(e).(*heldPlan) //nolint:forcetypeassert // the list contains nothing else
	delete(p.held, h.campaign)
	p.packets -= int64(len(h.plan.Amounts))
}
