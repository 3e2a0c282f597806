package producer_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/winners"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// builds runs a worker that builds filters of winners, until the test ends.
func (b *bundle) builds(t *testing.T) {
	t.Helper()
	locks, err := b.store.Locks(store.LockConfig{Lease: 30 * time.Second,
		Poll: 10 * time.Millisecond})
	require.NoError(t, err)
	builder, err := winners.NewBuilder(winners.BuilderConfig{Store: b.store, Locks: locks, Log: zap.NewNop(),
		Every: 20 * time.Millisecond})
	require.NoError(t, err)
	testkit.Go(t, builder.Run)
}

// emptied loads the campaign, grabs all its packets, and returns the receipts by user.
func (b *bundle) emptied(t *testing.T, p *producer.Producer, c hongbao.Campaign) map[string]hongbao.Receipt {
	t.Helper()
	b.load(t, c)
	won := map[string]hongbao.Receipt{}
	for i := range c.Packets {
		user := fmt.Sprint("w", i)
		a, err := p.Grab(t.Context(), grab(user, "r"))
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
		won[user] = a.Receipts[0]
	}
	return won
}

// scripts returns how many scripts the Redis server has run.
func (b *bundle) scripts(t *testing.T) (n int) {
	t.Helper()
	text, err := b.admin.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	_, text, _ = strings.Cut(text, "cmdstat_evalsha:calls=")
	n, err = strconv.Atoi(text[:max(0, strings.IndexByte(text, ','))])
	require.NoError(t, err)
	return n
}

// losers lets the users l<first> to l<first+n-1> grab one after the other. None of them has a packet, so each must get
// sold_out.
func losers(t *testing.T, p *producer.Producer, first, n int) {
	t.Helper()
	for i := range n {
		a, err := p.Grab(t.Context(), grab(fmt.Sprint("l", first+i), "r"))
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeSoldOut, a.Outcome)
		require.Empty(t, a.Receipts)
		require.WithinDuration(t, time.Now(), a.Time, time.Minute)
	}
}

// knows waits until the producer answers losers without Redis, that is, until a thousand grabs cost fewer than 200
// scripts.
func (b *bundle) knows(t *testing.T, p *producer.Producer, first int) {
	t.Helper()
	testkit.Eventually(t, 2*time.Minute, func() bool {
		before := b.scripts(t)
		losers(t, p, first, 1000)
		return b.scripts(t)-before < 200
	}, "losers are answered without Redis")
}

// wideAlone is like wide, but on its own Redis server, because the tests count its commands.
func wideAlone(t *testing.T, n int) *bundle {
	t.Helper()
	return setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), n)
}

// All packets are granted, and a worker builds a filter of the winners. Losers then get sold_out without a call to
// Redis, and winners still get their receipts. The producer notices a top-up.
func TestLosersAreAnsweredWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, places := range []int{1, 4} {
		t.Run(fmt.Sprint("places ", places), func(t *testing.T) {
			t.Parallel()
			b := wideAlone(t, 4)
			p := b.producer(t, nil)
			won := b.emptied(t, p, over(places, 200, 1))
			losers(t, p, 0, 20) // without a filter
			b.builds(t)
			b.knows(t, p, 0)
			for user, receipt := range won {
				a, err := p.Grab(t.Context(), grab(user, "r"))
				require.NoError(t, err)
				require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
				require.Equal(t, []hongbao.Receipt{receipt}, a.Receipts)
				a, err = p.Grab(t.Context(), grab(user, "another"))
				require.NoError(t, err)
				require.Equal(t, hongbao.OutcomeAlreadyGranted, a.Outcome)
				require.Equal(t, []hongbao.Receipt{receipt}, a.Receipts)
			}
			b.knows(t, p, 0)
			b.topUp(t, places, 200, 240)
			added := map[int64]bool{}
			for i := range 40 { // users who got sold_out before the top-up
				a, err := p.Grab(t.Context(), grab(fmt.Sprint("l", i), "r"))
				require.NoError(t, err)
				require.Equal(t, hongbao.OutcomeGranted, a.Outcome, "grab %d", i)
				added[a.Receipts[0].Packet] = true
			}
			require.Len(t, added, 40)
			b.knows(t, p, 40) // with the filter of the new generation
			b.endIsNoticed(t, p, places)
		})
	}
}

