package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func (d *desk) post(key, path, body string, tweaks ...func(*http.Request)) *reply {
	d.t.Helper()
	return d.call(key, http.MethodPost, path, body, tweaks...)
}

func specOf(t *testing.T, c hongbao.Campaign) string {
	t.Helper()
	text, err := json.Marshal(c)
	require.NoError(t, err)
	return string(text)
}

// A campaign can be managed over HTTP alone, from its creation to its disclosure. The test runs on each
// database.
func TestLifeOfACampaign(t *testing.T) {
	t.Parallel()
	for _, postgres := range []bool{false, true} {
		t.Run(fmt.Sprint("postgres ", postgres), func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{postgres: postgres})
			spec := specOf(t, campaignOf("rain-1", 10, 1_000))
			var created campaigns.Created
			d.post("treasurer", "/v1/campaigns", spec).OK(t, http.StatusOK, &created)
			require.True(t, created.Created)
			hash := created.Hash
			d.post("treasurer", "/v1/campaigns", spec).OK(t, http.StatusOK, &created)
			require.False(t, created.Created, "the same again changes nothing")
			require.Equal(t, hash, created.Hash)
			d.post("treasurer", "/v1/campaigns", strings.Replace(spec, `"total":1000`, `"total":2000`, 1)).
				Refused(t, "campaign_exists")

			d.post("operator", "/v1/campaigns/rain-1/pause", "{}").Refused(t, "not_loaded")
			d.post("treasurer", "/v1/campaigns/rain-1/close", "{}").Refused(t, "not_loaded")
			var loaded loadAnswer
			for range 2 {
				d.post("operator", "/v1/campaigns/rain-1/load", "{}").OK(t, http.StatusOK, &loaded)
				require.Equal(t, "rain-1", loaded.Campaign)
				require.EqualValues(t, 10, loaded.Packets)
				require.False(t, loaded.Loading)
				require.True(t, loaded.To.After(loaded.From))
			}
			d.grab("rain-1", "u1")
			var state ops.CampaignState
			d.post("operator", "/v1/campaigns/rain-1/pause", "{}").OK(t, http.StatusOK, &state)
			require.Equal(t, "paused", state.State)
			d.post("operator", "/v1/campaigns/rain-1/resume", "{}").OK(t, http.StatusOK, &state)
			require.Equal(t, "open", state.State)
			d.grab("rain-1", "u2")

			d.post("treasurer", "/v1/campaigns/rain-1/refund", `{"amount":800}`).Refused(t, "not_closed")
			d.post("treasurer", "/v1/campaigns/rain-1/close", "{}").Refused(t, "refused")
			var ending campaigns.Ending
			for range 2 {
				d.post("treasurer", "/v1/campaigns/rain-1/close", `{"early":true}`).OK(t, http.StatusOK, &ending)
				require.True(t, ending.Settling)
				require.EqualValues(t, 8, ending.Closed.Left)
			}
			d.post("treasurer", "/v1/campaigns/rain-1/refund", `{"amount":800}`).OK(t, http.StatusAccepted, &ending)
			require.True(t, ending.Settling)
			d.work()
			d.post("treasurer", "/v1/campaigns/rain-1/cancel", "{}").Refused(t, "loading_begun")
			d.post("treasurer", "/v1/campaigns/rain-1/reveal", "{}").Refused(t, "not_refunded")
			d.post("treasurer", "/v1/campaigns/rain-1/refund", `{"amount":801}`).Refused(t, "wrong_amount")
			d.post("treasurer", "/v1/campaigns/rain-1/refund", `{"amount":800,"missing":1}`).Refused(t, "grants_missing")
			for range 2 {
				d.post("treasurer", "/v1/campaigns/rain-1/refund", `{"amount":800}`).OK(t, http.StatusOK, &ending)
				require.EqualValues(t, 800, ending.Amount)
				require.EqualValues(t, 8, ending.Refunded.Packets)
			}
			var disclosed campaign.Disclosure
			r := d.post("treasurer", "/v1/campaigns/rain-1/reveal", "{}")
			r.OK(t, http.StatusOK, &disclosed)
			require.Equal(t, hash, disclosed.Hash)
			d.get("viewer", "/v1/campaigns/rain-1/ending").OK(t, http.StatusOK, &ending)
			require.NotNil(t, ending.Refunded)
			d.do(func(a *app.App) error {
				s, err := campaigns.Of(a).Show(t.Context(), "rain-1")
				require.EqualValues(t, 800, s.Ledger.Refunded)
				return err
			})
		})
	}
}

