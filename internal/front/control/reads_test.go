package control

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/ops/books"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/find"
)

// A viewer reads a campaign with settled and unsettled grants. The test runs on each database.
func TestReads(t *testing.T) {
	t.Parallel()
	for _, postgres := range []bool{false, true} {
		t.Run(fmt.Sprint("postgres ", postgres), func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{postgres: postgres})
			d.campaign("rain-1", 10, 1_000)
			d.campaign("snow", 10, 1_000)
			first := d.grab("rain-1", "u1")
			d.work()
			d.grab("rain-1", "u2") // not settled

			var page campaigns.CampaignPage
			d.get("viewer", "/v1/campaigns?limit=1").OK(t, http.StatusOK, &page)
			require.Len(t, page.Campaigns, 1)
			require.EqualValues(t, "rain-1", page.Next)
			d.get("viewer", "/v1/campaigns?limit=1&after=rain-1").OK(t, http.StatusOK, &page)
			require.Equal(t, "snow", page.Campaigns[0].ID)
			require.Empty(t, page.Next)
			d.get("viewer/rain*", "/v1/campaigns").OK(t, http.StatusOK, &page)
			require.Len(t, page.Campaigns, 1)

			one := d.get("viewer", "/v1/campaigns/rain-1")
			var shown campaigns.Shown
			one.OK(t, http.StatusOK, &shown)
			require.EqualValues(t, 2, shown.Redis.Granted)
			require.EqualValues(t, 8, shown.Redis.Left)
			require.EqualValues(t, 100, shown.Ledger.Granted)
			require.NotContains(t, one.Text, "seed")
			d.get("viewer", "/v1/campaigns/rain-1/ending").Refused(t, "not_closed")
			d.get("viewer", "/v1/campaigns/drizzle").Refused(t, "unknown_campaign")
			d.get("viewer", "/v1/campaigns/drizzle/history").Refused(t, "unknown_campaign")
			d.get("viewer/rain*", "/v1/campaigns/snow/history").Refused(t, "unknown_campaign")
			d.get("viewer", "/v1/campaigns/drizzle/trail?user=u1").Refused(t, "unknown_campaign")

			var trail find.Trail
			d.get("viewer", "/v1/campaigns/rain-1/trail?user=u1").OK(t, http.StatusOK, &trail)
			require.Empty(t, trail.Unread)
			step := trail.Steps[0]
			require.Equal(t, first.Packet, step.Packet)
			require.Equal(t, "CNY", trail.Currency)
			require.Equal(t, "u1", step.Receipt.User)
			require.Equal(t, first.Amount, step.Receipt.Amount)
			require.Equal(t, step.Receipt, step.Ledger)
			require.NotNil(t, step.Entry)
			require.Equal(t, []find.TrailSink{{Sink: "balance", Finished: true}}, step.Sinks)
			var same find.Trail
			d.get("viewer", fmt.Sprintf("/v1/campaigns/rain-1/trail?packet=%d", first.Packet)).OK(t, http.StatusOK, &same)
			require.Equal(t, trail, same)
			d.get("viewer", "/v1/campaigns/rain-1/trail?user=u2").OK(t, http.StatusOK, &trail)
			require.Nil(t, trail.Steps[0].Ledger)
			require.False(t, trail.Steps[0].Sinks[0].Finished)
			byPacket := fmt.Sprintf("/v1/campaigns/rain-1/trail?packet=%d", trail.Steps[0].Packet)
			d.get("viewer", byPacket).OK(t, http.StatusOK, &same)
			trail.Steps[0].Sinks[0].Since, same.Steps[0].Sinks[0].Since = nil, nil // each read computes it again, in ms
			require.Equal(t, trail, same, "found by the receipts of all users")
			d.get("viewer", "/v1/campaigns/rain-1/trail?packet=9").OK(t, http.StatusOK, &trail)
			require.Empty(t, trail.Steps, "a packet without a user has no trail")

			var status deliveries.Status
			d.get("viewer", "/v1/sinks").OK(t, http.StatusOK, &status)
			require.EqualValues(t, 1, status.Sinks[0].Waiting)
			for path, empty := range map[string]string{
				"/v1/dead-letters": `{"letters":[],"next":null}`, "/v1/quarantine": `{"grants":[],"next":null}`,
				"/v1/replays": `{"replays":[]}`,
			} {
				r := d.get("viewer", path)
				require.Equal(t, http.StatusOK, r.Status)
				require.JSONEq(t, empty, r.Text)
			}
		})
	}
}

