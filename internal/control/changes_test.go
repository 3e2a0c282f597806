package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/access"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/deadletter"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/web"
)

func (d *desk) post(key, path, body string, tweaks ...func(*http.Request)) *reply {
	d.t.Helper()
	return d.call(key, http.MethodPost, path, body, tweaks...)
}

// specOf is a specification as a caller sends it.
func specOf(t *testing.T, c hongbao.Campaign) string {
	t.Helper()
	text, err := json.Marshal(c)
	require.NoError(t, err)
	return string(text)
}

// A campaign from its creation to its disclosure by HTTP alone, on each database.
func TestLifeOfACampaign(t *testing.T) {
	t.Parallel()
	for _, postgres := range []bool{false, true} {
		t.Run(fmt.Sprint("postgres ", postgres), func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{postgres: postgres})
			spec := specOf(t, campaignOf("rain-1", 10, 1_000))
			var created app.Created
			d.post("treasurer", "/v1/campaigns", spec).ok(t, http.StatusOK, &created)
			require.True(t, created.Created)
			hash := created.Hash
			d.post("treasurer", "/v1/campaigns", spec).ok(t, http.StatusOK, &created)
			require.False(t, created.Created, "the same again changes nothing")
			require.Equal(t, hash, created.Hash)
			d.post("treasurer", "/v1/campaigns", strings.Replace(spec, `"total":1000`, `"total":2000`, 1)).
				refused(t, "campaign_exists")

			d.post("operator", "/v1/campaigns/rain-1/pause", "{}").refused(t, "not_loaded")
			d.post("treasurer", "/v1/campaigns/rain-1/close", "{}").refused(t, "not_loaded")
			var loaded loadAnswer
			for range 2 {
				d.post("operator", "/v1/campaigns/rain-1/load", "{}").ok(t, http.StatusOK, &loaded)
				require.Equal(t, loadAnswer{"rain-1", 10, false}, loaded)
			}
			d.grab("rain-1", "u1")
			var state stateAnswer
			d.post("operator", "/v1/campaigns/rain-1/pause", "{}").ok(t, http.StatusOK, &state)
			require.Equal(t, "paused", state.State)
			d.post("operator", "/v1/campaigns/rain-1/resume", "{}").ok(t, http.StatusOK, &state)
			require.Equal(t, "open", state.State)
			d.grab("rain-1", "u2")

			d.post("treasurer", "/v1/campaigns/rain-1/refund", `{"amount":800}`).refused(t, "not_closed")
			d.post("treasurer", "/v1/campaigns/rain-1/close", "{}").refused(t, "refused")
			var ending app.Ending
			for range 2 {
				d.post("treasurer", "/v1/campaigns/rain-1/close", `{"early":true}`).ok(t, http.StatusOK, &ending)
				require.True(t, ending.Settling)
				require.EqualValues(t, 8, ending.Closed.Left)
			}
			d.post("treasurer", "/v1/campaigns/rain-1/refund", `{"amount":800}`).ok(t, http.StatusAccepted, &ending)
			require.True(t, ending.Settling)
			d.work()
			d.post("treasurer", "/v1/campaigns/rain-1/reveal", "{}").refused(t, "not_refunded")
			d.post("treasurer", "/v1/campaigns/rain-1/refund", `{"amount":801}`).refused(t, "wrong_amount")
			d.post("treasurer", "/v1/campaigns/rain-1/refund", `{"amount":800,"missing":1}`).refused(t, "grants_missing")
			for range 2 {
				d.post("treasurer", "/v1/campaigns/rain-1/refund", `{"amount":800}`).ok(t, http.StatusOK, &ending)
				require.EqualValues(t, 800, ending.Amount)
				require.EqualValues(t, 8, ending.Refunded.Packets)
			}
			var told campaign.Disclosure
			r := d.post("treasurer", "/v1/campaigns/rain-1/reveal", "{}")
			r.ok(t, http.StatusOK, &told)
			require.Equal(t, hash, told.Hash)
			d.get("viewer", "/v1/campaigns/rain-1/ending").ok(t, http.StatusOK, &ending)
			require.NotNil(t, ending.Refunded)
			d.do(func(a *app.App) error {
				s, err := a.Show(t.Context(), "rain-1")
				require.EqualValues(t, 800, s.Ledger.Refunded)
				return err
			})
		})
	}
}

