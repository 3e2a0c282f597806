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
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/winners"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// builds lets a worker build filters until the test ends.
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

// emptied loads campaign rain over several places, grabs every packet, and returns the winners' receipts.
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

// scripts returns the number of scripts that the server of the bundle has run.
func (b *bundle) scripts(t *testing.T) (n int) {
	t.Helper()
	text, err := b.admin.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	_, text, _ = strings.Cut(text, "cmdstat_evalsha:calls=")
	n, err = strconv.Atoi(text[:max(0, strings.IndexByte(text, ','))])
	require.NoError(t, err)
	return n
}

// losers lets n users from l<first> on grab one after the other. They have no packet, and each must get sold_out.
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

// knows waits until the producer answers losers without Redis: a thousand of them cost almost no calls.
func (b *bundle) knows(t *testing.T, p *producer.Producer, first int) {
	t.Helper()
	testkit.Eventually(t, 2*time.Minute, func() bool {
		before := b.scripts(t)
		losers(t, p, first, 1000)
		return b.scripts(t)-before < 200
	}, "losers are answered without a call")
}

// wideAlone is wide on a Redis of the test's own, because the test counts its commands.
func wideAlone(t *testing.T, n int) *bundle {
	t.Helper()
	return setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), n)
}

// Once nothing is left, a worker builds a filter of the winners. Then losers get sold_out without a call to Redis,
// and winners get their receipts unchanged. The producer notices packets that are added.
func TestLosersAreAnsweredWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, places := range []int{1, 4} {
		t.Run(fmt.Sprint("places ", places), func(t *testing.T) {
			t.Parallel()
			b := wideAlone(t, 4)
			p := b.producer(t, nil)
			won := b.emptied(t, p, over(places, 200, 1))
			losers(t, p, 0, 20) // no worker builds yet
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
			for i := range 40 { // each user got sold_out before
				a, err := p.Grab(t.Context(), grab(fmt.Sprint("l", i), "r"))
				require.NoError(t, err)
				require.Equal(t, hongbao.OutcomeGranted, a.Outcome, "grab %d", i)
				added[a.Receipts[0].Packet] = true
			}
			require.Len(t, added, 40)
			b.knows(t, p, 40) // by the filter of the new generation
			b.endIsNoticed(t, p, places)
		})
	}
}

// topUp announces and deals packets up to the last number, as a top-up does.
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

// endIsNoticed pauses the campaign, resumes it, and closes it. The producer notices each change within a lease. After
// the first loser gets the new answer of a pause or a close, Redis is asked for each later grab.
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
			for range 50 { // the answer remembered for a place may still be used
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

// Losers grab all at once while packets are added. Each added packet is granted once, and no one gets an error.
func TestLosersWhilePacketsAreAdded(t *testing.T) {
	t.Parallel()
	b := wideAlone(t, 4)
	p := b.producer(t, nil)
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
	b.knows(t, p, 0) // by the filter of the new generation
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

// A producer renews what it knows even while a limit refuses every user who comes.
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
		refused := 0 // within a lease that began with d1's users
		for since := time.Now(); time.Since(since) < 4*walk.Lease; {
			if outcome := next("d1"); time.Since(since) > 3*walk.Lease && outcome == hongbao.OutcomeSoldOut {
				refused++
			}
		}
		return refused > 0
	}, "late users of a device that is at its limit get sold_out")
}

// While a producer answers losers without Redis, it refuses the same bad input as before. It stops doing so once it
// is closed or the window is over.
func TestKnowsAndRefuses(t *testing.T) {
	t.Parallel()
	b := wideAlone(t, 1)
	p := b.producer(t, nil)
	b.emptied(t, p, over(1, 5, 2))
	b.builds(t)
	b.knows(t, p, 0)
	_, err := p.Grab(t.Context(), grab("l1", ""))
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), "a user may have two, so an id is needed")
	_, err = p.Grab(t.Context(), grab("l 1", "r"))
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	p.EndWindow("rain", time.Now())
	before := b.scripts(t)
	losers(t, p, 0, 1000)
	require.GreaterOrEqual(t, b.scripts(t)-before, 1000, "the producer asks Redis whether the campaign has ended")
	require.NoError(t, p.Close(t.Context()))
	_, err = p.Grab(t.Context(), grab("l1", "r"))
	require.ErrorIs(t, err, producer.ErrClosed)
}

// A refusal without Redis allocates no object. The test runs alone, because other tests would allocate some.
func TestRefusalMakesNothing(t *testing.T) {
	b := wideAlone(t, 1)
	p := b.producer(t, nil)
	b.emptied(t, p, over(1, 5, 1))
	b.builds(t)
	b.knows(t, p, 0)
	g, ctx := grab("l1", "r"), t.Context()
	require.Zero(t, testing.AllocsPerRun(100_000, func() { _, _ = p.Grab(ctx, g) }), "a refusal allocates objects")
}

// A filter of another plan and a damaged filter are never used. The log says so once, and no answer is wrong.
func TestFilterThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"another plan", "damaged"} {
		b := wideAlone(t, 1)
		core, logs := observer.New(zap.WarnLevel)
		looks, rdb := b.counting(t, "hget"+b.k.Keys.Filter("rain"))
		p := b.producer(t, func(c *producer.Config) { c.Log, c.Redis = zap.New(core), rdb })
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
		for before := looks.n.Load(); looks.n.Load() < before+4; { // one look reads the head twice, and a part at most
			losers(t, p, 0, 10)
		}
		for user, receipt := range won {
			a, err := p.Grab(t.Context(), grab(user, "r"))
			require.NoError(t, err)
			require.Equal(t, []hongbao.Receipt{receipt}, a.Receipts)
		}
		b.builds(t)
		b.knows(t, p, 0) // the worker has stored a valid filter
		require.Equal(t, 1, warnings())
	}
}
