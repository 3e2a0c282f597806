package store_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store/load"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Random receipts lie around clock changes in random time zones. For limits by day and hour, grab.lua counts the
// receipts in the same way as load.Bucket.
func TestPeriodsAroundClockChanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var hit, passed, changed int
	for seed := range uint64(300) {
		p := newPeriods(seed)
		c := spec(fmt.Sprintf("rain-%d", seed), 1)
		c.From, c.To = p.now.Add(-5*24*time.Hour), p.now.Add(24*time.Hour)
		c.Limits = []hongbao.Limit{
			{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 100}, {By: hongbao.ByUser, Per: p.per, Max: p.most},
		}
		b.load(t, c)
		pipe := b.rdb.Pipeline()
		pipe.HSet(t.Context(), b.k.Keys.Campaign(c.ID), "zone", p.encoded())
		var receipts []string
		for i, at := range p.receipts {
			receipts = append(receipts, fmt.Sprintf("%d 1 %d %d r%d", i+1, i+1, at.Sub(c.From).Milliseconds(), i))
		}
		pipe.HSet(t.Context(), b.k.Keys.Receipts(c.ID), "u", strings.Join(receipts, "\n"))
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		answers, err := b.k.Place(c.ID).Grab(t.Context(), call(c.ID, "u/new"), nil)
		require.NoError(t, err)

		bucket, resets := load.Bucket(p.zone, p.per, answers[0].Time.UnixMilli())
		var count int64
		for _, at := range p.receipts {
			if of, _ := load.Bucket(p.zone, p.per, at.UnixMilli()); of == bucket {
				count++
			}
		}
		if count < p.most {
			passed++
			require.Equal(t, hongbao.OutcomeGranted, answers[0].Outcome, "seed %d: %+v, counted %d", seed, p, count)
			continue
		}
		hit++
		if len(p.zone) > 1 {
			changed++
		}
		require.Equal(t, hongbao.OutcomeLimitReached, answers[0].Outcome, "seed %d: %+v, counted %d", seed, p, count)
		require.Equal(t, resets, answers[0].Limit.Resets.UnixMilli(), "seed %d: %+v", seed, p)
	}
	t.Logf("refused %d, %d of them around a change, granted %d", hit, changed, passed)
	require.Greater(t, changed, 30)
	require.Greater(t, passed, 60)
}

// periods has the receipts of a user, in a random time zone.
type periods struct {
	now      time.Time
	per      hongbao.Period
	most     int64
	zone     []load.Transition
	receipts []time.Time
}

func newPeriods(seed uint64) *periods {
	r := rand.New(rand.NewPCG(seed, 2))
	p := &periods{now: time.Now().Truncate(time.Millisecond),
		per: []hongbao.Period{hongbao.PerDay, hongbao.PerHour}[r.IntN(2)], most: 1 + r.Int64N(8)}
	offset := r.IntN(49)*1800 - 12*3600
	p.zone = []load.Transition{{Offset: offset}}
	back := 30 * time.Hour
	if p.per == hongbao.PerHour {
		back = 3 * time.Hour
	}
	if r.IntN(3) > 0 { // the clock changes at a full local hour
		at := p.now.Add(-time.Duration(r.Int64N(int64(back)))).Unix()
		at -= (at + int64(offset)) % 3600
		step := []int{-3600, -1800, 1800, 3600}[r.IntN(4)]
		if local := (at + int64(offset)) % 86400; local == 0 && step < 0 {
			step = -step // in reality no clock goes back exactly at midnight
		}
		p.zone = append(p.zone, load.Transition{From: at * 1000, Offset: offset + step})
	}
	at := p.now.Add(-back)
	for range 20 {
		if at = at.Add(time.Duration(r.Int64N(int64(back) / 10))).Truncate(time.Millisecond); at.Before(p.now) {
			p.receipts = append(p.receipts, at)
		}
	}
	return p
}

func (p *periods) encoded() string {
	var parts []string
	for _, t := range p.zone {
		parts = append(parts, fmt.Sprintf("%d:%d", t.From, t.Offset))
	}
	return strings.Join(parts, " ")
}

// A limit by device per day is reached. On the next day a grab with the old terms is granted. The test simulates the
// next day by a time zone change of 24 hours.
func TestCountersOfTheNextDay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := spec("rain", 10)
	c.Limits = append(c.Limits, hongbao.Limit{By: "device", Per: hongbao.PerDay, Max: 1})
	b.load(t, c)
	zone := fmt.Sprintf("0:0 %d:86400", time.Now().Add(6*time.Second).UnixMilli())
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "zone", zone).Err())
	g := call("rain", "u1")
	g.FactNames = "device"
	g.Grabs[0].Facts = map[string]string{"device": "d"}
	grab := func(user string) hongbao.Answer {
		g.Grabs[0].User = user
		answers, err := b.k.Place("rain").Grab(t.Context(), g, nil)
		require.NoError(t, err)
		return answers[0]
	}
	require.Equal(t, hongbao.OutcomeGranted, grab("u1").Outcome)
	terms := g.Terms
	require.Equal(t, hongbao.OutcomeLimitReached, grab("u2").Outcome)
	require.Same(t, terms, g.Terms, "they are learned once")
	testkit.Eventually(t, 20*time.Second, func() bool { return grab("u2").Outcome == hongbao.OutcomeGranted },
		"the next day counts again")
	require.NotSame(t, terms, g.Terms)
	require.Equal(t, hongbao.OutcomeLimitReached, grab("u3").Outcome)
	keys, err := b.rdb.Keys(t.Context(), b.k.Keys.Counters("rain", "*")).Result()
	require.NoError(t, err)
	require.Len(t, keys, 2, "a hash a day")
	for _, key := range keys {
		require.Positive(t, b.rdb.PTTL(t.Context(), key).Val(), key)
	}
}
