package campaign

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
)

// The expected plans were computed by the Python program in docs/campaigns.md. They must never change, because the
// plans of open campaigns would change too.
func TestPlanGolden(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		campaign hongbao.Campaign
		want     []hongbao.Amount
	}{
		"even": {evenCampaign(103, 10), []hongbao.Amount{10, 10, 10, 10, 10, 11, 10, 10, 11, 11}},
		"tiers": {
			tiersCampaign(hongbao.Tier{Amount: 500, Packets: 1}, hongbao.Tier{Amount: 100, Packets: 2},
				hongbao.Tier{Amount: 1, Packets: 7}),
			[]hongbao.Amount{1, 1, 1, 1, 1, 100, 1, 1, 500, 100},
		},
		"random": {randomCampaign(1000, 10, 1, 1000),
			[]hongbao.Amount{35, 21, 233, 166, 176, 174, 74, 23, 87, 11}},
		"random, near max": {randomCampaign(1000, 10, 50, 120),
			[]hongbao.Amount{110, 90, 109, 88, 84, 80, 117, 100, 107, 115}},
		"random, the utmost": {randomCampaign(hongbao.MaxAmount, 8, 1, hongbao.MaxAmount), []hongbao.Amount{618853290778583,
			111889086432627, 1415416679432879, 711262009419130, 2328927203362637, 430164352031235, 2872826814537140,
			517859818746760}},
	} {
		plan, err := NewPlan(tt.campaign, testSeed(t))
		require.NoError(t, err, name)
		require.Equal(t, tt.want, plan.Amounts, name)
	}

	plan, err := NewPlan(randomCampaign(1_000_000, 50_000, 1, 90), testSeed(t))
	require.NoError(t, err)
	texts := make([]string, len(plan.Amounts))
	for i, a := range plan.Amounts {
		texts[i] = strconv.FormatInt(int64(a), 10)
	}
	sum := sha256.Sum256([]byte(strings.Join(texts, ",")))
	require.Equal(t, "03a4e2f43588264e3829e44534f72c5943d4bc55b72fc279e4330fa869dbebed", hex.EncodeToString(sum[:]))
}

func drawSeed(t *rapid.T) Seed {
	var s Seed
	s[0] = 1 // never all zero
	copy(s[1:], rapid.SliceOfN(rapid.Byte(), len(s)-1, len(s)-1).Draw(t, "seed"))
	return s
}

func drawCampaign(t *rapid.T) hongbao.Campaign {
	packets := rapid.Int64Range(1, 300).Draw(t, "packets")
	switch rapid.SampledFrom([]hongbao.SplitMode{hongbao.SplitEven, hongbao.SplitRandom, hongbao.SplitTiers}).Draw(t,
		"mode") {
	case hongbao.SplitEven:
		return evenCampaign(hongbao.Amount(rapid.Int64Range(packets, int64(hongbao.MaxAmount)).Draw(t, "total")), packets)
	case hongbao.SplitRandom:
		low := rapid.Int64Range(1, int64(hongbao.MaxAmount)/packets).Draw(t, "min")
		high := rapid.Int64Range(low, int64(hongbao.MaxAmount)).Draw(t, "max")
		most := int64(times(packets, hongbao.Amount(high)))
		total := rapid.Int64Range(low*packets, min(most, int64(hongbao.MaxAmount))).Draw(t, "total")
		return randomCampaign(hongbao.Amount(total), packets, hongbao.Amount(low), hongbao.Amount(high))
	}
	return tiersCampaign(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) hongbao.Tier {
		return hongbao.Tier{
			Amount:  hongbao.Amount(rapid.Int64Range(1, 1<<40).Draw(t, "amount")),
			Packets: rapid.Int64Range(1, 50).Draw(t, "packets"),
		}
	}), 1, 8).Draw(t, "tiers")...)
}

func TestPlanProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, seed := drawCampaign(t), drawSeed(t)
		plan, err := NewPlan(c, seed)
		require.NoError(t, err)
		require.Len(t, plan.Amounts, int(c.Packets))
		var sum hongbao.Amount
		for _, a := range plan.Amounts {
			sum += a
		}
		require.Equal(t, c.Total, sum)

		again, err := NewPlan(c, seed)
		require.NoError(t, err)
		require.Equal(t, plan, again)

		sorted := slices.Sorted(slices.Values(plan.Amounts))
		switch c.Split.Mode {
		case hongbao.SplitEven:
			each, more := c.Total/hongbao.Amount(c.Packets), c.Packets-int64(c.Total)%c.Packets
			for i, a := range sorted {
				want := each
				if int64(i) >= more {
					want++
				}
				require.Equal(t, want, a)
			}
		case hongbao.SplitTiers:
			var want []hongbao.Amount
			for _, tier := range c.Split.Tiers {
				want = append(want, slices.Repeat([]hongbao.Amount{tier.Amount}, int(tier.Packets))...)
			}
			slices.Sort(want)
			require.Equal(t, want, sorted)
		case hongbao.SplitRandom:
			require.GreaterOrEqual(t, sorted[0], c.Split.Min)
			require.LessOrEqual(t, sorted[len(sorted)-1], c.Split.Max)
		}
	})
}

