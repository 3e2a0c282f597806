package campaign

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// addedTo returns n top-ups of a campaign. Each has five packets more than the top-up before.
func addedTo(t testing.TB, c hongbao.Campaign, n int) []TopUp {
	t.Helper()
	before, added := Commit(c, testSeed(t)), []TopUp(nil)
	for i := range n {
		packets := int64(5 * (i + 1))
		one := TopUp{Campaign: c.ID, Generation: i + 2, Packets: packets, Total: hongbao.Amount(packets * 20), Split: c.Split,
			Before: before, Seed: Seed{byte(i + 1)}}
		before, added = one.Commit(), append(added, one)
	}
	return added
}

// The canonical form and the hash of a top-up must never change, because published hashes must stay valid.
func TestTopUpIsWrittenAndHashedForEver(t *testing.T) {
	t.Parallel()
	c := tiersCampaign(hongbao.Tier{Amount: 7, Packets: 3})
	one := TopUp{Campaign: c.ID, Generation: 2, Packets: 3, Total: 21, Split: c.Split, Before: "b", Seed: testSeed(t)}
	const written = `{"campaign":"spring-2027","generation":2,"packets":3,"total":21,` +
		`"split":{"mode":"tiers","tiers":[{"amount":7,"packets":3}]},"before":"b"}`
	require.Equal(t, written, string(one.Canonical())) //nolint:testifylint // byte by byte, as the hash covers it
	require.Equal(t, "7f5ad78b07f18a9b8176016f500e40f8fca0d83ca8cedb225f57b0f062a47847", one.Commit())
	other := one
	other.Seed[31]++
	require.NotEqual(t, one.Commit(), other.Commit())
}

func TestTopUpIsDrawnByTheSameRules(t *testing.T) {
	t.Parallel()
	c := randomCampaign(10_000, 100, 1, 300)
	one := addedTo(t, c, 1)[0]
	require.NoError(t, one.Check(c))
	got, err := one.plan(c)
	require.NoError(t, err)
	c.Packets, c.Total = one.Packets, one.Total
	want, err := NewPlan(c, one.Seed)
	require.NoError(t, err)
	require.Equal(t, want, got)

	one.Seed = Seed{}
	require.ErrorContains(t, one.Check(c), "all zero")
	one.Total = 5 * 301
	_, err = one.plan(c)
	require.ErrorContains(t, err, "budget_too_large", "the campaign's bounds apply")
	require.Equal(t, err, one.Check(c))
	one.Campaign = "snow"
	_, err = one.plan(c)
	require.ErrorContains(t, err, "snow")
	require.Equal(t, err, one.Check(c))
}

// A cached plan also returns packets that were added later. It does not ask the source again for packets that it has.
func TestPlansLearnOfTopUps(t *testing.T) {
	t.Parallel()
	c := randomCampaign(1000, 10, 1, 500)
	added := addedTo(t, c, 3)
	var asked, has atomic.Int64
	p, err := NewPlans(PlansConfig{MaxPackets: hongbao.MaxPackets,
		Source: func(context.Context, string) (hongbao.Campaign, Seed, []TopUp, error) {
			asked.Add(1)
			return c, testSeed(t), added[:has.Load()], nil
		},
	})
	require.NoError(t, err)
	whole, err := NewPlan(c, testSeed(t))
	require.NoError(t, err)
	amounts := slices.Clone(whole.Amounts)
	agrees := func() {
		t.Helper()
		for i, want := range amounts {
			got, ok, err := p.Amount(t.Context(), c.ID, int64(i)+1)
			require.NoError(t, err)
			require.True(t, ok, "packet %d", i+1)
			require.Equal(t, want, got, "packet %d", i+1)
		}
	}
	agrees()
	require.EqualValues(t, 1, asked.Load())
	_, ok, err := p.Amount(t.Context(), c.ID, 11)
	require.NoError(t, err)
	require.False(t, ok)
	for _, n := range []int64{1, 3} {
		for i := has.Load(); i < n; i++ {
			more, err := added[i].plan(c)
			require.NoError(t, err)
			amounts = append(amounts, more.Amounts...)
		}
		has.Store(n)
		before := asked.Load()
		agrees()
		require.Equal(t, before+1, asked.Load())
	}
	require.Len(t, amounts, 40)
	whole, err = NewPlan(c, testSeed(t), added...)
	require.NoError(t, err)
	require.Equal(t, amounts, whole.Amounts)
	require.EqualValues(t, 40, p.packets, "a plan is kept once")
	_, ok, err = p.Amount(t.Context(), c.ID, 41)
	require.NoError(t, err)
	require.False(t, ok)
}

