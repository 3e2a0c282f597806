package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/store"
)

// buried turns every grant in the only shard's stream into a dead letter of sink balance.
func (d *desk) buried(reason string) {
	d.t.Helper()
	rdb := d.cfg.RedisClient()
	defer func() { require.NoError(d.t, rdb.Close()) }()
	st, err := store.New(store.Config{Redis: rdb, Space: d.cfg.Space()})
	require.NoError(d.t, err)
	k, ctx := st.Shard(0), d.t.Context()
	_, err = k.Group("balance").Create(ctx)
	require.NoError(d.t, err)
	_, err = k.Group("balance").ReadNew(ctx, "digger", 1000, 0)
	require.NoError(d.t, err)
	entries, err := k.Entries(ctx, "-", "+")
	require.NoError(d.t, err)
	for _, e := range entries {
		for i := range e.Grants {
			_, err := k.DeadLetter(ctx, store.Letter{Group: "balance", Consumer: "digger", EntryID: e.ID,
				Grant: &e.Grants[i], Last: i == len(e.Grants)-1, Class: hongbao.ClassPermanent, Reason: reason, Attempts: 3})
			require.NoError(d.t, err)
		}
	}
}

// Dead letters can be searched, and requeued or dropped one by one or by filter. A key with a scope sees and decides
// only letters in it.
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
	list := func(key, query string) []model.Letter {
		var page deliveries.LetterPage
		d.get(key, "/v1/dead-letters"+query).OK(t, http.StatusOK, &page)
		return page.Letters
	}
	require.Len(t, list("viewer", ""), 6)
	require.Len(t, list("viewer", "?reason=is+closed&class=permanent&campaign=snow"), 3)
	require.Empty(t, list("viewer", "?reason=is+open"))
	require.Len(t, list("viewer/rain*", ""), 3)
	var page deliveries.LetterPage
	d.get("viewer", "/v1/dead-letters?limit=4").OK(t, http.StatusOK, &page)
	require.Len(t, list("viewer", "?after="+string(page.Next)), 2)
	snow := list("viewer", "?campaign=snow")[0].ID
	rain := list("viewer", "?campaign=rain")[0].ID
	d.get("viewer", "/v1/dead-letters/"+snow).OK(t, http.StatusOK, nil)
	d.get("viewer/rain*", "/v1/dead-letters/"+snow).Refused(t, "unknown_letter")

	body := func(fields string) string { return `{"why":"they opened it again",` + fields + `}` }
	for fields, code := range map[string]string{
		`"letter":"` + snow + `"`: "unknown_letter", `"campaign":"snow","dry_run":true`: "unknown_campaign",
		`"sink":"kafka","dry_run":true`: "unknown_sink", `"letter":"x"`: "unknown_letter", `"class":"odd"`: "invalid_value",
		`"all":true,"class":"permanent"`: "invalid_value", `"dry_run":true`: "invalid_value", `"odd":1`: "unknown_field",
		`"all":1`: "invalid_value", `"from":"yesterday"`: "invalid_value", `"user":"a b"`: "invalid_value",
		`"reason":{}`: "nested_value", `"sink":"balance"`: "invalid_value", `"all":true,"expect":-1`: "invalid_value",
		`"letter":"` + rain + `","expect":1`: "invalid_value", `"all":true`: "invalid_value",
		`"campaign":"rain","expect":2`: "refused", `"campaign":"snow","expect":3`: "unknown_campaign",
		`"campaign":"rain","dry_run":true,"limit":1`: "unknown_field",
	} {
		d.post("operator/rain*", "/v1/dead-letters/requeue", body(fields)).Refused(t, code)
	}
	d.post("operator", "/v1/dead-letters/requeue", `{"all":true}`).Refused(t, "invalid_value")
	var report lettersAnswer
	ask := func(key, what, fields string) lettersAnswer {
		report = lettersAnswer{}
		d.post(key, "/v1/dead-letters/"+what, body(fields)).OK(t, http.StatusOK, &report)
		return report
	}
	require.EqualValues(t, 3, ask("operator/rain*", "requeue", `"reason":"is closed","dry_run":true`).Matched)
	all := list("viewer", "")
	require.EqualValues(t, 4, ask("operator", "requeue", `"all":true,"dry_run":true,"after":"`+all[1].ID+`"`).Matched)
	for _, bad := range []string{
		`"all":true,"after":"x"`, `"letter":"` + snow + `","after":"` + snow + `"`, `"after":"` + snow + `"`,
	} {
		d.post("operator", "/v1/dead-letters/requeue", body(bad)).Refused(t, "invalid_value")
	}
	d.post("operator", "/v1/dead-letters/requeue", body(`"all":true,"expect":5,"after":"kafka/0/1-1"`)).Refused(t, "refused")
	require.EqualValues(t, 1, ask("operator/rain*", "requeue", `"letter":"`+rain+`"`).Resolved)
	require.EqualValues(t, 2, ask("operator/rain*", "requeue", `"reason":"is closed","expect":2`).Resolved)
	require.Len(t, list("viewer", ""), 3, "letters of the other campaign remain")
	require.EqualValues(t, 1, ask("treasurer", "drop", `"letter":"`+snow+`"`).Resolved)
	require.EqualValues(t, 2, ask("treasurer", "drop", `"all":true,"expect":2`).Resolved)
	require.Empty(t, list("viewer", ""))
	var shown campaigns.Shown
	d.get("viewer", "/v1/campaigns/rain").OK(t, http.StatusOK, &shown)
	require.EqualValues(t, 300, shown.Ledger.Granted)
}

// If a decision about many letters does not finish in time, the answer says where the next request continues.
func TestDeadLettersGoOn(t *testing.T) {
	t.Parallel()
	var got ops.Letters
	o := letterChange("requeue", "", "", access.RequeueLetters, func(ctx context.Context, _ ops.Operations,
		in ops.Letters) (*model.LetterReport, error) {
		got = in
		<-ctx.Done()
		return &model.LetterReport{Matched: 7, Next: "balance/0/5-0"}, ctx.Err()
	})
	object, err := web.ParseObject([]byte(`{"all":true,"expect":9,"why":"repaired","after":"balance/0/3-0"}`), web.Body{Bytes: maxBody})
	require.NoError(t, err)
	c := &call{Control: &Control{cfg: Config{Patience: time.Millisecond}}, fields: &fields{o: object}}
	answer, err := o.do(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, "balance/0/3-0", got.After)
	text, err := json.Marshal(answer.(later).answer)
	require.NoError(t, err)
	require.Contains(t, string(text), `"next":"balance/0/5-0"`)
	require.Contains(t, string(text), `"more":true`)
}

// A caller with a scope gets only the lists and letters of their campaigns. This holds for every user of the
// operations, not only for this API.
func TestOperationsKeepToTheScope(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	for _, id := range []string{"rain", "snow"} {
		d.campaign(id, 3, 300)
	}
	scoped := &ops.Local{App: d.app, Caller: &access.Caller{Key: "k", Role: access.RoleTreasurer, Campaigns: []string{"rain*"}}}
	list, err := scoped.ListCampaigns(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "rain", list[0].ID)
	all, err := (&ops.Local{App: d.app}).ListCampaigns(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
	none, n := ops.Letters{LetterFilter: model.LetterFilter{Campaign: "snow"}, Why: "a test"}, int64(0)
	none.Expect = &n
	_, err = scoped.DropLetters(t.Context(), none)
	require.ErrorIs(t, err, access.ErrNotInScope)
}