// topUp announces the packets from before+1 to last and deals them, as a top-up does.
func (b *bundle) topUp(t *testing.T, n int, before, last int64) {
	t.Helper()
	places := b.store.Places("rain", n)
	hash, err := b.admin.HGet(t.Context(), places[0].Keys.Campaign("rain"), "hash").Result()
	require.NoError(t, err)
	share := func(j int) int64 { return int64(len(numbers(1, before, n, j)) + len(numbers(before+1, last, n, j))) }
	for j, k := range places {
		require.NoError(t, k.Announce(t.Context(), &store.Announcement{
			Campaign: "rain", Hash: hash, Generation: 2, Plan: "h2", Packets: last, Total: hongbao.Amount(10 * last),
			Share: share(j), ShareAmount: hongbao.Amount(10 * share(j)),
		}))
	}
	announced := time.Now()
	testkit.Eventually(t, time.Minute, func() bool { return time.Since(announced) > walk.Lease }, "the lease is over")
	for j, k := range places {
		mine := numbers(before+1, last, n, j)
		chunk := &store.Chunk{Campaign: "rain", Hash: hash, Generation: 2, Before: int64(len(numbers(1, before, n, j))),
			First: mine[0], Step: int64(n)}
		for range mine {
			chunk.Amounts = append(chunk.Amounts, 10)
		}
		_, err := k.LoadChunk(t.Context(), chunk)
		require.NoError(t, err)
	}
}

// endIsNoticed pauses, resumes and closes the campaign. The producer must notice each change within a lease. Once it
// has noticed a pause or a close, it calls Redis again for every grab.
func (b *bundle) endIsNoticed(t *testing.T, p *producer.Producer, n int) {
	t.Helper()
	for _, step := range []struct {
		state string
		want  hongbao.Outcome
	}{{"paused", hongbao.OutcomePaused}, {"open", hongbao.OutcomeSoldOut}, {"closed", hongbao.OutcomeEnded}} {
		for _, k := range b.store.Places("rain", n) {
			require.NoError(t, b.admin.HSet(t.Context(), k.Keys.Campaign("rain"), "state", step.state).Err())
		}
		for since, noticed := time.Now(), false; !noticed; {
			late := time.Since(since) > walk.Lease
			a, err := p.Grab(t.Context(), grab("l100", "r"))
			require.NoError(t, err)
			noticed = a.Outcome == step.want
			require.True(t, noticed || !late, "%s after the lease", a.Outcome)
		}
		if step.state != "open" {
			before := b.scripts(t)
			for range 50 { // each grab costs a script, perhaps only to read receipts
				_, err := p.Grab(t.Context(), grab("l100", "r"))
				require.NoError(t, err)
			}
			require.GreaterOrEqual(t, b.scripts(t)-before, 50, "the producer asks Redis again")
		}
		if step.state == "open" {
			b.knows(t, p, 40)
		}
	}
}

// Many losers grab while packets are added. Each added packet is granted once, and no grab fails.
func TestLosersWhilePacketsAreAdded(t *testing.T) {
	t.Parallel()
	b := wideAlone(t, 4)
	p := b.producer(t, func(c *producer.Config) { c.UndecidedTimeout = time.Minute })
	b.emptied(t, p, over(4, 200, 1))
	b.builds(t)
	b.knows(t, p, 0)
	var granted atomic.Int64
	var crowd sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer crowd.Wait()
	defer stop()
	for i := range 8 {
		crowd.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				a, err := p.Grab(t.Context(), grab(fmt.Sprintf("l%d-%d", i, n), "r"))
				if err != nil {
					t.Errorf("loser %d-%d: %v", i, n, err)
					return
				}
				if a.Outcome == hongbao.OutcomeGranted {
					granted.Add(1)
				} else if !assert.Equal(t, hongbao.OutcomeSoldOut, a.Outcome) {
					return
				}
				retry.Pause(ctx, time.Millisecond)
			}
		})
	}
	b.topUp(t, 4, 200, 240)
	testkit.Eventually(t, time.Minute, func() bool { return granted.Load() >= 40 }, "all added packets are granted")
	b.knows(t, p, 0) // with the filter of the new generation
	stop()
	crowd.Wait()
	require.EqualValues(t, 40, granted.Load())
	packets := map[int64]bool{}
	for _, grants := range b.granted(t) { // no packet twice
		for _, g := range grants {
			packets[g.Packet] = true
		}
	}
	require.Len(t, packets, 240)
}

