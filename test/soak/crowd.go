package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/producer"
)

const (
	callers        = 256
	grabsPerPacket = 5
	waves          = 4 // groups of campaigns that are open one after the other
)

// fact is a packet's grant as a caller's answer shows it.
type fact struct {
	user   string
	amount hongbao.Amount
	shard  int
	seq    int64
}

func factOf(g *hongbao.Grant) fact {
	return fact{user: g.User, amount: g.Amount, shard: g.Shard, seq: g.Seq}
}

// raining is one campaign with its callers' history.
type raining struct {
	spec *hongbao.Campaign
	hash string       // of its plan, published before the start
	n    atomic.Int64 // grabs so far

	mu      sync.Mutex
	told    map[int64]fact             // by packet
	granted map[string]hongbao.Receipt // by request id
	trouble []error
}

func newRaining(c *hongbao.Campaign) *raining {
	return &raining{spec: c, told: map[int64]fact{}, granted: map[string]hongbao.Receipt{}}
}

// turn returns the campaign whose turn it is at grab k of total. Two campaigns take turns, on different shards and
// with different limits. The next two begin when these had all their grabs. There are two campaigns a wave, two on
// each shard.
func turn(k, total int64) int64 {
	wave := k * waves / total
	if k%2 == 0 {
		return wave
	}
	return waves + (wave+1)%waves
}

// caller returns the user and the request of grab k of all grabs of a campaign. The first tenth of the grabs is a
// rush of new users for half of the packets. After the rush an eighth of the grabs are new users, for the other half.
// The rest are users of the rush who repeat their requests, as if the replies were lost; some of the first users ask
// for one more. The last tenth are users who come too late. So there are grants during nine tenths of the run.
func caller(k, all int64) (user, request int64) {
	rush := max(1, all/10)
	switch {
	case k < rush || k >= all-rush || k%8 == 0:
		return k, k
	case k%16 == 4:
		return k * spread % max(1, rush/10), k
	default:
		user = k * spread % rush
		return user, user
	}
}

const spread = 7919 // a prime: the callers who repeat are spread over the whole rush

// grab makes the callers grab, at an even rate, until every campaign had five grabs a packet.
func (s *soak) grab(ctx context.Context) error {
	cfg := s.servers.cfg.ProducerConfig()
	cfg.Redis, cfg.Space = s.servers.rdb, s.servers.store.Space()
	p, err := producer.New(cfg)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, c := range s.campaigns {
		total += c.spec.Packets * grabsPerPacket
	}
	var next, grabs atomic.Int64
	begin := time.Now()
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for k := next.Add(1) - 1; k < total && errs[i] == nil; k = next.Add(1) - 1 {
				due := begin.Add(time.Duration(float64(k) / float64(s.rate) * float64(time.Second)))
				if !retry.Pause(ctx, time.Until(due)) {
					errs[i] = ctx.Err()
					return
				}
				var n int64
				n, errs[i] = s.campaigns[turn(k, total)].grab(ctx, p)
				grabs.Add(n)
			}
		})
	}
	wg.Wait()
	s.outcome.Grabs = grabs.Load()
	var trouble []error
	for _, c := range s.campaigns {
		s.outcome.Granted += int64(len(c.told))
		trouble = append(trouble, c.trouble...)
	}
	return errors.Join(errors.Join(errs...), errors.Join(trouble...), p.Close(context.WithoutCancel(ctx)))
}

// grab makes the campaign's next grab. It makes every tenth twice with the same request id. It returns the number of
// grabs.
func (c *raining) grab(ctx context.Context, p *producer.Producer) (n int64, err error) {
	k := c.n.Add(1) - 1
	user, request := caller(k, c.spec.Packets*grabsPerPacket)
	g := hongbao.Grab{
		Campaign: c.spec.ID, User: fmt.Sprintf("u%08d", user), RequestID: fmt.Sprintf("r%d", request),
		Facts: map[string]string{"device": fmt.Sprintf("d%07d", user/2), "channel": "app"},
	}
	times := int64(1)
	if k%10 == 0 {
		times = 2
	}
	for n < times && err == nil {
		n++
		known := c.knows(g.RequestID)
		var a hongbao.Answer
		if a, err = ask(ctx, p, g); err == nil {
			c.note(&g, &a, known)
		}
	}
	return n, err
}

// knows reports whether an answer to a caller granted this request.
func (c *raining) knows(request string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.granted[request]
	return ok
}

// ask repeats a grab with the same request id until it is decided.
func ask(ctx context.Context, p *producer.Producer, g hongbao.Grab) (hongbao.Answer, error) {
	for {
		a, err := p.Grab(ctx, &g)
		if err == nil && a.Outcome.Final() {
			return a, nil
		}
		if class := hongbao.ClassOf(err); err != nil && class != hongbao.ClassTransient && class != hongbao.ClassUnknown ||
			ctx.Err() != nil {
			return a, errors.Join(err, ctx.Err())
		}
	}
}

// left returns the amount that the sponsor gets back, by the callers' history.
func (c *raining) left() hongbao.Amount {
	sum := c.spec.Total
	for _, f := range c.told {
		sum -= f.amount
	}
	return sum
}

// note keeps the answer to a caller, and reports contradictions. A request that was granted before its repeat must be
// granted again, and all grants of one request id must have the same receipt.
func (c *raining) note(g *hongbao.Grab, a *hongbao.Answer, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wrong := func(format string, args ...any) {
		c.trouble = append(c.trouble, fmt.Errorf("request %s of %s in %s: %s", g.RequestID, g.User, g.Campaign,
			fmt.Sprintf(format, args...)))
	}
	switch a.Outcome {
	case hongbao.OutcomeGranted:
		old, ok := c.granted[g.RequestID]
		if ok && old != a.Receipts[0] {
			wrong("granted %v, and when repeated %v", old, a.Receipts[0])
		}
		c.granted[g.RequestID] = a.Receipts[0]
	case hongbao.OutcomeAlreadyGranted, hongbao.OutcomeLimitReached, hongbao.OutcomeSoldOut:
		if known {
			wrong("granted, and when repeated %s", a.Outcome)
		}
	default:
		wrong("unexpected outcome %s", a.Outcome)
	}
	for _, r := range a.Receipts {
		f := fact{user: g.User, amount: r.Amount, shard: r.Shard, seq: r.Seq}
		if old, ok := c.told[r.Packet]; ok && old != f {
			wrong("packet %d was given to %v and to %v", r.Packet, old, f)
		}
		c.told[r.Packet] = f
	}
}
