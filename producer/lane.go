package producer

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/lua"
)

// lane is where the grabs of one campaign wait for the next call.
type lane struct {
	p    *Producer
	id   string
	keys lua.Keys
	rdb  redis.UniversalClient
	seen atomic.Pointer[info]
	// counters is what the last call was told of shards.GrabCall.Counters: a new call need not ask.
	counters atomic.Pointer[string]

	mu      sync.Mutex
	waiting []*call
	flying  int
}

// info is what the producer has to know of a campaign. It does not change while the campaign is there.
type info struct {
	hold       int64
	factNames  string
	facts      []string
	durability hongbao.Durability
	waitAOF    bool
	codes      bool // its packets have codes
}

// call is one grab that waits for its answer.
type call struct {
	grab   hongbao.Grab // a copy: a caller whose context ends may use his again while the call is under way
	answer hongbao.Answer
	err    error
	done   chan struct{}
}

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// lane finds or opens the campaign's lane; nil if the campaign is not in Redis.
func (p *Producer) lane(ctx context.Context, campaign string) (*lane, error) {
	p.mu.RLock()
	l, closed := p.lanes[campaign], p.closed
	p.mu.RUnlock()
	if closed {
		return nil, hongbao.Errorf(hongbao.Transient, "grab in campaign %s: %w", campaign, ErrClosed)
	}
	if l != nil {
		return l, nil
	}
	l = &lane{p: p, id: campaign, keys: p.cfg.Space.Home(campaign), rdb: p.cfg.Redis}
	if found, err := l.first(ctx); err != nil || !found {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := p.lanes[campaign]; first != nil {
		return first, nil
	}
	p.lanes[campaign] = l
	return l, nil
}

func (l *lane) info() *info { return l.seen.Load() }

// first is the first look. While Redis is away it is repeated, as a call is; nothing is asked for as long as it fails.
func (l *lane) first(ctx context.Context) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.p.cfg.CallTimeout)
	defer cancel()
	err = insist(ctx, func() error {
		found, err = l.look(ctx)
		return err
	})
	if hongbao.IsOutage(err) {
		return false, hongbao.Outagef(hongbao.Transient, "nothing was decided: %w", err)
	}
	return found, err
}

// look reads what the campaign says of itself. It refuses a Redis that can't keep the durability class.
func (l *lane) look(ctx context.Context) (found bool, err error) {
	v, err := l.rdb.HMGet(ctx, l.keys.Campaign(l.id), "user_campaign", "fact_names", "durability", shards.CodesField).Result()
	if err != nil {
		return false, fmt.Errorf("look for campaign %s: %w", l.id, shards.Classify(err))
	}
	hold, ok := v[0].(string)
	if !ok {
		return false, nil
	}
	i := &info{codes: v[3] == "1"}
	if i.hold, err = strconv.ParseInt(hold, 10, 64); err != nil {
		return false, hongbao.Errorf(hongbao.Broken, "campaign %s in Redis: user_campaign: %w", l.id, err)
	}
	i.factNames, _ = v[1].(string)
	if i.factNames != "" {
		i.facts = strings.Split(i.factNames, ",")
	}
	class, _ := v[2].(string)
	i.durability = hongbao.Durability(class)
	if i.durability != hongbao.Fast {
		node, err := l.node(ctx)
		if err != nil {
			return false, err
		}
		servers, err := shards.Inspect(ctx, node)
		if err != nil {
			return false, err
		}
		if err := servers[0].Check(i.durability); err != nil {
			return false, fmt.Errorf("campaign %s: %w", l.id, err)
		}
		i.waitAOF = servers[0].NeedsWaitAOF()
	}
	l.seen.Store(i)
	return true, nil
}

// node is the server that has the campaign now. It is asked anew each time: a cluster moves slots, and fails over.
func (l *lane) node(ctx context.Context) (redis.UniversalClient, error) {
	cluster, ok := l.rdb.(*redis.ClusterClient)
	if !ok {
		return l.rdb, nil
	}
	node, err := cluster.MasterForKey(ctx, l.keys.Meta())
	if err != nil {
		return nil, fmt.Errorf("find the node of campaign %s: %w", l.id, shards.Classify(err))
	}
	return node, nil
}