// All grabs get limit_reached, because their device is at its limit. These answers also renew the knowledge that
// nothing is left, so late users get sold_out without Redis.
func TestLimitReachedRenews(t *testing.T) {
	t.Parallel()
	b := wideAlone(t, 1)
	p := b.producer(t, nil)
	c := over(1, 5, 1)
	c.Limits = append(c.Limits, hongbao.Limit{By: "device", Per: hongbao.PerCampaign, Max: 5})
	b.load(t, c)
	number := 0
	next := func(device string) hongbao.Outcome {
		number++
		g := grab(fmt.Sprint("u", number), "r")
		g.Facts = map[string]string{"device": device}
		a, err := p.Grab(t.Context(), g)
		require.NoError(t, err)
		return a.Outcome
	}
	for range c.Packets {
		require.Equal(t, hongbao.OutcomeGranted, next("d1"))
	}
	require.Equal(t, hongbao.OutcomeLimitReached, next("d1"))
	b.builds(t)
	testkit.Eventually(t, 2*time.Minute, func() bool {
		for range 1000 {
			require.Equal(t, hongbao.OutcomeSoldOut, next("d2"))
		}
		refused := 0 // sold_out answers without Redis, long after the last grab of d2
		for since := time.Now(); time.Since(since) < 4*walk.Lease; {
			if outcome := next("d1"); time.Since(since) > 3*walk.Lease && outcome == hongbao.OutcomeSoldOut {
				refused++
			}
		}
		return refused > 0
	}, "late users of a device at its limit get sold_out")
}

// A producer that answers losers without Redis still rejects bad input. It asks Redis again at the end of the window,
// and rejects all grabs after Close.
func TestKnowsAndRefuses(t *testing.T) {
	t.Parallel()
	b := wideAlone(t, 1)
	p := b.producer(t, nil)
	b.emptied(t, p, over(1, 5, 2))
	b.builds(t)
	b.knows(t, p, 0)
	_, err := p.Grab(t.Context(), grab("l1", ""))
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), "two packets a user need request ids")
	_, err = p.Grab(t.Context(), grab("l 1", "r"))
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	p.EndWindow("rain", time.Now())
	before := b.scripts(t)
	losers(t, p, 0, 1000)
	require.GreaterOrEqual(t, b.scripts(t)-before, 1000, "the producer asks Redis again")
	require.NoError(t, p.Close(t.Context()))
	_, err = p.Grab(t.Context(), grab("l1", "r"))
	require.ErrorIs(t, err, producer.ErrClosed)
}

// A sold_out answer without Redis allocates no memory. The test is not parallel, because allocations of other tests
// would count.
func TestRefusalMakesNothing(t *testing.T) {
	b := wideAlone(t, 1)
	p := b.producer(t, nil)
	b.emptied(t, p, over(1, 5, 1))
	b.builds(t)
	b.knows(t, p, 0)
	g, ctx := grab("l1", "r"), t.Context()
	require.Zero(t, testing.AllocsPerRun(100_000, func() { _, _ = p.Grab(ctx, g) }), "a refusal allocates objects")
}

// The filter in Redis belongs to another plan or is damaged. The producer does not use it and logs this once. All
// answers stay correct.
func TestFilterThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"another plan", "damaged"} {
		b := wideAlone(t, 1)
		core, logs := observer.New(zap.WarnLevel)
		looks, rdb := b.counting(t, "hget"+b.k.Keys.Filter("rain"))
		p := b.producer(t, func(c *producer.Config) { c.Deployment = deployment.Of(b.store.Over(rdb), zap.New(core)) })
		won := b.emptied(t, p, over(1, 5, 1))
		key, other := b.k.Keys.Filter("rain"), "another"
		if what == "damaged" {
			other = b.admin.HGet(t.Context(), b.k.Keys.Campaign("rain"), "revision").Val()
		}
		require.NoError(t, b.admin.HSet(t.Context(), key, "by", "x", "head", "1 "+other+" 5 60 0000000000000001").Err())
		warnings := func() int { return logs.FilterMessageSnippet("losers are looked up in Redis").Len() }
		testkit.Eventually(t, time.Minute, func() bool {
			losers(t, p, 0, 10)
			return warnings() > 0
		}, "the log says so")
		for before := looks.n.Load(); looks.n.Load() < before+4; { // several fetches: one reads the head at most twice
			losers(t, p, 0, 10)
		}
		for user, receipt := range won {
			a, err := p.Grab(t.Context(), grab(user, "r"))
			require.NoError(t, err)
			require.Equal(t, []hongbao.Receipt{receipt}, a.Receipts)
		}
		b.builds(t)
		b.knows(t, p, 0) // a worker has replaced the filter
		require.Equal(t, 1, warnings())
	}
}