// A coupon's codes are drawn behind the creation, and no answer has one.
func TestCoupons(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	c := campaignOf("rain-c", 20, 0)
	c.Kind, c.Currency, c.Split = hongbao.KindCoupon, "", hongbao.Split{Mode: hongbao.SplitEven}
	c.Codes = &hongbao.Codes{Pattern: "HB-????####????"}
	d.post("treasurer", "/v1/campaigns", specOf(t, c)).ok(t, http.StatusOK, nil)
	d.post("operator", "/v1/campaigns/rain-c/load", "{}").ok(t, http.StatusOK, nil)
	d.grab("rain-c", "u1")
	d.work()
	var shown app.Shown
	one := d.get("viewer", "/v1/campaigns/rain-c")
	one.ok(t, http.StatusOK, &shown)
	require.EqualValues(t, 20, shown.Ledger.Codes)
	trail := d.get("viewer", "/v1/campaigns/rain-c/trail?user=u1")
	require.Contains(t, trail.text, `"ledger":{"event"`)
	require.NotContains(t, trail.text, "HB-")
	require.NotContains(t, strings.Replace(one.text, c.Codes.Pattern, "", 1), "HB-")
	c.ID, c.Codes = "rain-f", &hongbao.Codes{File: "/etc/passwd"}
	d.post("treasurer", "/v1/campaigns", specOf(t, c)).refused(t, "specification_invalid")
}

// B8 to B15: a specification that is wrong, and one that can't be met.
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
		{`"total":1000`, `"total":1000,"total":1000`, "specification_invalid"},
		{good, `id: rain`, "invalid_json"}, {good, `[]`, "specification_invalid"}, {good, ``, "body_required"},
		{good, strings.Repeat(`{"a":`, 9_000) + "1" + strings.Repeat("}", 9_000), "specification_invalid"},
		{good, strings.Repeat(" ", maxBody) + good, "body_too_large"},
	} {
		r := d.post("treasurer", "/v1/campaigns", strings.Replace(good, c.old, c.new, 1))
		require.Equal(t, c.code, r.code(), "%.100s: %.500s", c.new, r.text)
	}
	require.Empty(t, d.ledgerCampaigns())
}

func (d *desk) ledgerCampaigns() []app.ListedCampaign {
	d.t.Helper()
	var page app.CampaignPage
	d.get("viewer", "/v1/campaigns").ok(d.t, http.StatusOK, &page)
	return page.Campaigns
}

// B18 to B21, and ten equal calls at once: one effect, one answer.
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
			first.ok(t, http.StatusOK, nil)
			require.Contains(t, first.text, `"created":true`)
			again := d.post("treasurer", "/v1/campaigns", spec, as("k1"))
			require.Equal(t, first.text, again.text, "word for word")
			d.post("treasurer", "/v1/campaigns", spec+" ", as("k1")).refused(t, "idempotency_key_reused")
			d.post("treasurer", "/v1/campaigns/rain/close", "{}", as("k1")).refused(t, "idempotency_key_reused")
			d.post("treasurer/rain*", "/v1/campaigns", spec, as("k1")).ok(t, http.StatusOK, nil) // another caller's
			for _, bad := range []string{"", "a b", strings.Repeat("k", 256), "é"} {
				d.post("treasurer", "/v1/campaigns", spec, as(bad)).refused(t, "idempotency_key_required")
			}
			// What was refused is tried anew.
			d.post("treasurer", "/v1/campaigns/rain/close", `{"early":true}`, as("k2")).refused(t, "not_loaded")
			d.post("operator", "/v1/campaigns/rain/load", "{}").ok(t, http.StatusOK, nil)
			d.post("treasurer", "/v1/campaigns/rain/close", `{"early":true}`, as("k2")).ok(t, http.StatusOK, nil)

			spec = specOf(t, campaignOf("rain-2", 10, 1_000))
			var all sync.WaitGroup
			answers := make([]*reply, 10)
			for i := range answers {
				all.Go(func() { answers[i] = d.post("treasurer", "/v1/campaigns", spec, as("k3")) })
			}
			all.Wait()
			text := d.post("treasurer", "/v1/campaigns", spec, as("k3")).text
			require.Contains(t, text, `"created":true`)
			done := 0
			for _, r := range answers {
				if r.status == http.StatusOK {
					done++
					require.Equal(t, text, r.text)
				} else {
					r.refused(t, "idempotency_key_in_use")
				}
			}
			require.Positive(t, done)
			require.Len(t, d.ledgerCampaigns(), 2)
		})
	}
}

