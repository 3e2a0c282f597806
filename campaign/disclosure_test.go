package campaign_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
)

// disclosure returns a disclosure whose campaign name can be escaped in JSON in several ways.
func disclosure(t *testing.T) (campaign.Disclosure, *campaign.Plan) {
	t.Helper()
	now := time.Now().Truncate(time.Millisecond)
	c := campaign.Complete(hongbao.Campaign{
		ID: "rain", Name: `spring <rain> & "snow" 红包`, Kind: hongbao.KindRedPacket, Currency: "CNY", Total: 1000, Packets: 20,
		Split: hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: 200}, From: now.Add(-time.Hour), To: now.Add(time.Hour),
		TimeZone: "Asia/Shanghai", Sponsor: "acme", Durability: hongbao.DurabilityFast,
	})
	seed := campaign.NewSeed()
	plan, err := campaign.NewPlan(c, seed)
	require.NoError(t, err)
	return campaign.Disclosure{
		Format: campaign.DisclosureFormat, Campaign: c.ID, Canonical: string(campaign.Canonical(c)),
		Hash: campaign.Commit(c, seed), Seed: seed.Hex(), Revealed: now.UTC(),
	}, plan
}

func TestDisclosureRecomputesTheDraw(t *testing.T) {
	t.Parallel()
	d, plan := disclosure(t)
	text, err := json.MarshalIndent(d, "", "  ")
	require.NoError(t, err)
	got, err := campaign.ReadDisclosure(bytes.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, d, got)
	for _, published := range []string{"", d.Hash} {
		c, again, err := got.Verify(published)
		require.NoError(t, err)
		require.Equal(t, "rain", c.ID)
		require.Equal(t, plan, again)
	}
}

func TestDisclosureThatWasAltered(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]func(d *campaign.Disclosure) (published string){
		"the seed": func(d *campaign.Disclosure) string {
			d.Seed = campaign.NewSeed().Hex()
			return ""
		},
		"no seed": func(d *campaign.Disclosure) string { d.Seed = "00"; return "" },
		"the total": func(d *campaign.Disclosure) string {
			d.Canonical = strings.Replace(d.Canonical, `"total":1000`, `"total":1001`, 1)
			return ""
		},
		"its form": func(d *campaign.Disclosure) string { d.Canonical += " "; return "" },
		"its id":   func(d *campaign.Disclosure) string { d.Campaign = "snow"; return "" },
		"no JSON":  func(d *campaign.Disclosure) string { d.Canonical = "{"; return "" },
		"the hash": func(d *campaign.Disclosure) string { d.Hash = strings.Repeat("0", 64); return "" },
		"another promise": func(d *campaign.Disclosure) string {
			return strings.Repeat("0", 64) // a consistent disclosure, but not of the published hash
		},
	} {
		d, _ := disclosure(t)
		published := alter(&d)
		_, _, err := d.Verify(published)
		require.Error(t, err, name)
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "%s: %v", name, err)
	}
	for _, text := range []string{"", "{", "[]", `{"format":"hongbao.reveal.v2"}`, `{"format":"hongbao.reveal.v1","sed":"x"}`} {
		_, err := campaign.ReadDisclosure(strings.NewReader(text))
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), text)
	}
}

func TestCheckGrants(t *testing.T) {
	t.Parallel()
	_, plan := disclosure(t)
	line := func(id string, packet int64, user string, amount hongbao.Amount) string {
		return fmt.Sprintf(`{"partition":0,"offset":7,"event":"0-%d","campaign":"%s","packet":%d,"user":"%s","amount":%d,"time":"2026-01-01T00:00:00Z"}`+"\n",
			packet, id, packet, user, amount)
	}
	good := line("rain", 1, "u1", plan.Amounts[0]) + line("rain", 20, "u2", plan.Amounts[19]) + line("snow", 1, "u1", 5) +
		line("rain", 1, "u1", plan.Amounts[0])
	got, err := campaign.CheckGrants(strings.NewReader(good), "rain", plan)
	require.NoError(t, err)
	require.Equal(t, campaign.GrantsChecked{Grants: 2, Amount: plan.Amounts[0] + plan.Amounts[19], Repeated: 1, Others: 1},
		got)
	for text, says := range map[string]string{
		line("rain", 2, "u3", plan.Amounts[1]+1): "line 5: packet 2 was given with amount",
		line("rain", 1, "u9", plan.Amounts[0]):   `packet 1 was given to "u9"`,
		line("rain", 21, "u3", 1):                "no packet 21",
		line("rain", 0, "u3", 1):                 "no packet 0",
	} {
		_, err := campaign.CheckGrants(strings.NewReader(good+text), "rain", plan)
		require.ErrorContains(t, err, says)
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err))
	}
	_, err = campaign.CheckGrants(strings.NewReader(good+"{\n"), "rain", plan)
	require.ErrorContains(t, err, "line 5 is not")
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	_, err = campaign.CheckGrants(strings.NewReader(strings.Repeat("x", 2<<20)), "rain", plan)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
}

func FuzzReadDisclosure(f *testing.F) {
	f.Add(`{"format":"hongbao.reveal.v1","campaign":"rain","canonical":"{}","plan_hash":"","seed":"","revealed_at":"2026-01-01T00:00:00Z"}`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := campaign.ReadDisclosure(strings.NewReader(text))
		if err != nil {
			return
		}
		if _, plan, err := d.Verify(""); err == nil {
			require.NotEmpty(t, plan.Amounts)
		}
	})
}
