package console

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
)

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

	f.live.State = model.Unread
	require.NotContains(t, page("rain"), `class="main"`)
	require.NotContains(t, f.ask(t, "viewer", "/campaigns/new/end", nil).Body.String(), `id="cancel"`)
	w := f.ask(t, "treasurer", "/campaigns/rain/refund", url.Values{"amount": {"2.50"}})
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Empty(t, f.did)
}
