package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	public "github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
	"github.com/hongbao-project/hongbao/subscriber"
	"github.com/hongbao-project/hongbao/topic"
)

// audience are users who grab all the time, through two producers and through those that join starts. It records each
// answer. Half of the grabs are repeats.
type audience struct {
	t         *testing.T
	campaigns []string // in which users grab from the start
	producers []*producer.Producer
	logs      []*observer.ObservedLogs
	join      func() // starts another producer, with no state
	stop      func()

	mu       sync.Mutex
	open     []string // campaigns in which new users grab
	users    []visit
	receipts map[visit]hongbao.Receipt
	packets  map[string]visit // by packet: the user to whom it was announced
	frozen   int
	wrong    []string
}

// visit identifies a user in a campaign.
type visit struct{ campaign, user string }

// eventAt identifies an event by its shard and its number.
type eventAt struct {
	shard int
	seq   int64
}

func grantText(campaign string, packet int64, user string) string {
	return fmt.Sprintf("%s %d %s", campaign, packet, user)
}

// gather lets users grab in the campaigns until stop is called or the test ends.
func (p *past) gather(campaigns ...string) *audience {
	p.t.Helper()
	c := &audience{t: p.t, campaigns: campaigns, open: campaigns, receipts: map[visit]hongbao.Receipt{},
		packets: map[string]visit{}}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	c.join = func() {
		core, logs := observer.New(zap.WarnLevel)
		cfg := producer.DefaultConfig()
		cfg.Deployment = public.Of(p.store.Over(p.server.Client(p.t)), zap.New(core))
		cfg.UndecidedTimeout = 50 * time.Millisecond
		prod, err := producer.New(cfg)
		require.NoError(p.t, err)
		c.producers, c.logs = append(c.producers, prod), append(c.logs, logs)
		for range 4 {
			all.Go(func() { c.visits(ctx, prod) })
		}
	}
	c.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
		for _, prod := range c.producers {
			_ = prod.Close(context.Background()) // waits for calls in flight
		}
	})
	c.join()
	c.join()
	p.t.Cleanup(c.stop)
	return c
}

// visits lets users grab one after the other, with a pause that determines the load.
func (c *audience) visits(ctx context.Context, p *producer.Producer) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		v := c.next()
		a, err := p.Grab(ctx, &hongbao.Grab{Campaign: v.campaign, User: v.user})
		if ctx.Err() != nil {
			return
		}
		c.judge(v, &a, err)
	}
}

// next returns a new user, or with probability 1/2 a known user, who repeats a grab.
func (c *audience) next() visit {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.users); n > 0 && rand.N(2) == 0 {
		return c.users[rand.N(n)]
	}
	v := visit{c.open[len(c.users)%len(c.open)], fmt.Sprintf("u%07d", len(c.users))}
	c.users = append(c.users, v)
	return v
}

// judge records an answer, and records an error if the answer contradicts an earlier one.
func (c *audience) judge(v visit, a *hongbao.Answer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bad := func(format string, args ...any) {
		c.wrong = append(c.wrong, fmt.Sprintf("%v: ", v)+fmt.Sprintf(format, args...))
	}
	was, known := c.receipts[v]
	switch {
	case errors.Is(err, store.ErrNotInitialized): // a new process can't tell a lost deployment from a wrong prefix
		c.frozen++
	case err != nil:
		if class := hongbao.ClassOf(err); class != hongbao.ClassTransient && class != hongbao.ClassUnknown {
			bad("%s error: %v", class, err)
		}
	case a.Outcome == hongbao.OutcomeFrozen:
		c.frozen++
	case !a.Outcome.Final():
	case a.Outcome != hongbao.OutcomeGranted && a.Outcome != hongbao.OutcomeAlreadyGranted:
		// only the campaigns fresh-* are small enough to be sold out
		if known || a.Outcome != hongbao.OutcomeSoldOut || !strings.HasPrefix(v.campaign, "fresh-") {
			bad("got %s; granted before: %v", a.Outcome, known)
		}
	case known:
		if r := a.Receipts[0]; r.Packet != was.Packet || r.Seq != was.Seq || r.Amount != was.Amount {
			bad("got packet %d, event %d, and then packet %d, event %d", was.Packet, was.Seq, r.Packet, r.Seq)
		}
	default:
		r := a.Receipts[0]
		packet := fmt.Sprint(v.campaign, " ", r.Packet)
		if other, ok := c.packets[packet]; ok {
			bad("got packet %d, which %v had got", r.Packet, other)
		}
		c.receipts[v], c.packets[packet] = r, v
	}
}

// grabs lets new users grab in other campaigns. Old users still repeat their grabs.
func (c *audience) grabs(campaigns ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = campaigns
}

// granted returns the number of users who were told that they got a packet.
func (c *audience) granted() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.receipts)
}

// waitForFrozen waits until this many more grabs got the outcome frozen.
func (c *audience) waitForFrozen(more int) {
	c.t.Helper()
	frozen := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.frozen
	}
	was := frozen()
	testkit.Eventually(c.t, 30*time.Second, func() bool { return frozen() >= was+more }, "grabs are answered frozen")
}

// knownGrants returns the grants that users know, in the campaigns whose ids have the prefix.
func (c *audience) knownGrants(prefix string) map[eventAt]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[eventAt]string{}
	for v, r := range c.receipts {
		if strings.HasPrefix(v.campaign, prefix) {
			all[eventAt{r.Shard, r.Seq}] = grantText(v.campaign, r.Packet, v.user)
		}
	}
	return all
}

// alarmed returns the number of producers that have logged the alarm.
func (c *audience) alarmed() (n int) {
	for _, l := range c.logs {
		n += min(1, l.FilterField(zap.String("code", store.LostData)).Len())
	}
	return n
}

// reader is a subscriber that follows the deployment's topic.
type reader struct {
	mu   sync.Mutex
	seen map[eventAt]int
}

// read starts a reader, which ends with the test.
func (d *deployment) read() *reader {
	d.t.Helper()
	r := &reader{seen: map[eventAt]int{}}
	sink, err := subscriber.NewFuncSink(subscriber.FuncSinkConfig{Timeout: 10 * time.Second,
		Effect: func(_ context.Context, e topic.Event) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen[eventAt{e.Grant.Shard, e.Grant.Seq}]++
			return nil
		}})
	require.NoError(d.t, err)
	cfg := subscriber.DefaultConfig()
	cfg.Brokers, cfg.ClientID, cfg.Topic, cfg.Group, cfg.Deployment = []string{d.addr}, "test", d.topic, d.topic, d.id()
	cfg.DeadLetters, cfg.Sink, cfg.Log = testkit.Kafka(d.t).Topic(d.t, 1, nil), sink, zap.NewNop()
	s, err := subscriber.New(cfg)
	require.NoError(d.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	d.t.Cleanup(func() {
		cancel()
		require.NoError(d.t, <-ended)
	})
	return r
}

// distinct returns the number of events that the subscriber has processed.
func (r *reader) distinct() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// duplicates returns the number of events that the subscriber has processed more than once.
func (r *reader) duplicates() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, times := range r.seen {
		n += min(1, times-1)
	}
	return n
}
