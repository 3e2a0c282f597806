package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/producer"
)

const (
	callers        = 256
	grabsPerPacket = 5
)

// fact is what the callers were told of one packet.
type fact struct {
	user   string
	amount hongbao.Amount
	shard  int
	seq    int64
}

func factOf(g *hongbao.Grant) fact {
	return fact{user: g.User, amount: g.Amount, shard: g.Shard, seq: g.Seq}
}

// raining is one campaign with the callers' own history of it.
type raining struct {
	spec *hongbao.Campaign
	hash string       // of its plan, as it was published before the start
	n    atomic.Int64 // grabs so far

	mu      sync.Mutex
	told    map[int64]fact // by packet
	trouble []error
}

func newRaining(c *hongbao.Campaign) *raining {
	return &raining{spec: c, told: map[int64]fact{}}
}

// grab lets the callers grab, at an even rate, until every campaign had its five grabs a packet.
func (s *soak) grab(ctx context.Context) error {
	cfg := s.servers.cfg.ProducerConfig()
	cfg.Redis, cfg.Space = s.servers.rdb, s.servers.space
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
				if !until(ctx, due) {
					errs[i] = ctx.Err()
					return
				}
				var n int64
				n, errs[i] = s.campaigns[k%int64(len(s.campaigns))].grab(ctx, p)
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

func until(ctx context.Context, at time.Time) bool {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// grab makes the campaign's next grab; every tenth is made twice with the same request id, and must get the same answer
// if it was granted. It returns how many grabs it made.
func (c *raining) grab(ctx context.Context, p *producer.Producer) (int64, error) {
	k := c.n.Add(1) - 1
	// Of the five grabs for each packet four are by users of their own, and the fifth by a user who was there before.
	u := k
	if k%grabsPerPacket == 4 && k >= 50 {
		u = k - 47
	}
	g := hongbao.Grab{
		Campaign: c.spec.ID, User: fmt.Sprintf("u%08d", u), RequestID: fmt.Sprintf("r%d", k),
		Facts: map[string]string{"device": fmt.Sprintf("d%07d", u/2), "channel": "app"},
	}
	a, err := ask(ctx, p, g)
	if err != nil {
		return 1, err
	}
	c.note(&g, &a)
	if k%10 != 0 {
		return 1, nil
	}
	again, err := ask(ctx, p, g)
	if err != nil {
		return 2, err
	}
	if a.Outcome == hongbao.Granted && (again.Outcome != hongbao.Granted || again.Receipts[0] != a.Receipts[0]) {
		return 2, fmt.Errorf("request %s of %s in %s: granted packet %d, and when repeated: %s", g.RequestID, g.User, g.Campaign,
			a.Receipts[0].Packet, again.Outcome)
	}
	c.note(&g, &again)
	return 2, nil
}

// ask repeats a grab with the same request id until it is decided.
func ask(ctx context.Context, p *producer.Producer, g hongbao.Grab) (hongbao.Answer, error) {
	for {
		a, err := p.Grab(ctx, &g)
		if err == nil && a.Outcome.Final() {
			return a, nil
		}
		if class := hongbao.ClassOf(err); err != nil && class != hongbao.Transient && class != hongbao.Unknown || ctx.Err() != nil {
			return a, errors.Join(err, ctx.Err())
		}
	}
}

// left is what the callers' history leaves to the sponsor.
func (c *raining) left() hongbao.Amount {
	sum := c.spec.Total
	for _, f := range c.told {
		sum -= f.amount
	}
	return sum
}

// note keeps what a caller was told, and looks for what can't be true at once.
func (c *raining) note(g *hongbao.Grab, a *hongbao.Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch a.Outcome {
	case hongbao.Granted, hongbao.AlreadyGranted, hongbao.LimitReached, hongbao.SoldOut:
	default:
		c.trouble = append(c.trouble, fmt.Errorf("request %s of %s in %s: unexpected outcome %s", g.RequestID, g.User, g.Campaign, a.Outcome))
	}
	for _, r := range a.Receipts {
		f := fact{user: g.User, amount: r.Amount, shard: r.Shard, seq: r.Seq}
		if old, ok := c.told[r.Packet]; ok && old != f {
			c.trouble = append(c.trouble, fmt.Errorf("packet %d of %s was given to %v and to %v", r.Packet, g.Campaign, old, f))
		}
		c.told[r.Packet] = f
	}
}
