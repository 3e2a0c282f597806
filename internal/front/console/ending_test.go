package console

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
)

// No step of an end is a single click: a person types the campaign's id or the amount, and the server compares it.
func TestAnEndIsTyped(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	for _, step := range []string{"cancel", "close", "reveal"} {
		for _, confirm := range []string{"", "other", "RAIN"} {
			w := f.ask(t, "treasurer", "/campaigns/rain/"+step, url.Values{"confirm": {confirm}})
			require.Equal(t, http.StatusBadRequest, w.Code, step)
			require.Contains(t, w.Body.String(), "type rain")
		}
	}
	for _, amount := range []string{"", "250 apples"} {
		w := f.ask(t, "treasurer", "/campaigns/rain/refund", url.Values{"amount": {amount}, "currency": {"CNY"}})
		require.Equal(t, http.StatusBadRequest, w.Code, amount)
	}
	require.Empty(t, f.did)
	w := f.ask(t, "treasurer", "/campaigns/rain/refund", url.Values{"amount": {" 2.50 "}, "currency": {"CNY"}})
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, []string{"key-treasurer refund rain 250 0"}, f.did)
	require.Contains(t, f.ask(t, "treasurer", "/campaigns/closed/end", nil).Body.String(), "Type the amount to confirm: 2.50")
	require.Contains(t, f.ask(t, "treasurer", "/campaigns/rain/end", nil).Body.String(), `name="confirm" required`)
}

// The page shows the three steps of an end, and which of them are done.
func TestStagesOfAnEnd(t *testing.T) {
	t.Parallel()
	for step, want := range map[string]string{"close": ">--", "refund": "x>-", "reveal": "xx>", "cancel": "", "": ""} {
		v := endView{Live: &model.Live{}, Step: step}
		got := ""
		for _, s := range v.Stages() {
			switch {
			case s.Current:
				got += ">"
			case s.Done:
				got += "x"
			default:
				got += "-"
			}
		}
		require.Equal(t, want, got, step)
	}
	v := endView{Live: &model.Live{Revealed: true}}
	require.True(t, v.Stages()[2].Done)
}

// The page of a campaign's end says what the next step does, and offers a refund only of an amount that is final.
func TestEndOfACampaign(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	page := func(id string) string {
		w := f.ask(t, "treasurer", "/campaigns/"+id+"/end", nil)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		return w.Body.String()
	}
	f.live.To = time.Now().Add(time.Hour)
	require.Contains(t, page("rain"), `name="early"`)
	require.NotContains(t, page("rain"), "Withheld packets")
	f.withheld = 3
	require.Contains(t, page("rain"), "Withheld packets without a decision: 3. After the close no one can grant them.")
	f.live.To = time.Now().Add(-time.Hour)
	require.NotContains(t, page("rain"), `name="early"`)
	require.Contains(t, page("closed"), "Refund 2.50 CNY")
	f.missing = 3
	text := page("closed")
	require.Contains(t, text, "The ledger lacks 3 grants")
	require.NotContains(t, text, `id="refund"`)
	f.missing = -1
	text = page("closed")
	require.Contains(t, text, "has paid more grants")
	require.NotContains(t, text, `id="refund"`)
	f.missing, f.settling = 0, true
	text = page("closed")
	require.Contains(t, text, "still settling")
	require.NotContains(t, text, `id="refund"`)

	f.settling, f.refunded = false, &campaigns.Refunded{}
	require.Contains(t, page("closed"), `id="reveal"`, "the ledger has the refund, and Redis does not know it yet")
	f.live.LoadBegun = true
	text = page("new")
	require.NotContains(t, text, `id="cancel"`)
	require.Contains(t, text, "Load it completely, then close it")
	f.live.LoadBegun, f.live.LedgerUnread = false, true
	require.Contains(t, page("new"), "because the ledger can&#39;t be read")
	f.live.LedgerUnread = false

	f.live.Status = model.Unread
	require.NotContains(t, page("rain"), `class="final"`)
	require.NotContains(t, f.ask(t, "viewer", "/campaigns/new/end", nil).Body.String(), `id="cancel"`)
	w := f.ask(t, "treasurer", "/campaigns/rain/refund", url.Values{"amount": {"2.50"}})
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Empty(t, f.did)
}