// A campaign that was never loaded can be canceled. A second request with another Idempotency-Key returns the
// same answer.
func TestCancel(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.post("treasurer", "/v1/campaigns", specOf(t, campaignOf("rain", 10, 1_000))).OK(t, http.StatusOK, nil)
	var first, again campaigns.Ending
	d.post("treasurer", "/v1/campaigns/rain/cancel", "{}").OK(t, http.StatusOK, &first)
	require.EqualValues(t, 1_000, first.Amount)
	require.EqualValues(t, 10, first.Refunded.Packets)
	d.post("treasurer", "/v1/campaigns/rain/cancel", "{}").OK(t, http.StatusOK, &again)
	require.Equal(t, first, again)
	d.post("operator", "/v1/campaigns/rain/load", "{}").Refused(t, "refused")
	d.post("treasurer", "/v1/campaigns/none/cancel", "{}").Refused(t, "unknown_campaign")
}

// A treasurer acknowledges a difference with the fields from the report of the audit.
func TestAcknowledge(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	const at = "/v1/audit/acknowledgements"
	body := func(kind, until string) string {
		return fmt.Sprintf(`{"kind":%q,"where":"topic","campaign":"rain","packet":7,"event":"0-9","detail":"a copy",`+
			`"until":%q,"why":"TICKET-7"}`, kind, until)
	}
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	var a model.Acknowledgement
	for range 2 {
		d.post("treasurer", at, body("duplicate_in_topic", soon)).OK(t, http.StatusOK, &a)
		require.Equal(t, soon, a.Until.Format(time.RFC3339))
		require.Contains(t, a.By, "key:")
	}
	d.post("operator", at, body("duplicate_in_topic", soon)).Refused(t, "forbidden")
	d.post("treasurer", at, body("double_credit", soon)).Refused(t, "invalid_value")
	d.post("treasurer", at, body("typo", soon)).Refused(t, "invalid_value")
	d.post("treasurer", at, body("lost", "2001-01-01T00:00:00Z")).Refused(t, "refused")
	d.post("treasurer", at, `{"kind":"lost","where":"topic","detail":"x","why":"y"}`).Refused(t, "invalid_value")
}

// The codes of a coupon campaign are drawn after its creation, and no answer contains a code.
func TestCoupons(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	c := campaignOf("rain-c", 20, 0)
	c.Kind, c.Currency, c.Split = hongbao.KindCoupon, "", hongbao.Split{Mode: hongbao.SplitEven}
	c.Codes = &hongbao.Codes{Pattern: "HB-????####????"}
	d.post("treasurer", "/v1/campaigns", specOf(t, c)).OK(t, http.StatusOK, nil)
	d.post("operator", "/v1/campaigns/rain-c/load", "{}").OK(t, http.StatusOK, nil)
	d.grab("rain-c", "u1")
	d.work()
	var shown campaigns.Shown
	one := d.get("viewer", "/v1/campaigns/rain-c")
	one.OK(t, http.StatusOK, &shown)
	require.EqualValues(t, 20, shown.Ledger.Codes)
	trail := d.get("viewer", "/v1/campaigns/rain-c/trail?user=u1")
	require.Contains(t, trail.Text, `"ledger":{"event"`)
	require.NotContains(t, trail.Text, "HB-")
	require.NotContains(t, strings.ReplaceAll(one.Text, c.Codes.Pattern, ""), "HB-")
	c.ID, c.Codes = "rain-f", &hongbao.Codes{File: "/etc/passwd"}
	d.post("treasurer", "/v1/campaigns", specOf(t, c)).Refused(t, "specification_invalid")
}