// send queues the grab and waits for its answer.
func (l *lane) send(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error) {
	if err := l.info().check(g); err != nil {
		return hongbao.Answer{}, err
	}
	c := calls.Get().(*call) //nolint:forcetypeassert // the pool holds nothing else
	c.grab, c.err = *g, nil
	if err := l.queue(c); err != nil {
		return hongbao.Answer{}, err
	}
	ended := ctx.Err
	select {
	case <-c.done:
		return c.end()
	case <-ctx.Done(): // the call is under way and keeps c
	case <-l.p.ctx.Done(): // Close gave up waiting, or had nothing to wait for
		select {
		case <-c.done:
			return c.end()
		default:
			ended = l.p.ctx.Err
		}
	}
	return hongbao.Answer{}, hongbao.Errorf(hongbao.Unknown, "grab in campaign %s, request id %s: no answer yet (it may be granted; "+
		"repeat it with the same request id): %w", l.id, g.RequestID, ended())
}

// end takes the answer and gives c back.
func (c *call) end() (hongbao.Answer, error) {
	answer, err := c.answer, c.err
	c.grab, c.answer = hongbao.Grab{}, hongbao.Answer{}
	calls.Put(c)
	return answer, err
}

// check refuses a grab that lacks a fact that the campaign's limits count by.
func (i *info) check(g *hongbao.Grab) error {
	for _, name := range i.facts {
		if g.Facts[name] == "" {
			return hongbao.Errorf(hongbao.Permanent, "grab in campaign %s without the fact %q: its limits count by %s",
				g.Campaign, name, i.factNames)
		}
	}
	return nil
}

func (l *lane) queue(c *call) error {
	l.p.mu.RLock() // against Close, which waits for the flights
	defer l.p.mu.RUnlock()
	if l.p.closed {
		return hongbao.Errorf(hongbao.Transient, "grab in campaign %s: %w", l.id, ErrClosed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= l.p.cfg.MaxWaiting {
		return hongbao.Errorf(hongbao.Transient, "campaign %s has %d grabs waiting already; nothing happened, try again later",
			l.id, l.p.cfg.MaxWaiting)
	}
	l.waiting = append(l.waiting, c)
	if l.flying < l.p.cfg.InFlight {
		l.flying++
		l.p.flights.Go(l.fly)
	}
	return nil
}

// fly makes calls until nothing waits.
func (l *lane) fly() {
	f := flight{lane: l, batch: make([]*call, 0, shards.MaxGrabs), answers: make([]hongbao.Answer, 0, shards.MaxGrabs)}
	f.req.Campaign, f.req.MaxBacklog = l.id, l.p.cfg.MaxBacklog
	for {
		// The callers that were just answered come back with their next grab: let them queue first, so that the next call
		// is not made for a few of them.
		runtime.Gosched()
		l.mu.Lock()
		n := min(len(l.waiting), shards.MaxGrabs)
		if n == 0 {
			l.flying--
			l.mu.Unlock()
			return
		}
		f.batch = append(f.batch[:0], l.waiting[:n]...)
		rest := copy(l.waiting, l.waiting[n:])
		clear(l.waiting[rest:])
		l.waiting = l.waiting[:rest]
		l.mu.Unlock()
		f.run()
	}
}

// flight is one of the lane's calls in flight; its room is reused from call to call.
type flight struct {
	lane    *lane
	info    *info // what the present call goes by
	batch   []*call
	req     shards.GrabCall
	answers []hongbao.Answer
}

func (f *flight) run() {
	ctx, cancel := context.WithTimeout(f.lane.p.ctx, f.lane.p.cfg.CallTimeout)
	defer cancel()
	f.gather()
	if len(f.batch) == 0 {
		return
	}
	err := f.decide(ctx)
	if err != nil {
		err = fmt.Errorf("grab in campaign %s (repeat it with the same request id): %w", f.lane.id, err)
	}
	for i, c := range f.batch {
		if c.err = err; err == nil {
			c.answer = f.answers[i]
		}
		c.done <- struct{}{}
	}
}

// gather makes the call out of the batch. The campaign may have been replaced since a grab was queued, so each is checked
// again by what the call goes by.
func (f *flight) gather() {
	f.info = f.lane.info()
	f.req.FactNames = f.info.factNames
	if counters := f.lane.counters.Load(); counters != nil {
		f.req.Counters = *counters
	}
	f.req.Grabs = f.req.Grabs[:0]
	fit := f.batch[:0]
	for _, c := range f.batch {
		if c.err = f.info.check(&c.grab); c.err != nil {
			c.done <- struct{}{}
			continue
		}
		f.req.Grabs = append(f.req.Grabs, &c.grab)
		fit = append(fit, c)
	}
	f.batch = fit
}

// timeoutOf is what is left of ctx, for a command that is told its timeout in ms; at least one.
func timeoutOf(ctx context.Context, most time.Duration) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(at))
	}
	return max(most, time.Millisecond)
}
