package control

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/apikeys"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
)

// A treasurer adds packets over HTTP. A repeated request has no further effect, and a wrong expected total is
// refused.
func TestTopUp(t *testing.T) {
	t.Parallel()
	for _, postgres := range []bool{false, true} {
		t.Run(fmt.Sprint("postgres ", postgres), func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{postgres: postgres})
			d.campaign("rain-1", 10, 1_000)
			const path = "/v1/campaigns/rain-1/top-ups"
			const order = `{"id":"more","packets":5,"total":700,"expect":1000,"why":"it rains so well"}`
			var added model.TopUp
			key := func(r *http.Request) { r.Header.Set("Idempotency-Key", "once") }
			for range 2 {
				d.post("treasurer", path, order, key).OK(t, http.StatusOK, &added)
			}
			hash, canonical := added.Hash, added.Canonical
			require.Contains(t, canonical, "rain-1")
			d.post("treasurer", path, order).OK(t, http.StatusOK, &added)
			require.Equal(t, hash, added.Hash, "the same order with another Idempotency-Key")
			require.Equal(t, 2, added.Generation)
			require.EqualValues(t, 11, added.First)
			require.EqualValues(t, 1_700, added.Funded)

			d.post("treasurer", path, `{"id":"late","packets":5,"total":700,"expect":1000,"why":"w"}`).
				Refused(t, "funded_otherwise")
			d.post("treasurer", path, `{"id":"more","packets":6,"total":700,"expect":1000,"why":"w"}`).
				Refused(t, "order_reused")
			d.post("treasurer", path, `{"id":"x","packets":5,"total":3,"expect":1700,"why":"w"}`).
				Refused(t, "specification_impossible")
			d.post("treasurer", path, `{"id":"x","packets":5,"total":700,"expect":1700,"why":"w","tiers":"7x5"}`).
				Refused(t, "refused")
			for _, body := range []string{`{}`, `{"id":"x","packets":0,"total":1,"expect":1,"why":"w"}`,
				`{"id":"x y","packets":1,"total":1,"expect":1,"why":"w"}`, `{"id":"x","packets":1,"total":1,"expect":1}`,
				`{"id":"x","packets":1,"total":1,"expect":1,"why":"w","tiers":"x"}`} {
				r := d.post("treasurer", path, body)
				require.Equal(t, http.StatusBadRequest, r.Status, r.Text)
			}
			var shown campaigns.Shown
			d.get("viewer", "/v1/campaigns/rain-1").OK(t, http.StatusOK, &shown)
			require.EqualValues(t, 15, shown.Ledger.Packets)
			require.EqualValues(t, 15, shown.Redis.Loaded)
			require.EqualValues(t, 1_700, shown.Ledger.Funded)
			require.Len(t, shown.TopUps, 1)
			require.Equal(t, hash, shown.TopUps[0].Hash)
			require.Equal(t, canonical, shown.TopUps[0].Canonical)
			require.NotZero(t, shown.TopUps[0].Dealt)
			require.Equal(t, "it rains so well", shown.TopUps[0].Why)
			require.Contains(t, d.get("viewer", "/v1/journal").Text, `"top_up_campaign"`)
		})
	}
}

// A key that is limited to some sponsors and a largest total can't fund other campaigns or exceed the total, not even
// by top-ups. The journal has the denied requests.
func TestSpending(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.do(func(a *app.App) error {
		k, err := apikeys.Of(a).CreateKey(t.Context(), access.Key{Role: access.RoleTreasurer,
			Spending: access.Spending{Sponsors: []string{"acme"}, LargestTotal: 1_000}})
		d.keys["bounded"] = k.Text
		return err
	})
	from := campaignOf("any", 10, 0) // created once, so that repeated requests have the same times
	create := func(id, sponsor string, total hongbao.Amount) *reply {
		c := from
		c.ID, c.Sponsor, c.Total = id, sponsor, total
		return d.post("bounded", "/v1/campaigns", specOf(t, c))
	}
	create("rain-1", "acme", 900).OK(t, http.StatusOK, nil)
	create("rain-1", "acme", 900).OK(t, http.StatusOK, nil)
	create("rain-2", "other", 900).Refused(t, "forbidden")
	create("rain-3", "acme", 1_010).Refused(t, "forbidden")
	topUp := func(id string, packets, total, expect int) *reply {
		return d.post("bounded", "/v1/campaigns/rain-1/top-ups",
			fmt.Sprintf(`{"id":%q,"packets":%d,"total":%d,"expect":%d,"why":"w"}`, id, packets, total, expect))
	}
	topUp("a", 1, 101, 900).Refused(t, "forbidden")
	topUp("a", 1, 101, 0).Refused(t, "forbidden")
	topUp("b", 1, 100, 900).OK(t, http.StatusAccepted, nil)
	topUp("b", 1, 100, 900).OK(t, http.StatusAccepted, nil)
	topUp("c", 1, 1, 1_000).Refused(t, "forbidden")
	c := campaignOf("rain-4", 10, 900)
	c.Sponsor = "other"
	d.post("treasurer", "/v1/campaigns", specOf(t, c)).OK(t, http.StatusOK, nil)
	d.post("bounded", "/v1/campaigns/rain-4/top-ups", `{"id":"a","packets":1,"total":1,"expect":900,"why":"w"}`).
		Refused(t, "forbidden")
	require.Len(t, d.ledgerCampaigns(), 2)
	var journal access.JournalPage
	d.get("viewer", "/v1/journal").OK(t, http.StatusOK, &journal)
	denied := 0
	for _, e := range journal.Entries {
		if e.Outcome == access.OutcomeDenied {
			denied++
			require.Contains(t, e.Details["error"], "may not spend this")
		}
	}
	require.Equal(t, 6, denied)
}

// A top-up before the load waits for the load: the answer is 202 until the campaign is loaded.
func TestTopUpBeforeTheLoad(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	c := campaignOf("rain-2", 4, 100)
	c.Split = hongbao.Split{Mode: hongbao.SplitTiers, Tiers: []hongbao.Tier{{Amount: 25, Packets: 4}}}
	d.post("treasurer", "/v1/campaigns", specOf(t, c)).OK(t, http.StatusOK, nil)
	const path, order = "/v1/campaigns/rain-2/top-ups",
		`{"id":"more","packets":3,"total":70,"expect":100,"tiers":"10x1 30x2","why":"w"}`
	d.post("treasurer", path, order).OK(t, http.StatusAccepted, nil)
	d.post("operator", "/v1/campaigns/rain-2/load", "{}").OK(t, http.StatusOK, nil)
	d.post("treasurer", path, order).OK(t, http.StatusOK, nil)
	var shown campaigns.Shown
	d.get("viewer", "/v1/campaigns/rain-2").OK(t, http.StatusOK, &shown)
	require.EqualValues(t, 7, shown.Redis.Loaded)

	var ending campaigns.Ending
	d.post("treasurer", "/v1/campaigns/rain-2/close", `{"early":true}`).OK(t, http.StatusOK, &ending)
	require.EqualValues(t, 7, ending.Closed.Left)
	d.post("treasurer", path, `{"id":"late","packets":3,"total":70,"expect":170,"tiers":"10x1 30x2","why":"w"}`).
		Refused(t, "refused")
}
