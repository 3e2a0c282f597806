package campaign

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

type sourceFunc = func(context.Context, string) (hongbao.Campaign, Seed, []TopUp, error)

func newPlans(t testing.TB, source sourceFunc) *Plans {
	t.Helper()
	p, err := NewPlans(PlansConfig{Source: source, MaxPackets: hongbao.MaxPackets})
	require.NoError(t, err)
	return p
}

// tenPackets returns a campaign with the id, and with ten packets of 7.
func tenPackets(id string) hongbao.Campaign {
	c := evenCampaign(70, 10)
	c.ID = id
	return c
}

func TestPlansConfig(t *testing.T) {
	t.Parallel()
	_, err := NewPlans(PlansConfig{MaxPackets: 5})
	require.ErrorContains(t, err, "Source")
	require.ErrorContains(t, err, "MaxPackets is 5")
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
}

func TestPlansShareOneCallOfTheSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		gate := make(chan struct{})
		seed := testSeed(t)
		p := newPlans(t, func(_ context.Context, id string) (hongbao.Campaign, Seed, []TopUp, error) {
			calls.Add(1)
			<-gate
			return tenPackets(id), seed, nil, nil
		})
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				packet := int64(i % 11)
				amount, ok, err := p.Amount(t.Context(), "a", packet)
				if err != nil || ok != (packet > 0) || ok && amount != 7 {
					t.Errorf("packet %d: %d, %t, %v", packet, amount, ok, err)
				}
			})
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		require.EqualValues(t, 1, calls.Load())
		_, _, err := p.Amount(t.Context(), "a", 1)
		require.NoError(t, err)
		require.EqualValues(t, 1, calls.Load(), "the plan is kept")
	})
}

func TestPlansKeepNoErrors(t *testing.T) {
	t.Parallel()
	down := hongbao.Outagef(hongbao.ClassTransient, "no ledger")
	err := down
	id, spoil := "a", func(*hongbao.Campaign) {}
	p := newPlans(t, func(context.Context, string) (hongbao.Campaign, Seed, []TopUp, error) {
		c := tenPackets(id)
		spoil(&c)
		return c, Seed{1}, nil, err
	})
	_, _, got := p.Amount(t.Context(), "a", 1)
	require.ErrorIs(t, got, down)
	require.True(t, hongbao.IsOutage(got), "the error keeps the source's class")

	err, id = nil, "b"
	_, _, got = p.Amount(t.Context(), "a", 1)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(got), "another campaign than asked for")

	id = "a"
	spoil = func(c *hongbao.Campaign) { c.Total = 0 }
	_, _, got = p.Amount(t.Context(), "a", 1)
	require.Equal(t, "amount_not_positive", problemsOf(t, got)[0].Code)

	spoil = func(*hongbao.Campaign) {}
	amount, ok, got := p.Amount(t.Context(), "a", 1)
	require.NoError(t, got)
	require.True(t, ok)
	require.EqualValues(t, 7, amount)
}

// The caller that makes a plan is cancelled. Other callers that wait for the plan must not get that cancellation.
func TestPlansOutliveTheCallerWhoIsCalledOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		p := newPlans(t, func(ctx context.Context, id string) (hongbao.Campaign, Seed, []TopUp, error) {
			if calls.Add(1) == 1 {
				<-ctx.Done()
				return hongbao.Campaign{}, Seed{}, nil, ctx.Err()
			}
			return tenPackets(id), Seed{1}, nil, nil
		})
		first, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, _, err := p.Amount(first, "a", 1); !errors.Is(err, context.Canceled) {
				t.Errorf("the first caller got %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if amount, ok, err := p.Amount(t.Context(), "a", 1); amount != 7 || !ok || err != nil {
				t.Errorf("the second caller got %d, %t, %v", amount, ok, err)
			}
		})
		impatient, leave := context.WithCancel(t.Context())
		wg.Go(func() {
			_, _, err := p.Amount(impatient, "a", 1)
			if !errors.Is(err, context.Canceled) || hongbao.ClassOf(err) != hongbao.ClassTransient {
				t.Errorf("the cancelled caller got %v", err)
			}
		})
		synctest.Wait()
		leave()
		synctest.Wait()
		cancel()
		wg.Wait()
		require.EqualValues(t, 2, calls.Load())
	})
}

func TestPlansSurviveAPanic(t *testing.T) {
	t.Parallel()
	bad := true
	p := newPlans(t, func(_ context.Context, id string) (hongbao.Campaign, Seed, []TopUp, error) {
		if bad {
			panic("the source fell over")
		}
		return tenPackets(id), Seed{1}, nil, nil
	})
	require.Panics(t, func() { _, _, _ = p.Amount(t.Context(), "a", 1) })
	bad = false
	_, ok, err := p.Amount(t.Context(), "a", 1)
	require.NoError(t, err)
	require.True(t, ok)
}

func TestPlansLetGoOfTheLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	var asked []string
	p := newPlans(t, func(_ context.Context, id string) (hongbao.Campaign, Seed, []TopUp, error) {
		asked = append(asked, id)
		return tenPackets(id), Seed{1}, nil, nil
	})
	p.most = 30 // three plans; the smallest configurable value would be ten million
	use := func(ids ...string) {
		for _, id := range ids {
			_, _, err := p.Amount(t.Context(), id, 1)
			require.NoError(t, err)
			require.LessOrEqual(t, p.packets, p.most)
			require.EqualValues(t, p.packets, 10*len(p.held))
			require.Equal(t, len(p.held), p.recent.Len())
		}
	}
	use("a", "b", "c", "a", "d") // drops b, the least recently used plan
	require.Equal(t, []string{"a", "b", "c", "d"}, asked)
	use("a", "c", "d")
	require.Equal(t, []string{"a", "b", "c", "d"}, asked)
	use("b")
	require.Equal(t, []string{"a", "b", "c", "d", "b"}, asked)
}

func TestPlansUnderRace(t *testing.T) {
	t.Parallel()
	p := newPlans(t, func(_ context.Context, id string) (hongbao.Campaign, Seed, []TopUp, error) {
		return tenPackets(id), Seed{1}, nil, nil
	})
	p.most = 30
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 100 {
				if amount, ok, err := p.Amount(t.Context(), "c"+strconv.Itoa((i+k)%6), 3); amount != 7 || !ok || err != nil {
					t.Errorf("%d, %t, %v", amount, ok, err)
				}
			}
		})
	}
	wg.Wait()
}