// A caller waits for a call that read the top-ups before its packet was added. It must not use that result, and asks
// again.
func TestPlansAskAgainAfterAnOlderCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := randomCampaign(1000, 10, 1, 500)
		added, has := addedTo(t, c, 1), atomic.Int64{}
		gate := make(chan struct{})
		p, err := NewPlans(PlansConfig{MaxPackets: hongbao.MaxPackets,
			Source: func(context.Context, string) (hongbao.Campaign, Seed, []TopUp, error) {
				list := added[:has.Load()]
				<-gate
				return c, testSeed(t), list, nil
			},
		})
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() { _, _, _ = p.Amount(t.Context(), c.ID, 1) })
		synctest.Wait() // the call has read the top-ups, and waits at the gate
		has.Store(1)
		wg.Go(func() {
			if _, ok, err := p.Amount(t.Context(), c.ID, 11); err != nil || !ok {
				t.Errorf("packet 11 was added: %t, %v", ok, err)
			}
		})
		synctest.Wait()
		close(gate)
		wg.Wait()
	})
}

func disclosed(t *testing.T, n int) (hongbao.Campaign, *Disclosure) {
	t.Helper()
	c := randomCampaign(1000, 10, 1, 500)
	d := &Disclosure{Format: DisclosureFormat, Campaign: c.ID, Canonical: string(Canonical(c)),
		Hash: Commit(c, testSeed(t)), Seed: testSeed(t).Hex()}
	for _, one := range addedTo(t, c, n) {
		d.TopUps = append(d.TopUps, DisclosedTopUp{string(one.Canonical()), one.Commit(), one.Seed.Hex()})
	}
	return c, d
}

func TestDisclosureWithTopUps(t *testing.T) {
	t.Parallel()
	_, d := disclosed(t, 2)
	text, err := json.Marshal(d)
	require.NoError(t, err)
	got, err := ReadDisclosure(strings.NewReader(string(text)))
	require.NoError(t, err)
	_, plan, err := got.Verify(got.Hashes()...)
	require.NoError(t, err)
	require.Len(t, plan.Amounts, 10+5+10)
	var sum hongbao.Amount
	for _, a := range plan.Amounts {
		sum += a
	}
	require.EqualValues(t, 1000+100+200, sum)
	_, old := disclosed(t, 0)
	text, err = json.Marshal(old)
	require.NoError(t, err)
	require.NotContains(t, string(text), "top_ups", "without top-ups the disclosure has no such field")
}

func TestDisclosureWithTopUpsThatWereAltered(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]func(d *Disclosure) (published string){
		"left out":        func(d *Disclosure) string { d.TopUps = d.TopUps[1:]; return "" },
		"last left out":   func(d *Disclosure) string { h := d.TopUps[1].Hash; d.TopUps = d.TopUps[:1]; return h },
		"in another turn": func(d *Disclosure) string { slices.Reverse(d.TopUps); return "" },
		"the seed":        func(d *Disclosure) string { d.TopUps[0].Seed = NewSeed().Hex(); return "" },
		"no seed":         func(d *Disclosure) string { d.TopUps[0].Seed = "00"; return "" },
		"its form":        func(d *Disclosure) string { d.TopUps[0].Canonical += " "; return "" },
		"no JSON":         func(d *Disclosure) string { d.TopUps[0].Canonical = "{"; return "" },
		"another key": func(d *Disclosure) string {
			d.TopUps[0].Canonical = strings.Replace(d.TopUps[0].Canonical, "{", `{"x":1,`, 1)
			return ""
		},
		"its total": func(d *Disclosure) string {
			d.TopUps[0].Canonical = strings.Replace(d.TopUps[0].Canonical, `"total":100`, `"total":101`, 1)
			return ""
		},
		"the hash": func(d *Disclosure) string { d.TopUps[0].Hash = strings.Repeat("0", 64); return "" },
		"a total that no packets can have": func(d *Disclosure) string {
			c, _ := disclosed(t, 0)
			one := addedTo(t, c, 1)[0]
			one.Total = 1
			d.TopUps = []DisclosedTopUp{{string(one.Canonical()), one.Commit(), one.Seed.Hex()}}
			return ""
		},
		"another promise": func(*Disclosure) string { return strings.Repeat("0", 64) },
	} {
		_, d := disclosed(t, 2)
		published := alter(d)
		_, _, err := d.Verify(published)
		require.Error(t, err, name)
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "%s: %v", name, err)
	}
}