// luckiest draws many plans of a hundred packets, and counts how often each index has the largest packet.
func luckiest(plans int, mix bool) [100]int {
	c := randomCampaign(1_000_000, 100, 1, 1_000_000)
	var counts [100]int
	for i := range plans {
		var seed Seed
		binary.BigEndian.PutUint64(seed[:], uint64(i)+1)
		s := newStream(seed)
		amounts := cut(&c, s)
		if mix {
			shuffle(amounts, s)
		}
		counts[slices.Index(amounts, slices.Max(amounts))]++
	}
	return counts
}

func TestShuffleMakesPlacesEqual(t *testing.T) {
	t.Parallel()
	const plans = 20_000
	last := luckiest(plans, false)[99]
	require.InDelta(t, 0.077, float64(last)/plans, 0.01, "without the shuffle the last packet is favoured")

	const want = plans / 100.0
	var chi float64
	for _, n := range luckiest(plans, true) {
		chi += (float64(n) - want) * (float64(n) - want) / want
	}
	// The 0.1% critical value for 99 degrees of freedom is 148.2. The seeds are fixed, so the test can't fail by
	// chance.
	require.Less(t, chi, 148.2)
	require.Greater(t, chi, 60.0, "a chi-square this low would not be random")
}

// If the mean is near the maximum, the early packets must keep that mean, and packets must not pile up at the maximum.
func TestRandomKeepsItsMeanNearTheMaximum(t *testing.T) {
	t.Parallel()
	c := randomCampaign(80_000, 1000, 1, 100)
	amounts := cut(&c, newStream(testSeed(t)))
	var first, atMax hongbao.Amount
	for i, a := range amounts {
		if i < 500 {
			first += a
		}
		if a == c.Split.Max {
			atMax++
		}
	}
	require.InDelta(t, 80, float64(first)/500, 3)
	require.Less(t, int(atMax), 100)
}

func TestBelowIsUniform(t *testing.T) {
	t.Parallel()
	s := newStream(testSeed(t))
	// Modulo without rejection would return the numbers below n/3 twice as often as the others.
	const n, draws = uint64(3) << 62, 30_000
	low := 0
	for range draws {
		r := s.below(n)
		require.Less(t, r, n)
		if r < n/3 {
			low++
		}
	}
	require.InDelta(t, 1.0/3, float64(low)/draws, 0.015)
	for range 100 {
		require.Zero(t, s.below(1))
	}
}

func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	_, err := NewPlan(evenCampaign(9, 10), testSeed(t))
	require.Equal(t, "budget_too_small", problemsOf(t, err)[0].Code)
	_, err = NewPlan(evenCampaign(10, 10), Seed{})
	require.ErrorContains(t, err, "all zero")
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
}

func TestPlanAmount(t *testing.T) {
	t.Parallel()
	plan := &Plan{Amounts: []hongbao.Amount{7, 8}}
	for packet, want := range map[int64]hongbao.Amount{-1: 0, 0: 0, 1: 7, 2: 8, 3: 0, 1 << 62: 0} {
		got, ok := plan.Amount(packet)
		require.Equal(t, want, got, packet)
		require.Equal(t, want != 0, ok, packet)
	}
}

func TestSeed(t *testing.T) {
	t.Parallel()
	s := NewSeed()
	require.NotEqual(t, s, NewSeed())
	back, err := ParseSeed(s.Hex())
	require.NoError(t, err)
	require.Equal(t, s, back)
	for _, format := range []string{"%v", "%s", "%x", "%q", "%+v", "%#v"} {
		shown := fmt.Sprintf(format, s)
		require.NotContains(t, strings.ToLower(shown), s.Hex()[:8], format)
		require.NotContains(t, shown, fmt.Sprintf("%d, %d", s[0], s[1]), format)
	}
	for _, text := range []string{"", s.Hex()[:63], s.Hex() + "0", "g" + s.Hex()[1:]} {
		_, err := ParseSeed(text)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), text)
		require.NotContains(t, err.Error(), s.Hex()[1:9])
	}
}

func TestCommitment(t *testing.T) {
	t.Parallel()
	c, seed := wholeCampaign(), testSeed(t)
	hash := Commit(c, seed)
	sum := sha256.Sum256(append([]byte("hongbao.commit.v1\n"+string(Canonical(c))+"\n"), seed[:]...))
	require.Equal(t, hex.EncodeToString(sum[:]), hash)
	require.NoError(t, Verify(c, seed, hash))

	other := c
	other.Packets++
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(Verify(other, seed, hash)))
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(Verify(c, NewSeed(), hash)))
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(Verify(c, seed, "\n")))
}

func BenchmarkNewPlanTenMillion(b *testing.B) {
	c := randomCampaign(1_000_000_000, hongbao.MaxPackets, 1, 10_000)
	for b.Loop() {
		if _, err := NewPlan(c, testSeed(b)); err != nil {
			b.Fatal(err)
		}
	}
}