// buried makes every grant of the only shard's stream a dead letter of sink balance.
func (d *desk) buried(reason string) {
	d.t.Helper()
	rdb := d.cfg.RedisClient()
	defer func() { require.NoError(d.t, rdb.Close()) }()
	layout, err := shards.NewLayout(d.cfg.Space())
	require.NoError(d.t, err)
	k, ctx := shards.Of(rdb, layout.Shard(0)), d.t.Context()
	_, err = k.CreateGroup(ctx, "balance")
	require.NoError(d.t, err)
	_, err = k.ReadNew(ctx, "balance", "digger", 1000, 0)
	require.NoError(d.t, err)
	entries, err := k.Entries(ctx, "-", "+")
	require.NoError(d.t, err)
	for _, e := range entries {
		for i := range e.Grants {
			_, err := k.DeadLetter(ctx, shards.Letter{Group: "balance", Consumer: "digger", EntryID: e.ID,
				Grant: &e.Grants[i], Last: i == len(e.Grants)-1, Class: hongbao.ClassPermanent, Reason: reason, Attempts: 3})
			require.NoError(d.t, err)
		}
	}
}

// Dead letters are found by what they say, requeued and dropped singly and by filter, with who and why; a key with a
// scope sees and decides its own only.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	d.campaign("snow", 10, 1_000)
	for i := range 3 {
		d.grab("rain", fmt.Sprint("u", i))
		d.grab("snow", fmt.Sprint("u", i))
	}
	d.buried("the account is closed")
	list := func(key, query string) []deadletter.Letter {
		var page app.LetterPage
		d.get(key, "/v1/dead-letters"+query).ok(t, http.StatusOK, &page)
		return page.Letters
	}
	require.Len(t, list("viewer", ""), 6)
	require.Len(t, list("viewer", "?reason=is+closed&class=permanent&campaign=snow"), 3)
	require.Empty(t, list("viewer", "?reason=is+open"))
	require.Len(t, list("viewer/rain*", ""), 3)
	var page app.LetterPage
	d.get("viewer", "/v1/dead-letters?limit=4").ok(t, http.StatusOK, &page)
	require.Len(t, list("viewer", "?after="+page.Next), 2)
	snow := list("viewer", "?campaign=snow")[0].ID
	rain := list("viewer", "?campaign=rain")[0].ID
	d.get("viewer", "/v1/dead-letters/"+snow).ok(t, http.StatusOK, nil)
	d.get("viewer/rain*", "/v1/dead-letters/"+snow).refused(t, "unknown_letter")

	body := func(fields string) string { return `{"why":"they opened it again",` + fields + `}` }
	for fields, code := range map[string]string{
		`"letter":"` + snow + `"`: "unknown_letter", `"campaign":"snow"`: "unknown_campaign",
		`"sink":"kafka"`: "unknown_sink", `"letter":"x"`: "unknown_letter", `"class":"odd"`: "invalid_value",
		`"all":true,"class":"permanent"`: "invalid_value", `"dry_run":true`: "invalid_value", `"odd":1`: "invalid_value",
		`"all":1`: "invalid_value", `"from":"yesterday"`: "invalid_value", `"user":"a b"`: "invalid_value",
		`"reason":{}`: "nested_value", `"campaign":"rain","limit":1`: "unknown_field",
	} {
		d.post("operator/rain*", "/v1/dead-letters/requeue", body(fields)).refused(t, code)
	}
	d.post("operator", "/v1/dead-letters/requeue", `{"all":true}`).refused(t, "invalid_value")
	var report lettersAnswer
	ask := func(key, what, fields string) lettersAnswer {
		report = lettersAnswer{}
		d.post(key, "/v1/dead-letters/"+what, body(fields)).ok(t, http.StatusOK, &report)
		return report
	}
	require.EqualValues(t, 3, ask("operator/rain*", "requeue", `"reason":"is closed","dry_run":true`).Matched)
	require.EqualValues(t, 1, ask("operator/rain*", "requeue", `"letter":"`+rain+`"`).Resolved)
	require.EqualValues(t, 2, ask("operator/rain*", "requeue", `"reason":"is closed"`).Resolved)
	require.Len(t, list("viewer", ""), 3, "those of the other campaign stay")
	require.EqualValues(t, 1, ask("treasurer", "drop", `"letter":"`+snow+`"`).Resolved)
	require.EqualValues(t, 2, ask("treasurer", "drop", `"all":true`).Resolved)
	require.Empty(t, list("viewer", ""))
	var shown app.Shown
	d.get("viewer", "/v1/campaigns/rain").ok(t, http.StatusOK, &shown)
	require.EqualValues(t, 300, shown.Ledger.Granted)
}

