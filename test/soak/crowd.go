package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
	"github.com/hongbao-project/hongbao/producer"
)

const (
	callers        = 256
	grabsPerPacket = 5
	waves          = 4 // groups of campaigns that run one after the other
)

// fact has the fields of a grant that an answer contains.
type fact struct {
	user   string
	amount hongbao.Amount
	shard  int
	seq    int64
}

func factOf(g *hongbao.Grant) fact {
	return fact{user: g.User, amount: g.Amount, shard: g.Shard, seq: g.Seq}
}

// raining is a campaign, and the history of answers to its callers.
type raining struct {
	spec *hongbao.Campaign
	hash string       // plan hash, published before the start
	n    atomic.Int64 // grabs so far

	mu        sync.Mutex
	announced map[int64]fact             // by packet
	granted   map[string]hongbao.Receipt // by request id
	trouble   []error
}

func newRaining(c *hongbao.Campaign) *raining {
	return &raining{spec: c, announced: map[int64]fact{}, granted: map[string]hongbao.Receipt{}}
}

// turn returns the number of the campaign of grab k of total. Two campaigns alternate; they are on different shards and
// have different limits. After all their grabs, the next two campaigns begin. There are four such waves, and each shard
// has two campaigns.
func turn(k, total int64) int64 {
	wave := k * waves / total
	if k%2 == 0 {
		return wave
	}
	return waves + (wave+1)%waves
}

// caller returns the user and the request of grab k of a campaign, which gets all grabs. In the first tenth, new users
// grab half of the packets. Later, an eighth of the grabs come from new users, who get the other half. The rest come
// from users of the first tenth: most repeat their request, as after a lost reply, and some ask for another packet. In
// the last tenth, all grabs come from new users, who come too late. So packets are granted in nine tenths of the run.
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

const spread = 7919 // a prime, so that repeating callers are spread over the first tenth

// grab lets the callers grab at an even rate, until each campaign has had five grabs for each packet.
func (s *soak) grab(ctx context.Context) error {
	cfg := s.servers.cfg.Producer
	cfg.Deployment = deployment.Of(s.servers.store, zap.NewNop())
	p, err := producer.New(cfg)
	if err != nil {
		return err
	}
	total := 0
	for _, c := range s.campaigns {
		total += int(c.spec.Packets) * grabsPerPacket
	}
	users := crowd.New(p.Grab, s.say)
	_, err = crowd.Load{Callers: callers, Calls: total, Rate: s.rate}.Run(ctx, func(ctx context.Context, _, k int) error {
		return s.campaigns[turn(int64(k), int64(total))].grab(ctx, users)
	})
	for _, n := range users.Outcomes {
		s.outcome.Grabs += n
	}
	for _, c := range s.campaigns {
		s.outcome.Granted += int64(len(c.announced))
		err = errors.Join(err, errors.Join(c.trouble...))
	}
	return errors.Join(err, p.Close(context.WithoutCancel(ctx)))
}

// grab sends the next grab of the campaign. It sends every tenth grab twice, with the same request id.
func (c *raining) grab(ctx context.Context, users *crowd.Crowd) error {
	k := c.n.Add(1) - 1
	user, request := caller(k, c.spec.Packets*grabsPerPacket)
	g := hongbao.Grab{
		Campaign: c.spec.ID, User: fmt.Sprintf("u%08d", user), RequestID: fmt.Sprintf("r%d", request),
		Facts: map[string]string{"device": fmt.Sprintf("d%07d", user/2), "channel": "app"},
	}
	times := 1
	if k%10 == 0 {
		times = 2
	}
	for range times {
		known := c.knows(g.RequestID)
		a, err := users.Grab(ctx, g)
		if err != nil {
			return err
		}
		c.note(&g, &a, known)
	}
	return nil
}

// knows reports whether a caller was told that this request was granted.
func (c *raining) knows(request string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.granted[request]
	return ok
}

// left returns the amount that the sponsor must get back, according to the callers' history.
func (c *raining) left() hongbao.Amount {
	sum := c.spec.Total
	for _, f := range c.announced {
		sum -= f.amount
	}
	return sum
}

// note records an answer, and reports contradictions. A repeat of a granted request must be granted again, with the
// same receipt.
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
		if old, ok := c.announced[r.Packet]; ok && old != f {
			wrong("packet %d was given to %v and to %v", r.Packet, old, f)
		}
		c.announced[r.Packet] = f
	}
}
