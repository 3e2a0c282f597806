package test

import (
	"context"
	"fmt"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
)

var settlingCases = map[string]func(*testing.T, *settlementUnderTest){
	"a repeat changes nothing":         settleRepeat,
	"campaigns and currencies":         settleMany,
	"coupons without a value":          settleCoupons,
	"a long batch":                     settleLong,
	"altered replays (F37)":            settleAltered,
	"twice in one batch":               settleTwice,
	"ids are compared byte by byte":    settleIDs,
	"not planned":                      settleNotPlanned,
	"the plan can't be asked":          settlePlanFails,
	"malformed grants":                 settleMalformed,
	"overlapping settlers":             settleOverlapping,
	"the caller gives up":              settleCancelled,
	"random histories against a model": settleModel,
}

// settlementUnderTest is an implementation of settlementImpl, with one worker and the plan of the test.
type settlementUnderTest struct {
	settlementImpl
	plan  *planned
	first hongbao.Handler
}

// decided returns a grant of a packet, as Redis decides it. A grant of another version has another seq and user, as if
// Redis had lost the first decision and granted the packet again.
func decided(campaign string, packet int64, version int) hongbao.Grant {
	var at int64
	for _, c := range campaign {
		at = (at*31 + int64(c)) % 1_000_000_007
	}
	g := hongbao.Grant{
		Shard: 1, Seq: at*20_000 + int64(version)*2_000 + packet, Epoch: 1, Campaign: campaign, Packet: packet,
		Amount: amountOf(packet),
		User:   fmt.Sprintf("u%d", packet*7919%13), RequestID: fmt.Sprintf("r%d", packet),
		Time: time.UnixMilli(1_700_000_000_000 + packet).UTC(),
	}
	if version > 0 {
		g.User = fmt.Sprintf("thief%d", version)
	}
	return g
}

func allDecided(campaign string, first, last int64) (list []hongbao.Grant) {
	for p := first; p <= last; p++ {
		list = append(list, decided(campaign, p, 0))
	}
	return list
}

// settles passes grants to the worker, and requires that all are settled.
func (b *settlementUnderTest) settles(t *testing.T, grants ...hongbao.Grant) {
	t.Helper()
	require.Nil(t, b.first.Handle(t.Context(), testkit.Batch(grants)))
}

// quarantines passes grants to the worker, and returns the packets of the grants that now wait for a person.
func (b *settlementUnderTest) quarantines(t *testing.T, grants ...hongbao.Grant) []int64 {
	t.Helper()
	return b.aside(t, grants, b.first.Handle(t.Context(), testkit.Batch(grants)))
}

// paid checks that the users were paid exactly these grants, each once, and that the users in others were paid nothing.
func (b *settlementUnderTest) paid(t *testing.T, currency string, grants []hongbao.Grant, others ...string) {
	t.Helper()
	b.agrees(t)
	want := map[string][]hongbao.Amount{}
	for _, g := range grants {
		want[g.User] = append(want[g.User], g.Amount)
	}
	for _, user := range others {
		want[user] = nil
	}
	for user, amounts := range want {
		require.ElementsMatch(t, amounts, b.statement(t, user, currency), user)
		var sum hongbao.Amount
		for _, a := range amounts {
			sum += a
		}
		require.Equal(t, sum, b.balance(t, user, currency), user)
	}
}

func settleRepeat(t *testing.T, b *settlementUnderTest) {
	b.create(t, "rain", "CNY", 100)
	all := allDecided("rain", 1, 70)
	b.settles(t, all[:50]...)
	b.settles(t, all[:50]...)
	b.settles(t, all[20:]...)
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	b.settles(t, reversed...)
	b.settles(t)
	require.Nil(t, b.worker(t).Handle(t.Context(), testkit.Batch(all)), "another process")
	b.paid(t, "CNY", all)
}

func settleMany(t *testing.T, b *settlementUnderTest) {
	b.create(t, "rain", "CNY", 30)
	b.create(t, "snow", "CNY", 30)
	b.create(t, "usd", "USD", 30)
	var mixed []hongbao.Grant
	for p := int64(30); p >= 1; p-- {
		mixed = append(mixed, decided("usd", p, 0), decided("rain", p, 0), decided("snow", p, 0))
	}
	b.settles(t, mixed...)
	b.settles(t, mixed[:45]...)
	b.paid(t, "CNY", append(allDecided("rain", 1, 30), allDecided("snow", 1, 30)...))
	b.paid(t, "USD", allDecided("usd", 1, 30))
}