// A replay is counted, run, found in the list and not begun with another range.
func TestReplays(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	for i := range 3 {
		d.grab("rain", fmt.Sprint("u", i))
	}
	var answer replayAnswer
	d.post("operator", "/v1/replays/mend", `{"to":"balance","dry_run":true}`).ok(t, http.StatusOK, &answer)
	require.EqualValues(t, 3, answer.Report.Matched)
	d.get("viewer", "/v1/replays/mend").refused(t, "unknown_replay")
	d.post("operator/rain*", "/v1/replays/mend", `{"to":"balance"}`).refused(t, "forbidden")
	d.post("operator/rain*", "/v1/replays/mend", `{"to":"balance","campaign":"snow"}`).refused(t, "unknown_campaign")
	d.post("operator/rain*", "/v1/replays/mend", `{"to":"balance","campaign":"rain"}`).ok(t, http.StatusOK, &answer)
	require.True(t, answer.Report.Finished)
	require.EqualValues(t, 3, answer.Report.Delivered)
	d.post("operator", "/v1/replays/mend", `{"to":"balance"}`).refused(t, "replay_differs")
	var state replayState
	d.get("viewer", "/v1/replays/mend").ok(t, http.StatusOK, &state)
	require.True(t, state.Finished)
	require.False(t, state.RunsHere)
	require.Equal(t, state.Events, state.Looked)
	var all replaysAnswer
	d.get("viewer", "/v1/replays").ok(t, http.StatusOK, &all)
	require.Equal(t, []replayState{state}, all.Replays)
	d.post("operator", "/v1/replays/mend/stop", "{}").refused(t, "not_running_here")
	for body, code := range map[string]string{
		`{}`: "invalid_value", `{"to":"kafka"}`: "unknown_sink", `{"to":"topic:"}`: "invalid_value",
		`{"to":"balance","missing":true}`: "invalid_value", `{"to":"balance","dead":"balance"}`: "invalid_value",
		`{"to":"balance","shard":"1"}`: "invalid_value", `{"to":"balance","first_seq":2,"last_seq":1}`: "invalid_value",
		`{"to":"balance","rate":0}`: "invalid_value", `{"to":"balance","odd":0}`: "unknown_field",
		`{"to":"balance","campaign":"drizzle"}`: "unknown_campaign",
	} {
		d.post("operator", "/v1/replays/other", body).refused(t, code)
	}
	d.post("operator", "/v1/replays/"+strings.Repeat("a", 58), `{"to":"balance"}`).refused(t, "invalid_name")
}