// The API refuses an invalid specification and one that can't be met (B8 to B15).
func TestBadSpecifications(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	good := specOf(t, campaignOf("rain", 10, 1_000))
	for _, c := range []struct{ old, new, code string }{
		{`"total":1000`, `"total":1.5`, "specification_invalid"}, {`"total":1000`, `"total":1e3`, "specification_invalid"},
		{`"total":1000`, `"total":"100"`, "specification_invalid"}, {`"total":1000`, `"total":-1`, "specification_invalid"},
		{`"total":1000`, `"total":9007199254740992`, "specification_invalid"},
		{`"total":1000`, `"total":5`, "specification_impossible"}, {`"packets":10`, `"packets":0`, "specification_invalid"},
		{`"CNY"`, `"cny"`, "specification_invalid"}, {`"id":"rain"`, `"id":"../x"`, "specification_invalid"},
		{`"total":1000`, `"total":1000,"extra":1`, "specification_invalid"},
		{`"total":1000`, `"total":1000,"shards":65`, "specification_invalid"},
		{`"total":1000`, `"total":1000,"shards":64`, "specification_impossible"},
		{`"total":1000`, `"total":1000,"total":1000`, "specification_invalid"},
		{good, `id: rain`, "invalid_json"}, {good, `[]`, "specification_invalid"}, {good, ``, "body_required"},
		{good, strings.Repeat(`{"a":`, 9_000) + "1" + strings.Repeat("}", 9_000), "specification_invalid"},
		{good, strings.Repeat(" ", maxBody) + good, "body_too_large"},
	} {
		r := d.post("treasurer", "/v1/campaigns", strings.Replace(good, c.old, c.new, 1))
		require.Equal(t, c.code, r.Code(), "%.100s: %.500s", c.new, r.Text)
	}
	require.Empty(t, d.ledgerCampaigns())
}

func (d *desk) ledgerCampaigns() []model.Campaign {
	d.t.Helper()
	var page campaigns.CampaignPage
	d.get("viewer", "/v1/campaigns").OK(d.t, http.StatusOK, &page)
	return page.Campaigns
}

// Requests with the same Idempotency-Key have one effect and get the same answer, in sequence or ten at once (B18 to
// B21).
func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	for _, postgres := range []bool{false, true} {
		t.Run(fmt.Sprint("postgres ", postgres), func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{postgres: postgres})
			as := func(key string) func(*http.Request) {
				return func(r *http.Request) { r.Header.Set(keyHeader, key) }
			}
			spec := specOf(t, campaignOf("rain", 10, 1_000))
			first := d.post("treasurer", "/v1/campaigns", spec, as("k1"))
			first.OK(t, http.StatusOK, nil)
			require.Contains(t, first.Text, `"created":true`)
			again := d.post("treasurer", "/v1/campaigns", spec, as("k1"))
			require.Equal(t, first.Text, again.Text, "word for word")
			d.post("treasurer", "/v1/campaigns", spec+" ", as("k1")).Refused(t, "idempotency_key_reused")
			d.post("treasurer", "/v1/campaigns/rain/close", "{}", as("k1")).Refused(t, "idempotency_key_reused")
			d.post("treasurer/rain*", "/v1/campaigns", spec, as("k1")).OK(t, http.StatusOK, nil) // another caller's
			for _, bad := range []string{"", "a b", strings.Repeat("k", 256), "é"} {
				d.post("treasurer", "/v1/campaigns", spec, as(bad)).Refused(t, "idempotency_key_required")
			}
			// A refusal is not stored: the same request succeeds once the reason is gone.
			d.post("treasurer", "/v1/campaigns/rain/close", `{"early":true}`, as("k2")).Refused(t, "not_loaded")
			d.post("operator", "/v1/campaigns/rain/load", "{}").OK(t, http.StatusOK, nil)
			d.post("treasurer", "/v1/campaigns/rain/close", `{"early":true}`, as("k2")).OK(t, http.StatusOK, nil)

			spec = specOf(t, campaignOf("rain-2", 10, 1_000))
			var all sync.WaitGroup
			answers := make([]*reply, 10)
			for i := range answers {
				all.Go(func() { answers[i] = d.post("treasurer", "/v1/campaigns", spec, as("k3")) })
			}
			all.Wait()
			text := d.post("treasurer", "/v1/campaigns", spec, as("k3")).Text
			require.Contains(t, text, `"created":true`)
			done := 0
			for _, r := range answers {
				if r.Status == http.StatusOK {
					done++
					require.Equal(t, text, r.Text)
				} else {
					r.Refused(t, "idempotency_key_in_use")
				}
			}
			require.Positive(t, done)
			require.Len(t, d.ledgerCampaigns(), 2)
		})
	}
}