// The history of a campaign has who paused it and why, also while the ledger is down.
func TestHistory(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	d.post("operator", "/v1/campaigns/rain/pause", `{"why":"a typo in the name"}`).OK(t, http.StatusOK, nil)
	var h model.History
	d.get("viewer", "/v1/campaigns/rain/history").OK(t, http.StatusOK, &h)
	require.True(t, h.Recorded)
	last := h.Spans[len(h.Spans)-1]
	require.Equal(t, model.SpanPaused, last.Kind)
	require.EqualValues(t, "a typo in the name", last.Why)
	require.True(t, strings.HasPrefix(string(last.By), "key:"), last.By)
	require.Nil(t, last.To)
}

// Every invalid query gets an error code. A mistyped filter is an error, too, and not ignored.
func TestBadQueries(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	for path, code := range map[string]string{
		"/v1/campaigns?limit=0": "invalid_parameter", "/v1/campaigns?limit=501": "invalid_parameter",
		"/v1/campaigns?limit=1&limit=2": "invalid_parameter", "/v1/campaigns?limit=01": "invalid_parameter",
		"/v1/campaigns?after=A": "invalid_parameter", "/v1/campaigns?campaigns=x": "invalid_parameter",
		"/v1/campaigns?%zz": "invalid_parameter", "/v1/campaigns?after=": "invalid_parameter",
		"/v1/campaigns/A": "campaign_invalid", "/v1/campaigns/1%20or%201=1": "campaign_invalid",
		"/v1/campaigns/x/trail": "invalid_parameter", "/v1/campaigns/x/trail?user=a&packet=1": "invalid_parameter",
		"/v1/campaigns/x/trail?user=a%20b": "invalid_parameter", "/v1/campaigns/x/trail?packet=0": "invalid_parameter",
		"/v1/dead-letters?class=odd": "invalid_parameter", "/v1/dead-letters?after=x": "invalid_parameter",
		"/v1/dead-letters?sink=kafka": "unknown_sink", "/v1/dead-letters/balance/0/1-1": "unknown_letter",
		"/v1/dead-letters/balance/9/1-1": "unknown_letter", "/v1/dead-letters/odd/0/1-1": "unknown_letter",
		"/v1/dead-letters/balance/0/x": "unknown_letter", "/v1/quarantine/0": "unknown_quarantine",
		"/v1/quarantine/7": "unknown_quarantine", "/v1/quarantine/99999999999999999999": "unknown_quarantine",
		"/v1/quarantine?all=yes": "invalid_parameter", "/v1/replays/nobody": "unknown_replay",
		"/v1/replays/A%00": "unknown_replay", "/v1/sinks?x=1": "invalid_parameter", "/v1/nothing": "not_found",
		"/v1/campaigns/": "not_found", "/v1/dead-letters?user=%00": "invalid_parameter",
	} {
		d.get("viewer", path).Refused(t, code)
	}
}

// The API returns the verdict of the last complete audit, whoever ran it.
func TestLastAudit(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	var last books.LastAudit
	d.get("viewer", "/v1/audit").OK(t, http.StatusOK, &last)
	require.Equal(t, "none", last.Verdict)
	d.campaign("rain", 10, 1_000)
	d.do(func(a *app.App) error {
		_, err := books.Of(a).Audit(t.Context(), audit.Options{})
		return err
	})
	d.get("viewer", "/v1/audit").OK(t, http.StatusOK, &last)
	require.Equal(t, "agrees", last.Verdict)
	require.False(t, last.Started.IsZero())
}
