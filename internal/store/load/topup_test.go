package load

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// rain is a campaign on several places: the first generation is loaded, the second one is not.
type rain struct {
	*bundle
	loads *Loader
	spec  hongbao.Campaign
	next  *Generation
}

const more = 9 // packets of the top-up

func loadedRain(t *testing.T, b *bundle, id string, places int) *rain {
	t.Helper()
	c, plan, hash := coupons(t, id, places)
	c.Codes, c.Limits = nil, []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 1}}
	r := &rain{bundle: b, loads: b.loader(t, b.rdb), spec: c}
	require.NoError(t, r.loads.Load(t.Context(), c, plan, hash, nil))
	draw := campaign.TopUp{
		Campaign: id, Generation: 2, Packets: more, Total: 5 * more, Before: hash, Seed: campaign.NewSeed(),
		Split: hongbao.Split{Mode: hongbao.SplitTiers, Tiers: []hongbao.Tier{{Amount: 5, Packets: more}}},
	}
	of := c // a campaign with only the packets of the top-up
	of.Packets, of.Total, of.Split = draw.Packets, draw.Total, draw.Split
	added, err := campaign.NewPlan(of, draw.Seed)
	require.NoError(t, err)
	r.next = &Generation{Spec: c, Hash: hash, PlanHash: draw.Commit(), Number: 2, Packets: packets + more,
		Total: c.Total + draw.Total, Plan: &campaign.Plan{Amounts: slices.Concat(plan.Amounts, added.Amounts)}}
	return r
}

// whole checks that each packet of both generations is on its place, once and in order.
func (r *rain) whole(t *testing.T) {
	t.Helper()
	n := int64(r.spec.Places())
	for j, k := range r.store.Places(r.spec.ID, r.spec.Places()) {
		var first, second []string
		for p := int64(j) + 1; p <= packets+more; p += n {
			text := fmt.Sprintf("%d %d", p, r.next.Plan.Amounts[p-1])
			if p <= packets {
				first = append(first, text)
			} else {
				second = append(second, text)
			}
		}
		for generation, want := range map[int64][]string{1: first, 2: second} {
			has, err := r.rdb.LRange(t.Context(), k.Keys.StockOf(r.spec.ID, generation), 0, -1).Result()
			require.NoError(t, err)
			require.ElementsMatch(t, want, has)
			require.Equal(t, append([]string{}, want...), append([]string{}, has...), "in order")
		}
		m, err := k.CampaignFields(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, packets+more, m.Packets)
		require.Equal(t, r.next.Total, m.Total)
		require.EqualValues(t, 2, m.Dealt)
		require.EqualValues(t, len(first)+len(second), m.Loaded)
	}
}

// A top-up is killed at one of its script calls, before or after the script runs. A second top-up completes it. No
// place has packets of the generation before the generation is announced on every place.
func TestTopUpDiesOnAnyPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, places := range []int{1, 3, 4} {
		for _, ran := range []bool{false, true} {
			for lives := 0; ; lives++ {
				r := loadedRain(t, b, fmt.Sprintf("rain-%d-%d-%v", places, lives, ran), places)
				b.mortal.lives, b.mortal.ran = lives, ran
				dying := b.loader(t, b.mortal.client)
				dying.lease, r.loads.lease = 0, 0 // nobody grabs, so no wait is needed
				err := dying.TopUp(t.Context(), r.next, nil)
				if err == nil {
					require.Greater(t, lives, places*3, "it dies at many places")
					break
				}
				require.ErrorIs(t, err, errKilled)
				r.announcedFirst(t)
				require.NoError(t, r.loads.TopUp(t.Context(), r.next, nil))
				r.whole(t)
				require.NoError(t, r.loads.TopUp(t.Context(), r.next, nil), "a repeat")
				r.whole(t)
			}
		}
	}
}

// announcedFirst checks that the generation has packets in stock only if it is announced on every place.
func (r *rain) announcedFirst(t *testing.T) {
	t.Helper()
	var knowing, stocked int
	places := r.store.Places(r.spec.ID, r.spec.Places())
	for _, k := range places {
		m, err := k.CampaignFields(t.Context())
		require.NoError(t, err)
		if m.Generation == 2 {
			knowing++
		}
		n, err := r.rdb.LLen(t.Context(), k.Keys.StockOf(r.spec.ID, 2)).Result()
		require.NoError(t, err)
		stocked += int(n)
	}
	require.True(t, stocked == 0 || knowing == len(places), "announced on %d of %d places, %d packets in stock", knowing,
		len(places), stocked)
}