// A sink is paused and resumed for all workers. The state names the caller and the reason.
func TestPauseOfASink(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	var change deliveries.SinkChange
	d.post("operator", "/v1/sinks/balance/pause", `{"why":"the bank is closed"}`).OK(t, http.StatusOK, &change)
	require.True(t, change.Pause.Paused)
	require.Equal(t, "the bank is closed", change.Pause.Why)
	var sinks deliveries.Status
	d.get("viewer", "/v1/sinks").OK(t, http.StatusOK, &sinks)
	require.True(t, sinks.Sinks[0].Pause.Paused)
	require.Contains(t, sinks.Sinks[0].Pause.By, "key:")
	d.post("operator", "/v1/sinks/balance/resume", `{"why":"it is open"}`).OK(t, http.StatusOK, &change)
	require.False(t, change.Pause.Paused)
	for body, want := range map[string]*int{`"grants_per_second":500`: new(500), `"grants_per_second":0`: new(0),
		`"by_knob":true`: nil} {
		d.post("operator", "/v1/sinks/balance/limit", `{"why":"x",`+body+`}`).OK(t, http.StatusOK, &change)
		require.Equal(t, want, change.Limit.GrantsPerSecond, body)
	}
	for _, body := range []string{`"by_knob":true,"grants_per_second":1`, `"by_knob":false`, `"grants_per_second":-1`} {
		d.post("operator", "/v1/sinks/balance/limit", `{"why":"x",`+body+`}`).Refused(t, "invalid_value")
	}
	d.post("operator", "/v1/sinks/kafka/pause", `{"why":"x"}`).Refused(t, "unknown_sink")
	d.post("operator", "/v1/sinks/balance/pause", `{}`).Refused(t, "invalid_value")
	d.post("operator", "/v1/sinks/balance/pause", `{"why":"x","campaign":"rian"}`).Refused(t, "refused")
	d.post("operator", "/v1/sinks/balance/resume", `{"why":"x","campaign":"rian"}`).Refused(t, "refused")
	d.post("operator", "/v1/sinks/kafka/resume", `{"why":"x","campaign":"rian"}`).Refused(t, "unknown_sink")
}

// A grant in quarantine is listed and decided once by a permitted role. For a key with another scope it does
// not exist.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	d.campaign("rain", 10, 1_000)
	got := d.grab("rain", "u1")
	d.work()
	for range 2 {
		d.plant("rain", fmt.Sprintf("%d %d thief - -", got.Packet, got.Amount))
	}
	d.work()
	var page payments.QuarantinePage
	d.get("viewer", "/v1/quarantine").OK(t, http.StatusOK, &page)
	require.Len(t, page.Grants, 2)
	one, two := fmt.Sprintf("/v1/quarantine/%d", page.Grants[0].ID), fmt.Sprintf("/v1/quarantine/%d", page.Grants[1].ID)
	d.get("viewer", "/v1/quarantine?limit=1").OK(t, http.StatusOK, &page)
	require.Len(t, page.Grants, 1)
	require.NotZero(t, page.Next)
	d.key("other", access.RoleTreasurer, "snow")
	d.get("other", "/v1/quarantine").OK(t, http.StatusOK, &page)
	require.Empty(t, page.Grants)
	d.get("other", one).Refused(t, "unknown_quarantine")
	d.post("other", one+"/decide", `{"decision":"void","why":"x"}`).Refused(t, "unknown_quarantine")
	var q payments.Quarantined
	d.get("viewer", one).OK(t, http.StatusOK, &q)
	require.Equal(t, "thief", q.Came.User)
	require.Equal(t, "u1", q.Ledger.User)
	for range 2 {
		d.post("treasurer", one+"/decide", `{"decision":"void","why":"forged"}`).OK(t, http.StatusOK, &q)
		require.Equal(t, "void: forged", q.Resolution)
	}
	d.post("treasurer", one+"/decide", `{"decision":"pay","why":"no"}`).Refused(t, "decided_otherwise")
	d.post("treasurer", two+"/decide", `{"decision":"pay","why":"a mistake of ours"}`).OK(t, http.StatusOK, &q)
	for _, body := range []string{`{}`, `{"decision":"burn","why":"x"}`, `{"decision":"void"}`, `{"decision":"void","why":" "}`} {
		d.post("treasurer", two+"/decide", body).Refused(t, "invalid_value")
	}
}