func settleCoupons(t *testing.T, b *settlementUnderTest) {
	b.create(t, "coupon", "", 5)
	coupons := allDecided("coupon", 1, 5)
	for i := range coupons {
		coupons[i].Amount = 0
		b.plan.forged[planKey("coupon", coupons[i].Packet)] = 0
	}
	b.settles(t, coupons...)
	b.settles(t, coupons...)
	b.agrees(t)
	require.Zero(t, b.balance(t, coupons[0].User, "CNY"))
}

func settleLong(t *testing.T, b *settlementUnderTest) {
	const packets = 600
	b.create(t, "rain", "CNY", packets)
	all := allDecided("rain", 1, packets)
	b.settles(t, all[:3]...)
	b.settles(t, all...)
	b.paid(t, "CNY", all)
}

func settleAltered(t *testing.T, b *settlementUnderTest) {
	b.create(t, "rain", "CNY", 10)
	b.settles(t, allDecided("rain", 1, 4)...)
	more := decided("rain", 2, 2)
	more.Amount++
	b.plan.forged[planKey("rain", 2)] = more.Amount // a wrong plan; otherwise the plan check would fail first
	altered := []hongbao.Grant{decided("rain", 1, 1), more, decided("rain", 5, 0)}
	for range 3 { // a repeat changes nothing
		require.Equal(t, []int64{1, 2}, b.quarantines(t, altered...))
	}
	b.paid(t, "CNY", allDecided("rain", 1, 5), "thief1", "thief2")
}

func settleTwice(t *testing.T, b *settlementUnderTest) {
	b.create(t, "rain", "CNY", 10)
	b.settles(t, decided("rain", 2, 0), decided("rain", 1, 0), decided("rain", 2, 0), decided("rain", 1, 0),
		decided("rain", 1, 0))
	require.Equal(t, []int64{2}, b.quarantines(t, decided("rain", 3, 0), decided("rain", 2, 1), decided("rain", 3, 0)))
	b.paid(t, "CNY", allDecided("rain", 1, 3), "thief1")
}

func settleIDs(t *testing.T, b *settlementUnderTest) {
	long, marks := "", ""
	for c := byte('!'); c <= '~'; c++ {
		marks += string(c)
	}
	for len(long) < hongbao.MaxIDLength {
		long += `\`
	}
	users := []string{"ann", "Ann", "ANN", marks, long, `"`, `'`, `\'`, `$1`, `?`, `%`, `%2e`, `;--`, "<&>", "a/b", "a//b", "#"}
	b.create(t, "rain", "CNY", int64(len(users)))
	grants := allDecided("rain", 1, int64(len(users)))
	for i := range grants {
		grants[i].User = users[i]
	}
	b.settles(t, grants...)
	b.settles(t, grants...)
	b.paid(t, "CNY", grants)
	other := decided("rain", 1, 1)
	other.User = "Ann"
	require.Equal(t, []int64{1}, b.quarantines(t, other))
	b.paid(t, "CNY", grants)
}

func settleNotPlanned(t *testing.T, b *settlementUnderTest) {
	b.create(t, "rain", "CNY", 10)
	more, beyond := decided("rain", 1, 0), decided("rain", 1_001, 0)
	more.Amount++
	for range 2 {
		require.ElementsMatch(t, []int64{1, 1_001}, b.quarantines(t, more, decided("rain", 3, 0), beyond))
	}
	b.paid(t, "CNY", allDecided("rain", 3, 3), more.User, beyond.User)
}

func settlePlanFails(t *testing.T, b *settlementUnderTest) {
	b.create(t, "rain", "CNY", 10)
	b.plan.set(func() { b.plan.down = true })
	errs := b.first.Handle(t.Context(), testkit.Batch(allDecided("rain", 1, 3)))
	require.Len(t, errs, 3)
	for _, err := range errs {
		require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%v", err)
		require.True(t, hongbao.IsOutage(err))
	}
	b.plan.set(func() { b.plan.down = false })
	b.paid(t, "CNY", nil, decided("rain", 1, 0).User, decided("rain", 2, 0).User)
	b.settles(t, allDecided("rain", 1, 3)...)
	b.paid(t, "CNY", allDecided("rain", 1, 3))
}

func settleMalformed(t *testing.T, b *settlementUnderTest) {
	b.create(t, "rain", "CNY", 10)
	bad := allDecided("rain", 1, 5)
	bad[0].User = ""
	bad[1].User = "a\x00b"
	bad[2].User = "two words"
	bad[3].Campaign = "No Such"
	errs := b.first.Handle(t.Context(), testkit.Batch(bad))
	require.Len(t, errs, 5)
	for _, err := range errs[:4] {
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), "%v", err)
	}
	require.NoError(t, errs[4])
	b.paid(t, "CNY", allDecided("rain", 5, 5))
}