// grabs makes grabs by new users on one place, until one is refused. It returns the number of grants and the outcome
// of the refusal.
func (r *rain) grabs(t *testing.T, j int, generation int64) (won int, last hongbao.Outcome) {
	t.Helper()
	k := r.store.Places(r.spec.ID, r.spec.Places())[j]
	call := &store.GrabCall{MaxBacklog: 1_000_000, Generation: generation}
	for i := 0; ; i++ {
		call.Grabs = []*hongbao.Grab{{Campaign: r.spec.ID, User: fmt.Sprintf("u%d-%d-%d", j, generation, i)}}
		answers, err := k.Grab(t.Context(), call, nil)
		require.NoError(t, err)
		if answers[0].Outcome != hongbao.OutcomeGranted {
			return won, answers[0].Outcome
		}
		won++
	}
}

// Between the announcement and the last chunk, grabs are answered refilling. Afterwards each place grants its new
// packets.
func TestTopUpIsGrabbed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, places := range []int{1, 3} {
		r := loadedRain(t, b, fmt.Sprintf("rain-%d", places), places)
		won := 0
		for j := range places {
			n, last := r.grabs(t, j, 1)
			require.Equal(t, hongbao.OutcomeSoldOut, last)
			won += n
		}
		require.Equal(t, packets, won)
		b.mortal.lives, b.mortal.ran = places+1, false // dies after all announcements and one empty chunk
		require.ErrorIs(t, b.loader(t, b.mortal.client).TopUp(t.Context(), r.next, nil), errKilled)
		for j := range places {
			n, last := r.grabs(t, j, 2)
			require.Zero(t, n)
			require.Equal(t, hongbao.OutcomeRefilling, last)
		}
		require.NoError(t, r.loads.TopUp(t.Context(), r.next, nil))
		for j := range places {
			n, last := r.grabs(t, j, 2)
			require.Equal(t, hongbao.OutcomeSoldOut, last)
			won += n
		}
		require.Equal(t, packets+more, won)
		st, _, err := r.store.Campaign(r.spec.ID).Status(t.Context())
		require.NoError(t, err)
		require.Zero(t, st.Left)
		require.EqualValues(t, packets+more, st.Packets)
		require.Equal(t, r.next.Total, st.GrantedAmount)
	}
}

// A top-up of an unloaded or lost campaign fails with ErrTopUpWaits or ErrLost. A top-up that contradicts Redis is
// refused. Both change nothing.
func TestTopUpWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := loadedRain(t, b, "rain", 3)
	dealt, err := r.store.Campaign("rain").Dealt(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, dealt)
	_, err = r.store.Campaign("snow").Dealt(t.Context())
	require.ErrorIs(t, err, store.ErrTopUpWaits)
	require.NotErrorIs(t, err, store.ErrLost)

	other := *r.next
	other.Hash = "another"
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(r.loads.TopUp(t.Context(), &other, nil)))
	later := *r.next
	later.Number = 3
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(r.loads.TopUp(t.Context(), &later, nil)))

	k := r.store.Places("rain", 3)[2]
	require.NoError(t, b.rdb.HSet(t.Context(), k.Keys.Campaign("rain"), "state", store.StateFrozen).Err())
	require.ErrorIs(t, r.loads.TopUp(t.Context(), r.next, nil), store.ErrLost)
	_, err = r.store.Campaign("rain").Dealt(t.Context())
	require.ErrorIs(t, err, store.ErrTopUpWaits)
	require.ErrorIs(t, err, store.ErrLost)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	require.NoError(t, b.rdb.HSet(t.Context(), k.Keys.Campaign("rain"), "state", store.StateOpen).Err())
	require.NoError(t, r.loads.TopUp(t.Context(), r.next, nil))
	r.whole(t)
}

// After the last announcement, TopUp waits for the lease before it loads the first packet.
func TestTopUpWaitsForTheLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := loadedRain(t, b, "rain", 3)
	done := make(chan error, 1)
	go func() { done <- r.loads.TopUp(t.Context(), r.next, nil) }()
	var unannounced, stocked time.Time // last time without all announcements; first time with a packet
	testkit.Eventually(t, 20*time.Second, func() bool {
		now, knowing, packets := time.Now(), 0, int64(0)
		for _, k := range r.store.Places("rain", 3) {
			pipe := r.rdb.TxPipeline()
			generation, stock := pipe.HGet(t.Context(), k.Keys.Campaign("rain"), "generation"),
				pipe.LLen(t.Context(), k.Keys.StockOf("rain", 2))
			_, _ = pipe.Exec(t.Context()) // the field is absent before the announcement
			packets += stock.Val()
			if generation.Val() == "2" {
				knowing++
			}
		}
		if stocked = time.Now(); knowing < 3 {
			unannounced = now
		}
		return packets > 0
	}, "a packet is there")
	require.GreaterOrEqual(t, stocked.Sub(unannounced), 250*time.Millisecond)
	require.NoError(t, <-done)
	r.whole(t)
}