// plant adds an entry with one grant to a campaign's stream, as an intruder could.
func (d *desk) plant(id, grant string) {
	d.t.Helper()
	rdb := d.cfg.RedisClient()
	defer func() { require.NoError(d.t, rdb.Close()) }()
	st, err := store.New(store.Config{Redis: rdb, Space: d.cfg.Space()})
	require.NoError(d.t, err)
	k := st.Home(id)
	seq, err := rdb.HIncrBy(d.t.Context(), k.Keys.Meta(), "seq", 1).Result()
	require.NoError(d.t, err)
	require.NoError(d.t, rdb.XAdd(d.t.Context(), &redis.XAddArgs{Stream: k.Keys.Events(),
		Values: testkit.Entry("grant", id, seq, 1, time.Now().UnixMilli(), grant)}).Err())
}

// The journal has each change once, with its caller and request id. It also has the actions that were denied, the reads
// of a user's data, and wrong keys, but no request without a key.
func TestJournal(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	again := func(r *http.Request) { r.Header.Set(keyHeader, "k1") }
	spec := specOf(t, campaignOf("rain", 10, 1_000))
	created := d.post("treasurer", "/v1/campaigns", spec, again)
	d.post("treasurer", "/v1/campaigns", spec, again).OK(t, http.StatusOK, nil)
	d.post("operator", "/v1/campaigns/rain/load", "{}").OK(t, http.StatusOK, nil)
	d.post("operator", "/v1/campaigns/rain/close", "{}").Refused(t, "forbidden")
	d.post("operator/rain*", "/v1/campaigns/snow/pause", "{}").Refused(t, "unknown_campaign")
	d.post("treasurer/rain*", "/v1/campaigns", specOf(t, campaignOf("snow", 10, 100))).Refused(t, "unknown_campaign")
	d.keys["wrong"] = strings.Replace(d.keys["viewer"], "_", "_x", 1)
	for range 3 {
		d.get("viewer", "/v1/campaigns/rain/trail?user=u1").OK(t, http.StatusOK, nil)
		d.get("", "/v1/campaigns/rain/trail?user=u1").Refused(t, "unauthorized")
		d.get("wrong", "/v1/campaigns/rain/trail?user=u1").Refused(t, "unauthorized")
		d.get("wrong", "/v1/sinks").Refused(t, "unauthorized")
	}
	var page access.JournalPage
	d.get("viewer", "/v1/journal?since=2026-01-01T00:00:00Z").OK(t, http.StatusOK, &page)
	seen := map[string]int{}
	for _, e := range page.Entries {
		if strings.HasPrefix(e.Who, "key:") {
			seen[fmt.Sprintf("%s %s %s", e.Action, e.Campaign, e.Outcome)]++
			require.NotEmpty(t, e.RequestID)
		}
		if e.Who == access.UnknownCaller || e.Action == access.ReadTrails {
			seen[fmt.Sprint(e.Who == access.UnknownCaller, " ", e.Details["address"], " ", e.Details["user_sha256"])]++
			require.NotEmpty(t, e.RequestID)
		}
	}
	require.Equal(t, map[string]int{"create_campaign rain done": 1, "load_campaign rain done": 1,
		"close_campaign rain denied": 1, "pause_campaign snow denied": 1, "create_campaign  denied": 1,
		"read_trails rain done": 1, "false 192.0.2.1 " + access.Hash("u1"): 1, "true 192.0.2.1 <nil>": 1}, seen)
	who := ""
	for _, e := range page.Entries {
		if e.RequestID == created.Head.Get(web.RequestID) {
			who = e.Who
		}
	}
	require.Contains(t, d.keys["treasurer"], strings.TrimPrefix(who, "key:"))
	d.get("viewer", "/v1/journal?limit=2&who="+who).OK(t, http.StatusOK, &page)
	require.Len(t, page.Entries, 1)
	d.get("viewer", "/v1/journal?limit=2").OK(t, http.StatusOK, &page)
	require.Len(t, page.Entries, 2)
	d.get("viewer", "/v1/journal?after="+string(page.Next)).OK(t, http.StatusOK, &page)
	for _, bad := range []string{"since=yesterday", "after=x", "who=", "campaign=A"} {
		d.get("viewer", "/v1/journal?"+bad).Refused(t, "invalid_parameter")
	}
}
