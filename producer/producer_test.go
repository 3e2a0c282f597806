package producer_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

func TestNewNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := producer.New(producer.Config{UndecidedTimeout: time.Hour})
	for _, part := range []string{"Deployment is required", "MaxBacklog", "InFlight", "MaxWaiting",
		"CallTimeout", "UndecidedTimeout", "DurabilityTimeout"} {
		require.ErrorContains(t, err, part)
	}
}

// race lets callers make the grabs concurrently, on all producers in turn. It returns the winners' receipts and the
// number of sold_out answers; any other answer fails the test.
func race(t *testing.T, callers int, grabs []*hongbao.Grab, producers ...*producer.Producer) (
	won map[string]hongbao.Receipt, soldOut int) {
	t.Helper()
	won = map[string]hongbao.Receipt{}
	var mu sync.Mutex
	var next atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(len(grabs)); n = next.Add(1) {
				g := grabs[n-1]
				a, err := producers[i%len(producers)].Grab(t.Context(), g)
				mu.Lock()
				switch {
				case err != nil:
					t.Error(err)
				case a.Outcome == hongbao.OutcomeGranted:
					won[g.User] = a.Receipts[0]
				case a.Outcome == hongbao.OutcomeSoldOut:
					soldOut++
				default:
					t.Errorf("user %s: %s", g.User, a.Outcome)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return won, soldOut
}

// 512 callers grab for more users than there are packets. Each packet is granted once, no user gets two, and the grabs
// share calls.
func TestCrowd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const packets, users = 6000, 8192
	b.load(t, spec("rain", packets))
	p := b.producer(t, nil)
	all := make([]*hongbao.Grab, users)
	for u := range all {
		all[u] = grab(fmt.Sprintf("u%d", u), "")
	}
	won, soldOut := race(t, 512, all, p)
	require.Len(t, won, packets)
	require.Equal(t, users-packets, soldOut)
	grants := b.grants(t)
	require.Len(t, grants, packets)
	for user, g := range grants {
		require.Len(t, g, 1, user)
	}
	require.Less(t, len(b.entries(t)), packets/8, "grabs share calls")
}

func TestLonelyGrab(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 3))
	p := b.producer(t, nil)
	for i := range 3 {
		g := grab(fmt.Sprintf("u%d", i), "")
		a, err := p.Grab(t.Context(), g)
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
		require.Equal(t, g.RequestID, a.Receipts[0].RequestID, "the producer generated a request id and returned it")
		require.NoError(t, hongbao.CheckID(g.RequestID))
		require.Len(t, b.entries(t), i+1, "the grab has its own entry")
		again, err := p.Grab(t.Context(), g)
		require.NoError(t, err)
		require.Equal(t, a.Receipts, again.Receipts)
		other, err := p.Grab(t.Context(), grab(g.User, "another"))
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeAlreadyGranted, other.Outcome)
		require.Equal(t, a.Receipts, other.Receipts)
	}
}

// Answers with receipts and the grants in the stream have the campaign's currency. This costs no further call to
// Redis.
func TestAnswersHaveTheCurrency(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for currency, kind := range map[string]hongbao.Kind{"CNY": hongbao.KindRedPacket, "": hongbao.KindCoupon} {
		c := spec("of-"+string(kind), 2)
		if c.Currency, c.Kind = currency, kind; currency == "" {
			c.Total = 0
		}
		b.load(t, c)
		p := b.producer(t, nil)
		g := &hongbao.Grab{Campaign: c.ID, User: c.ID, RequestID: "r1"}
		other := &hongbao.Grab{Campaign: c.ID, User: c.ID, RequestID: "r2"}
		for _, state := range []string{"open", "paused", "closed"} {
			require.NoError(t, b.admin.HSet(t.Context(), b.k.Keys.Campaign(c.ID), "state", state).Err())
			for _, p := range []*producer.Producer{p, b.producer(t, nil)} { // the second producer must fetch the terms
				for _, g := range []*hongbao.Grab{g, other} {
					a, err := p.Grab(t.Context(), g)
					require.NoError(t, err)
					require.Len(t, a.Receipts, 1, "%s %s", state, a.Outcome)
					require.Equal(t, currency, a.Currency, "%s %s", state, a.Outcome)
				}
			}
		}
		require.Equal(t, currency, b.grants(t)[c.ID][0].Currency)
	}
}

