package producer_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

func (b *bundle) lose(t *testing.T, k *store.Shard) {
	t.Helper()
	meta := k.Keys.Meta()
	keys, err := b.admin.Keys(t.Context(), meta[:len(meta)-len("meta")]+"*").Result()
	require.NoError(t, err)
	require.Contains(t, keys, meta)
	require.NoError(t, b.admin.Del(t.Context(), keys...).Err())
}

// impatient makes the producer return undecided outcomes at once.
func impatient(c *producer.Config) { c.UndecidedTimeout = 0 }

// grabAsNewUser returns a function that grabs as a new user and returns the outcome. The user's first place, of two, is
// the given place.
func grabAsNewUser(t *testing.T, p *producer.Producer, request string) func(place int) hongbao.Outcome {
	t.Helper()
	number := 0
	return func(place int) hongbao.Outcome {
		t.Helper()
		a, err := p.Grab(t.Context(), grab(userWithHome(2, place, &number), request))
		require.NoError(t, err)
		return a.Outcome
	}
}

// Redis loses the shard of a campaign's home, and the shard is opened again. A new producer then knows neither the
// places nor the limits of the campaign. It answers frozen until the ledger has ended the campaign.
func TestHomeIsLost(t *testing.T) {
	t.Parallel()
	b := wide(t, 2)
	b.load(t, over(2, 6, 3))
	home := b.k
	b.lose(t, b.k)
	found, err := home.Freeze(t.Context())
	require.NoError(t, err)
	opened, err := home.Reopen(t.Context(), &store.Reopening{
		Was: found, Mark: store.Owner{Deployment: "test"}, Epoch: 2, Last: store.ChunkEvents - 1,
		Campaigns: []string{"rain"}, Places: map[string]int{"rain": 2},
	})
	require.NoError(t, err)
	require.True(t, opened)
	ask := grabAsNewUser(t, b.producer(t, nil), "")
	require.Equal(t, hongbao.OutcomeFrozen, ask(0))
	require.Equal(t, hongbao.OutcomeFrozen, ask(1))

	for _, k := range b.store.Places("rain", 2) {
		require.NoError(t, b.admin.HSet(t.Context(), k.Keys.Campaign("rain"), "state", "frozen").Err())
		require.NoError(t, k.EndLost(t.Context(), &store.LostCampaign{ID: "rain", Packets: 6}))
	}
	require.Equal(t, hongbao.OutcomeEnded, ask(0))
	require.Equal(t, hongbao.OutcomeEnded, ask(1))
}

// This build does not know the version of the campaign's walk. The error is Broken, because the caller can't help it.
func TestAnotherWalk(t *testing.T) {
	t.Parallel()
	b := wide(t, 2)
	b.load(t, over(2, 6, 3))
	require.NoError(t, b.admin.HSet(t.Context(), b.k.Keys.Campaign("rain"), "walk", "2").Err())
	_, err := b.producer(t, nil).Grab(t.Context(), grab("u1", "r1"))
	require.ErrorContains(t, err, `version "2"`)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
}

// A place does not have the campaign, because Redis lost it or has not loaded it yet. Grabs there are frozen: only the
// home proves that a campaign does not exist.
func TestPlaceIsLost(t *testing.T) {
	t.Parallel()
	b := wide(t, 2)
	b.load(t, over(2, 6, 1))
	key := b.store.Places("rain", 2)[1].Keys.Campaign("rain")
	require.NoError(t, b.admin.Rename(t.Context(), key, key+":hidden").Err())
	ask := grabAsNewUser(t, b.producer(t, impatient), "r1")
	require.Equal(t, hongbao.OutcomeFrozen, ask(1))
	require.Equal(t, hongbao.OutcomeGranted, ask(0))
	require.Equal(t, hongbao.OutcomeFrozen, ask(1))
	require.NoError(t, b.admin.Rename(t.Context(), key+":hidden", key).Err())
	require.Equal(t, hongbao.OutcomeGranted, ask(1))

	require.NoError(t, b.admin.Del(t.Context(), key, b.k.Keys.Campaign("rain")).Err())
	ask = grabAsNewUser(t, b.producer(t, impatient), "r1")
	require.Equal(t, hongbao.OutcomeUnknownCampaign, ask(1), "the campaign's home says so")
}

// Redis loses the shard of a place before the producer has looked at that place. Grabs there are answered frozen at
// once.
func TestShardOfAPlaceIsLost(t *testing.T) {
	t.Parallel()
	b := wide(t, 2)
	b.load(t, over(2, 6, 1))
	b.lose(t, b.store.Places("rain", 2)[1].Shard)
	ask := grabAsNewUser(t, b.producer(t, impatient), "r1")
	require.Equal(t, hongbao.OutcomeGranted, ask(0))
	require.Equal(t, hongbao.OutcomeFrozen, ask(1))
}

