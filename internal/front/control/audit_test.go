package control

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// audits returns the entries of the journal about audits that ran.
func (d *desk) audits() (all []access.Entry) {
	d.t.Helper()
	d.do(func(a *app.App) error {
		page, err := a.Journal(d.t.Context(), access.JournalQuery{Limit: 1000})
		for _, e := range page.Entries {
			if e.Action == access.RunAudit && e.Outcome != access.OutcomeDenied {
				all = append(all, e)
			}
		}
		return err
	})
	return all
}

// under returns a change of a request that gives it this Idempotency-Key.
func under(key string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(keyHeader, key) }
}

// An audit over HTTP returns the report of the command. Operators may audit, and only treasurers may seal.
func TestAudit(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	d.grab("rain", "u1")
	d.work()
	const at = "/v1/audit"
	var out auditAnswer
	d.post("operator", at, `{"campaign":"rain","full":true,"wait_seconds":5}`).OK(t, http.StatusOK, &out)
	require.Equal(t, model.Agrees, out.Report.Verdict)
	require.EqualValues(t, 1, out.Report.Total.Settled)
	require.Nil(t, out.Running)
	require.Equal(t, map[string]any{"verdict": "agrees", "differences": 0., "campaigns": []any{"rain"}, "full": true},
		d.audits()[0].Details)
	for _, key := range []string{"viewer", "gateway", "operator/rain*"} {
		d.post(key, at, "{}").Refused(t, "forbidden")
	}
	d.post("operator", at, `{"seal":true}`).Refused(t, "forbidden")
	d.post("operator", at, `{"campaign":"rain,"}`).Refused(t, "invalid_value")
	d.post("operator", at, `{"wait_seconds":3601}`).Refused(t, "invalid_value")
	require.Len(t, d.audits(), 1, "a refused request runs no audit")

	rain := d.app.Store().Shard(0).Keys.Campaign("rain")
	require.NoError(t, d.app.Store().Redis().HIncrBy(t.Context(), rain, "loaded", 1).Err())
	for range 2 { // a repeat under the same key returns the stored report
		d.post("treasurer", at, `{"seal":true}`, under("k1")).OK(t, http.StatusOK, &out)
		require.Equal(t, model.Differs, out.Report.Verdict)
		require.EqualValues(t, 1, out.Report.Found[audit.CounterDrift])
	}
	require.Len(t, d.audits(), 2)
}

// The servers of a deployment run one audit at a time. Another request learns when it started and who started it.
func TestOneAuditInADeployment(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	locks, err := d.app.Locks()
	require.NoError(t, err)
	since := time.Date(2026, 2, 17, 20, 0, 0, 0, time.UTC)
	mine, err := locks.Try(t.Context(), d.app.Store().Shard(0), "audit", func(ctx context.Context) error {
		require.NoError(t, d.app.Store().SetAuditing(ctx, model.RunningAudit{Since: since, By: "key:ann", Request: "x"}))
		r := d.post("operator", "/v1/audit", "{}")
		r.Refused(t, "conflict")
		require.Contains(t, r.Body["detail"], "another audit is running (since 2026-02-17T20:00:00Z, started by key:ann)")
		return nil
	})
	require.NoError(t, err)
	require.True(t, mine)
	require.Empty(t, d.audits())
	d.post("operator", "/v1/audit", "{}").OK(t, http.StatusOK, nil)
}

// The caller of a long audit gets an answer 202. A repeat of the request gets the report at each server, also if it
// arrives after the end of the audit. There is one audit.
func TestReportOfALongAudit(t *testing.T) {
	t.Parallel()
	d := setup(t, options{patience: 200 * time.Millisecond})
	d.campaign("rain", 10, 1_000)
	d.grab("rain", "u1") // the audit waits until a worker has settled it
	const at, order = "/v1/audit", `{"wait_seconds":600}`
	var begun, seen, done auditAnswer
	d.post("operator", at, order, under("k1")).OK(t, http.StatusAccepted, &begun)
	require.WithinDuration(t, time.Now(), begun.Running.Since, time.Minute)

	first := d.h
	d.serve("second", d.c.cfg.Patience)
	for _, h := range []http.Handler{first, d.h} {
		d.h = h
		d.post("operator", at, order, under("k1")).OK(t, http.StatusAccepted, &seen)
		require.Equal(t, begun.Running.By, seen.Running.By)
		d.post("operator", at, order, under("k2")).Refused(t, "conflict")
	}
	require.Nil(t, seen.Report)

	d.work()
	testkit.Eventually(t, 30*time.Second, func() bool { // at the second server, which never ran the audit
		r := d.post("operator", at, order, under("k1"))
		done = auditAnswer{}
		r.OK(t, r.Status, &done)
		return r.Status == http.StatusOK
	}, "the second server has the report")
	require.True(t, done.Report.Quiet)
	require.Equal(t, model.Agrees, done.Report.Verdict)
	require.Len(t, d.audits(), 1)
}