func TestBadGrabs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := spec("rain", 10)
	c.Limits = []hongbao.Limit{{By: "user", Per: hongbao.PerCampaign, Max: 2}, {By: "device", Per: hongbao.PerDay, Max: 1}}
	b.load(t, c)
	p := b.producer(t, nil)
	with := func(g *hongbao.Grab, device string) *hongbao.Grab {
		g.Facts = map[string]string{"device": device}
		return g
	}
	for text, g := range map[string]*hongbao.Grab{
		"without a request id": with(grab("u1", ""), "d1"), `without the fact "device"`: grab("u1", "r1"),
		"only printable ASCII": grab("u 1", "r1"),
	} {
		_, err := p.Grab(t.Context(), g)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), text)
		require.ErrorContains(t, err, text)
	}
	require.Empty(t, b.entries(t))
	a, err := p.Grab(t.Context(), with(grab("u1", "r1"), "d1"))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
	a, err = p.Grab(t.Context(), with(grab("u2", "r1"), "d1"))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeLimitReached, a.Outcome)
	require.Equal(t, "device", a.Limit.Limit.By)
	a, err = p.Grab(t.Context(), &hongbao.Grab{Campaign: "drought", User: "u1"})
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeUnknownCampaign, a.Outcome)
}

// A shard is busy. The producer returns busy after UndecidedTimeout, or the final outcome if the shard decides
// earlier.
func TestUndecided(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	p := b.producer(t, func(c *producer.Config) { c.MaxBacklog, c.UndecidedTimeout = 1, 300*time.Millisecond })
	patient := b.producer(t, func(c *producer.Config) { c.MaxBacklog, c.UndecidedTimeout = 1, 20*time.Second })
	a, err := p.Grab(t.Context(), grab("u1", "r1"))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
	start := time.Now()
	a, err = p.Grab(t.Context(), grab("u2", "r2"))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeBusy, a.Outcome)
	require.Greater(t, time.Since(start), 150*time.Millisecond, "the grab was repeated")
	require.Less(t, time.Since(start), 5*time.Second)

	got := make(chan hongbao.Answer, 1)
	go func() {
		a, _ := patient.Grab(t.Context(), grab("u2", "r2"))
		got <- a
	}()
	require.NoError(t, b.admin.HSet(t.Context(), b.k.Keys.Meta(), "finished", 1).Err())
	require.Equal(t, hongbao.OutcomeGranted, (<-got).Outcome)

	require.NoError(t, b.admin.HSet(t.Context(), b.k.Keys.Meta(), "frozen", "1").Err())
	a, err = p.Grab(t.Context(), grab("u1", "r1"))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeFrozen, a.Outcome)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start = time.Now()
	a, err = patient.Grab(ctx, grab("u1", "r1"))
	if err == nil {
		require.Equal(t, hongbao.OutcomeFrozen, a.Outcome)
	} else {
		require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err))
	}
	require.Less(t, time.Since(start), 5*time.Second)
}

// A campaign is replaced by a campaign with the same id and other limits. The producer notices this, and no grab
// without the new fact is decided.
func TestCampaignReplaced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 1000))
	proxy, rdb := b.through(t, -1)
	p := b.producer(t, func(c *producer.Config) { c.Deployment, c.InFlight = b.over(rdb), 1 })
	a, err := p.Grab(t.Context(), grab("u0", "r0"))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)

	for _, key := range append([]string{b.k.Keys.Campaign("rain")}, b.k.Keys.Stock("rain"), b.k.Keys.LoadedTotals("rain", 1),
		b.k.Keys.Receipts("rain")) {
		require.NoError(t, b.admin.Del(t.Context(), key).Err())
	}
	c := spec("rain", 1000)
	c.Limits = append(c.Limits, hongbao.Limit{By: "device", Per: hongbao.PerDay, Max: 1})
	b.load(t, c)
	proxy.Delay(100 * time.Millisecond)
	var wg sync.WaitGroup
	for i := range 200 { // several calls: waiting grabs were checked against the old campaign
		wg.Go(func() {
			a, err := p.Grab(t.Context(), grab(fmt.Sprintf("u%d", i), "r"))
			if err == nil || hongbao.ClassOf(err) == hongbao.ClassUnknown {
				t.Errorf("a grab without the fact was answered %s, %v", a.Outcome, err)
			}
		})
	}
	wg.Wait()
	proxy.Delay(0)
	require.Positive(t, proxy.Fired().Delayed)
	require.Len(t, b.entries(t), 1, "only the first campaign's grant")
	_, err = p.Grab(t.Context(), grab("u1", "r1"))
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	g := grab("u1", "r1")
	g.Facts = map[string]string{"device": "d1"}
	a, err = p.Grab(t.Context(), g)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
}

func TestMaxWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 100))
	proxy, rdb := b.through(t, -1)
	p := b.producer(t, func(c *producer.Config) { c.Deployment, c.InFlight, c.MaxWaiting = b.over(rdb), 1, 2 })
	_, err := p.Grab(t.Context(), grab("u0", ""))
	require.NoError(t, err)
	proxy.Delay(time.Second)
	var granted, refused atomic.Int64
	var wg sync.WaitGroup
	one := func(user string) {
		_, err := p.Grab(t.Context(), grab(user, ""))
		switch {
		case err == nil:
			granted.Add(1)
		case hongbao.ClassOf(err) == hongbao.ClassTransient:
			refused.Add(1)
		default:
			t.Error(err)
		}
	}
	wg.Go(func() { one("first") })
	testkit.Eventually(t, 30*time.Second, func() bool { return len(b.entries(t)) == 2 }, "the first call is in flight")
	for i := range 20 {
		wg.Go(func() { one(fmt.Sprintf("u%d", i+1)) })
	}
	wg.Wait()
	require.EqualValues(t, 3, granted.Load(), "one grab in flight and two waiting")
	require.EqualValues(t, 18, refused.Load())
	require.Len(t, b.grants(t), 4, "a refused grab did nothing")
}

// Close rejects new grabs, waits for the grabs in flight, and leaves no goroutine. The test is not parallel, because
// it counts goroutines.
func TestClose(t *testing.T) { //nolint:paralleltest // see above
	b := setup(t)
	b.load(t, spec("rain", 1000))
	proxy, rdb := b.through(t, -1)
	require.NoError(t, rdb.Ping(t.Context()).Err())
	p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
	_, err := p.Grab(t.Context(), grab("u0", ""))
	require.NoError(t, err)
	before := goleak.IgnoreCurrent()
	proxy.Delay(200 * time.Millisecond)
	granted := make(chan error, 1)
	go func() {
		a, err := p.Grab(t.Context(), grab("u1", ""))
		if err == nil && a.Outcome != hongbao.OutcomeGranted {
			err = fmt.Errorf("outcome %s", a.Outcome)
		}
		granted <- err
	}()
	testkit.Eventually(t, 30*time.Second, func() bool { return len(b.entries(t)) == 2 }, "the call is in flight")
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { require.NoError(t, p.Close(context.Background())) })
	}
	wg.Wait()
	require.NoError(t, <-granted, "grabs in flight are finished")
	_, err = p.Grab(t.Context(), grab("u2", ""))
	require.ErrorIs(t, err, producer.ErrClosed)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	_, err = p.Grab(t.Context(), &hongbao.Grab{Campaign: "other", User: "u2"})
	require.ErrorIs(t, err, producer.ErrClosed)
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("github.com/hongbao-project/hongbao/internal/dev/proxy.(*Proxy).serve"),
		goleak.IgnoreAnyFunction("github.com/hongbao-project/hongbao/internal/dev/proxy.(*Proxy).answers"))
}

// The context of Close ends while a grab is in flight. The grab then fails with Unknown at once.
func TestCloseCutsShort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	proxy, rdb := b.through(t, -1)
	cfg := producer.DefaultConfig()
	cfg.Deployment = b.over(rdb)
	p, err := producer.New(cfg)
	require.NoError(t, err)
	_, err = p.Grab(t.Context(), grab("u0", ""))
	require.NoError(t, err)
	proxy.Delay(3 * time.Second)
	got := make(chan error, 1)
	go func() {
		_, err := p.Grab(t.Context(), grab("u1", "r1"))
		got <- err
	}()
	testkit.Eventually(t, 30*time.Second, func() bool { return len(b.entries(t)) == 2 }, "the call is in flight")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	closed := make(chan error, 1)
	go func() { closed <- p.Close(ctx) }()
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(<-got))
	require.Less(t, time.Since(start), 2*time.Second, "the grab does not wait for Redis")
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(<-closed))
	require.Less(t, time.Since(start), 8*time.Second)
}

// With a limit per day, the first grab needs a second call to find the hash of the day. Later grabs need one call.
func TestLimitOfADayIsOneCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := spec("rain", 10)
	c.Limits = append(c.Limits, hongbao.Limit{By: "device", Per: hongbao.PerDay, Max: 1})
	b.load(t, c)
	scripts, rdb := b.counting(t, "evalsha")
	p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
	for i := range int64(4) {
		a, err := p.Grab(t.Context(), &hongbao.Grab{Campaign: "rain", User: fmt.Sprint("u", i),
			Facts: map[string]string{"device": fmt.Sprint("d", i)}})
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
		require.Equal(t, 2+i, scripts.n.Load())
	}
}