// Redis loses everything except its scripts. Grabs are answered frozen at once, also if the client retries calls. No
// grab gets an Unknown error.
func TestEmptiedRedisIsFrozen(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"no retries": -1, "retries": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.load(t, spec("rain", 10))
			_, rdb := b.through(t, retries)
			p := b.producer(t, func(c *producer.Config) {
				impatient(c)
				c.Deployment, c.CallTimeout = b.over(rdb), time.Second
			})
			a, err := p.Grab(t.Context(), grab("u1", "r1"))
			require.NoError(t, err)
			require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
			b.lose(t, b.k)
			for range 3 {
				a, err = p.Grab(t.Context(), grab("u2", "r1"))
				require.NoError(t, err)
				require.Equal(t, hongbao.OutcomeFrozen, a.Outcome)
			}
		})
	}
}

// A frozen shard, or a shard that was opened for another server, does not prove that a campaign does not exist. The
// answer is frozen until the shard is open, and then unknown_campaign.
func TestFrozenShardKnowsNoCampaign(t *testing.T) {
	t.Parallel()
	for name, field := range map[string]string{"frozen": "frozen", "opened for another server": "opened"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			was := b.admin.HGet(t.Context(), b.k.Keys.Meta(), field)
			require.NoError(t, b.admin.HSet(t.Context(), b.k.Keys.Meta(), field, "1").Err())
			p := b.producer(t, impatient)
			for range 2 {
				a, err := p.Grab(t.Context(), grab("u1", "r1"))
				require.NoError(t, err)
				require.Equal(t, hongbao.OutcomeFrozen, a.Outcome)
			}
			if was.Err() == nil {
				require.NoError(t, b.admin.HSet(t.Context(), b.k.Keys.Meta(), field, was.Val()).Err())
			} else {
				require.NoError(t, b.admin.HDel(t.Context(), b.k.Keys.Meta(), field).Err())
			}
			a, err := p.Grab(t.Context(), grab("u1", "r1"))
			require.NoError(t, err)
			require.Equal(t, hongbao.OutcomeUnknownCampaign, a.Outcome)
		})
	}
}

// A grab waits for a frozen shard for up to UndecidedTimeout. This also holds for the first grab in a campaign, and
// all callers then share one lookup.
func TestGrabWaitsUntilTheShardIsOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 100))
	var calls atomic.Int64
	patient := func(c *producer.Config) {
		c.UndecidedTimeout = 20 * time.Second
		c.Called = func(producer.Call) { calls.Add(1) }
	}
	known := b.producer(t, patient)
	_, err := known.Grab(t.Context(), grab("u1", "r1"))
	require.NoError(t, err)
	meta := b.k.Keys.Meta()
	require.NoError(t, b.admin.HSet(t.Context(), meta, "frozen", "1").Err())

	soon := b.producer(t, func(c *producer.Config) { c.UndecidedTimeout = 200 * time.Millisecond })
	began := time.Now()
	a, err := soon.Grab(t.Context(), grab("u2", "r2"))
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeFrozen, a.Outcome)
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)

	const callers = 40
	looks, rdb := b.counting(t, "hmget"+b.k.Keys.Campaign("rain"))
	fresh := b.producer(t, func(c *producer.Config) {
		c.Deployment, c.UndecidedTimeout, c.QueueTimeout = b.over(rdb), 20*time.Second, 100*time.Millisecond // the freeze lasts longer
	})
	answers := make(chan hongbao.Answer, callers+1)
	var open atomic.Bool
	ask := func(p *producer.Producer, user string) {
		a, err := p.Grab(t.Context(), grab(user, "r3"))
		for err != nil && open.Load() && hongbao.IsOutage(err) { // it waited in the queue while the machine was busy
			a, err = p.Grab(t.Context(), grab(user, "r3"))
		}
		if err != nil {
			t.Error(err)
		}
		answers <- a
	}
	before := calls.Load()
	go ask(known, "v")
	for i := range callers {
		go ask(fresh, fmt.Sprint("w", i))
	}
	looked := int64(0)
	testkit.Eventually(t, 20*time.Second, func() bool {
		looked = looks.n.Load()
		return calls.Load() >= before+2 && looked >= 3
	}, "both producers got frozen, and asked again")
	require.Empty(t, answers)
	require.Less(t, looked, int64(callers), "a look serves all callers")
	open.Store(true)
	require.NoError(t, b.admin.HDel(t.Context(), meta, "frozen").Err())
	for range callers + 1 {
		require.Equal(t, hongbao.OutcomeGranted, (<-answers).Outcome)
	}
}