// Each cell of the table of roles by HTTP: what a role may not do is 403, whatever is in the request; what is not in a
// key's scope does not exist.
func TestRoles(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	d.campaign("snow", 10, 1_000)
	path := strings.NewReplacer("{id}", "rain", "{sink}", "balance", "{shard}", "0", "{entry}", "1-1", "{number}", "7",
		"{name}", "mend")
	for _, o := range operations() {
		at := path.Replace(o.path)
		d.call("", o.method, at, "{}").refused(t, "unauthorized")
		for _, role := range access.Roles() {
			all, scoped := access.Caller{Role: role}, access.Caller{Role: role, Campaigns: []string{"rain*"}}
			r := d.call(string(role), o.method, at, `{"odd":1}`)
			if all.May(o.action) != nil {
				require.Equal(t, "forbidden", r.code(), "%s %s", role, o.id)
			} else {
				require.NotContains(t, []string{"forbidden", "unauthorized"}, r.code(), "%s %s: %s", role, o.id, r.text)
				require.Less(t, r.status, 500, r.text)
			}
			r = d.call(string(role)+"/rain*", o.method, at, `{"odd":1}`)
			require.Equal(t, scoped.May(o.action) != nil, r.code() == "forbidden", "%s %s: %s", role, o.id, r.text)
			if strings.Contains(o.path, "{id}") && scoped.May(o.action) == nil {
				r := d.call(string(role)+"/rain*", o.method, strings.Replace(at, "rain", "snow", 1), "{}")
				require.Equal(t, "unknown_campaign", r.code(), "%s %s", role, o.id)
			}
		}
	}
	d.post("treasurer/rain*", "/v1/campaigns", specOf(t, campaignOf("snow-2", 10, 100))).refused(t, "unknown_campaign")
	d.post("treasurer/rain*", "/v1/campaigns", specOf(t, campaignOf("rain-2", 10, 100))).ok(t, http.StatusOK, nil)
	require.Len(t, d.ledgerCampaigns(), 3)
}

// A sink is paused and resumed for all workers, with who and why.
func TestPauseOfASink(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	var change app.SinkChange
	d.post("operator", "/v1/sinks/balance/pause", `{"why":"the bank is closed"}`).ok(t, http.StatusOK, &change)
	require.True(t, change.Pause.Paused)
	require.Equal(t, "the bank is closed", change.Pause.Why)
	var sinks sinksAnswer
	d.get("viewer", "/v1/sinks").ok(t, http.StatusOK, &sinks)
	require.True(t, sinks.Sinks[0].Pause.Paused)
	require.Contains(t, sinks.Sinks[0].Pause.By, "key:")
	d.post("operator", "/v1/sinks/balance/resume", `{"why":"it is open"}`).ok(t, http.StatusOK, &change)
	require.False(t, change.Pause.Paused)
	for body, want := range map[string]*int{`"grants_per_second":500`: new(500), `"grants_per_second":0`: new(0),
		`"by_knob":true`: nil} {
		d.post("operator", "/v1/sinks/balance/limit", `{"why":"x",`+body+`}`).ok(t, http.StatusOK, &change)
		require.Equal(t, want, change.Limit.GrantsPerSecond, body)
	}
	for _, body := range []string{`"by_knob":true,"grants_per_second":1`, `"by_knob":false`, `"grants_per_second":-1`} {
		d.post("operator", "/v1/sinks/balance/limit", `{"why":"x",`+body+`}`).refused(t, "invalid_value")
	}
	d.post("operator", "/v1/sinks/kafka/pause", `{"why":"x"}`).refused(t, "unknown_sink")
	d.post("operator", "/v1/sinks/balance/pause", `{}`).refused(t, "invalid_value")
}

// A grant in quarantine is found, decided once by who may, and is none for a key with another scope.
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
	var page app.QuarantinePage
	d.get("viewer", "/v1/quarantine").ok(t, http.StatusOK, &page)
	require.Len(t, page.Grants, 2)
	one, two := fmt.Sprintf("/v1/quarantine/%d", page.Grants[0].ID), fmt.Sprintf("/v1/quarantine/%d", page.Grants[1].ID)
	d.get("viewer", "/v1/quarantine?limit=1").ok(t, http.StatusOK, &page)
	require.Len(t, page.Grants, 1)
	require.NotZero(t, page.Next)
	d.key("other", access.RoleTreasurer, "snow")
	d.get("other", "/v1/quarantine").ok(t, http.StatusOK, &page)
	require.Empty(t, page.Grants)
	d.get("other", one).refused(t, "unknown_quarantine")
	d.post("other", one+"/decide", `{"decision":"void","why":"x"}`).refused(t, "unknown_quarantine")
	var q app.Quarantined
	d.get("viewer", one).ok(t, http.StatusOK, &q)
	require.Equal(t, "thief", q.Came.User)
	require.Equal(t, "u1", q.Ledger.User)
	for range 2 {
		d.post("treasurer", one+"/decide", `{"decision":"void","why":"forged"}`).ok(t, http.StatusOK, &q)
		require.Equal(t, "void: forged", q.Resolution)
	}
	d.post("treasurer", one+"/decide", `{"decision":"pay","why":"no"}`).refused(t, "decided_otherwise")
	d.post("treasurer", two+"/decide", `{"decision":"pay","why":"a mistake of ours"}`).ok(t, http.StatusOK, &q)
	for _, body := range []string{`{}`, `{"decision":"burn","why":"x"}`, `{"decision":"void"}`, `{"decision":"void","why":" "}`} {
		d.post("treasurer", two+"/decide", body).refused(t, "invalid_value")
	}
}

