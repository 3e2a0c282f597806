package campaign

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/knob"
)

// PlansConfig says where Plans gets its campaigns and how many packets it holds.
type PlansConfig struct {
	// Source finds a campaign's specification and seed. Many may call it at once. Required.
	Source func(ctx context.Context, campaign string) (hongbao.Campaign, Seed, error)
	// Packets of all plans that a settler holds in memory, 8 bytes each.
	//
	// Any plan fits. One more plan may exist while it is made.
	MaxPackets int64 `knob:"campaign.cached_packets" default:"20000000" want:"10_000_000 to 10_000_000_000 packets"`
}

// Plans keeps the plans that were used last in memory. Many may use it at once.
type Plans struct {
	source func(context.Context, string) (hongbao.Campaign, Seed, error)
	most   int64
	making chan struct{} // holds one: plans are made one at a time, which bounds their memory

	mu      sync.Mutex
	held    map[string]*list.Element // of *heldPlan
	recent  *list.List               // most recently used first
	packets int64                    // of all that is held
	calls   map[string]*call
}

type heldPlan struct {
	campaign string
	plan     *Plan
}

// call makes a plan that several may wait for. plan, err and again are set before done is closed.
type call struct {
	done  chan struct{}
	plan  *Plan
	err   error
	again bool // whoever made it was called off: those who waited do it themselves
}

// NewPlans makes an empty Plans. Its error names all that is wrong with the configuration.
func NewPlans(config PlansConfig) (*Plans, error) {
	errs := knob.Check(&config)
	if config.Source == nil {
		errs = append(errs, errors.New("Source is nil: give the function that finds a campaign and its seed"))
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

// Amount is what a packet of a campaign holds by its plan; false if the campaign has no such packet. Callers who ask
// for the same campaign at once share one call of the source. Errors are the source's, wrapped, and are not kept: the
// next call asks again.
func (p *Plans) Amount(ctx context.Context, campaign string, packet int64) (hongbao.Amount, bool, error) {
	for {
		plan, f, mine := p.find(campaign)
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
		return amount, ok, nil
	}
}

// find gives the plan if it is held, else the call that makes it; mine if the caller has to run it.
func (p *Plans) find(campaign string) (plan *Plan, f *call, mine bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.held[campaign]; e != nil {
		p.recent.MoveToFront(e)
		return e.Value.(*heldPlan).plan, nil, false //nolint:forcetypeassert // the list holds nothing else
	}
	if f = p.calls[campaign]; f != nil {
		return nil, f, false
	}
	f = &call{done: make(chan struct{}), again: true}
	p.calls[campaign] = f
	return nil, f, true
}

// run makes the plan and ends the call, even if the source panics.
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
	f.plan, f.err = p.make(ctx, campaign)
	f.again = f.err != nil && ctx.Err() != nil
}

func (p *Plans) make(ctx context.Context, campaign string) (*Plan, error) {
	c, seed, err := p.source(ctx, campaign)
	if err != nil {
		return nil, fmt.Errorf("finding the plan of campaign %.80q: %w", campaign, err)
	}
	if c.ID != campaign {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "asked for campaign %.80q, the source gave %.80q", campaign, c.ID)
	}
	select {
	case p.making <- struct{}{}:
		defer func() { <-p.making }()
	case <-ctx.Done():
		return nil, hongbao.Errorf(hongbao.ClassTransient, "waiting to make the plan of campaign %.80q: %w", campaign,
			ctx.Err())
	}
	plan, err := NewPlan(c, seed)
	if err != nil {
		return nil, fmt.Errorf("making the plan of campaign %.80q: %w", campaign, err)
	}
	return plan, nil
}

// hold keeps a plan and lets go of those that were used longest ago. p.mu is held.
func (p *Plans) hold(campaign string, plan *Plan) {
	p.held[campaign] = p.recent.PushFront(&heldPlan{campaign, plan})
	p.packets += int64(len(plan.Amounts))
	for p.packets > p.most {
		last := p.recent.Remove(p.recent.Back()).(*heldPlan) //nolint:forcetypeassert // the list holds nothing else
		delete(p.held, last.campaign)
		p.packets -= int64(len(last.plan.Amounts))
	}
}