// settleOverlapping lets several workers settle overlapping batches in random order.
func settleOverlapping(t *testing.T, b *settlementUnderTest) {
	const packets, workers = 150, 6
	b.create(t, "rain", "CNY", packets)
	b.create(t, "snow", "CNY", packets)
	var group errgroup.Group
	for range workers {
		w := b.worker(t)
		all := append(allDecided("rain", 1, packets), allDecided("snow", 1, packets)...)
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		group.Go(func() error {
			for batch := range slices.Chunk(all, 1+rand.IntN(60)) {
				if err := untilSettled(t.Context(), w, batch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	b.paid(t, "CNY", append(allDecided("rain", 1, packets), allDecided("snow", 1, packets)...))
}

// untilSettled retries a batch until all of it is settled, as a consumer does. Grants that another worker is settling
// return a transient error.
func untilSettled(ctx context.Context, w hongbao.Handler, batch []hongbao.Grant) error {
	for {
		var rest []hongbao.Grant
		for i, err := range w.Handle(ctx, testkit.Batch(batch)) {
			if err != nil && hongbao.ClassOf(err) != hongbao.ClassTransient || ctx.Err() != nil {
				return err
			}
			if err != nil {
				rest = append(rest, batch[i])
			}
		}
		if batch = rest; len(batch) == 0 {
			return nil
		}
	}
}

// settleCancelled checks that a cancelled call pays nothing. The next call pays each grant once.
func settleCancelled(t *testing.T, b *settlementUnderTest) {
	b.create(t, "rain", "CNY", 10)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	errs := b.first.Handle(ctx, testkit.Batch(allDecided("rain", 1, 5)))
	require.Len(t, errs, 5)
	for _, err := range errs {
		require.ErrorIs(t, err, context.Canceled)
		require.Contains(t, []hongbao.Class{hongbao.ClassTransient, hongbao.ClassUnknown}, hongbao.ClassOf(err),
			"the grant comes again: %v", err)
	}
	b.paid(t, "CNY", nil, decided("rain", 1, 0).User)
	b.settles(t, allDecided("rain", 1, 5)...)
	b.paid(t, "CNY", allDecided("rain", 1, 5))
}

// settleModel compares random histories with a simple model: the first version of a packet is paid, and each other
// version waits for a person.
func settleModel(t *testing.T, b *settlementUnderTest) {
	var histories atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		id := fmt.Sprintf("c%d", histories.Add(1))
		b.create(t, id, "CNY", 6)
		has := map[int64]hongbao.Grant{}
		draw := rapid.Custom(func(rt *rapid.T) hongbao.Grant {
			g := decided(id, rapid.Int64Range(1, 6).Draw(rt, "packet"),
				rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(rt, "version"))
			g.User = id + g.User // each history has its own users
			return g
		})
		for _, batch := range rapid.SliceOfN(rapid.SliceOfNDistinct(draw, 1, 6,
			func(g hongbao.Grant) int64 { return g.Packet }), 1, 4).Draw(rt, "batches") {
			var want []int64
			for _, g := range batch {
				if first, ok := has[g.Packet]; !ok {
					has[g.Packet] = g
				} else if first.User != g.User {
					want = append(want, g.Packet)
				}
			}
			require.Equal(rt, want, b.quarantines(t, batch...))
		}
		var paid []hongbao.Grant
		for _, g := range has {
			paid = append(paid, g)
		}
		b.paid(t, "CNY", paid)
	})
}