// plant puts an entry with one grant into a campaign's stream, as nobody but an intruder does.
func (d *desk) plant(id, grant string) {
	d.t.Helper()
	rdb := d.cfg.RedisClient()
	defer func() { require.NoError(d.t, rdb.Close()) }()
	layout, err := shards.NewLayout(d.cfg.Space())
	require.NoError(d.t, err)
	k := layout.Home(id)
	seq, err := rdb.HIncrBy(d.t.Context(), k.Meta(), "seq", 1).Result()
	require.NoError(d.t, err)
	require.NoError(d.t, rdb.XAdd(d.t.Context(), &redis.XAddArgs{Stream: k.Events(), Values: []any{"v", "1", "k", "grant",
		"c", id, "q", strconv.FormatInt(seq, 10), "e", "1", "t", strconv.FormatInt(time.Now().UnixMilli(), 10), "g", grant}}).Err())
}

// Who did what stands in the journal, whoever asked: each change once, with the request's id, and what a key was denied.
func TestJournal(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	again := func(r *http.Request) { r.Header.Set(keyHeader, "k1") }
	spec := specOf(t, campaignOf("rain", 10, 1_000))
	created := d.post("treasurer", "/v1/campaigns", spec, again)
	d.post("treasurer", "/v1/campaigns", spec, again).ok(t, http.StatusOK, nil)
	d.post("operator", "/v1/campaigns/rain/load", "{}").ok(t, http.StatusOK, nil)
	d.post("operator", "/v1/campaigns/rain/close", "{}").refused(t, "forbidden")
	d.post("operator/rain*", "/v1/campaigns/snow/pause", "{}").refused(t, "unknown_campaign")
	d.post("treasurer/rain*", "/v1/campaigns", specOf(t, campaignOf("snow", 10, 100))).refused(t, "unknown_campaign")
	var page access.JournalPage
	d.get("viewer", "/v1/journal?since=2026-01-01T00:00:00Z").ok(t, http.StatusOK, &page)
	seen := map[string]int{}
	for _, e := range page.Entries {
		if strings.HasPrefix(e.Who, "key:") {
			seen[fmt.Sprintf("%s %s %s", e.Action, e.Campaign, e.Outcome)]++
			require.NotEmpty(t, e.RequestID)
		}
	}
	require.Equal(t, map[string]int{"create_campaign rain done": 1, "load_campaign rain done": 1,
		"close_campaign rain denied": 1, "pause_campaign snow denied": 1, "create_campaign  denied": 1}, seen)
	who := ""
	for _, e := range page.Entries {
		if e.RequestID == created.head.Get(web.RequestID) {
			who = e.Who
		}
	}
	require.Contains(t, d.keys["treasurer"], strings.TrimPrefix(who, "key:"))
	d.get("viewer", "/v1/journal?limit=2&who="+who).ok(t, http.StatusOK, &page)
	require.Len(t, page.Entries, 1)
	d.get("viewer", "/v1/journal?limit=2").ok(t, http.StatusOK, &page)
	require.Len(t, page.Entries, 2)
	d.get("viewer", "/v1/journal?after="+page.Next).ok(t, http.StatusOK, &page)
	for _, bad := range []string{"since=yesterday", "after=x", "who=", "campaign=A"} {
		d.get("viewer", "/v1/journal?"+bad).refused(t, "invalid_parameter")
	}
}
