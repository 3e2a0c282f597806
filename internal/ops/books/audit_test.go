package books

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// audited returns a deployment that can be audited, on a real Redis.
func audited(t *testing.T) *app.App {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnServers(t, "sqlite", filepath.Join(t.TempDir(), "l.db"), "", "HONGBAO_DEPLOYMENT_SINKS="+configs.SinkBalance)
	require.NoError(t, a.Store().Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	return a
}

// Redis is full, so it does not store which audit runs. The server audits nevertheless.
func TestAuditAtAServerWhileRedisIsFull(t *testing.T) {
	t.Parallel()
	a := audited(t)
	require.NoError(t, a.Redis().ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.Error(t, a.Store().SetAuditing(t.Context(), model.RunningAudit{}), "Redis is full")
	report, err := Of(a).AuditAlone(t.Context(), &AuditOrder{})
	require.NoError(t, err)
	require.Equal(t, model.Agrees, report.Verdict)
}

// The server that ran an audit has not stored the answer yet. A repeat of the request at another server starts no second
// audit, unless the first server never stores the answer. Another request starts one.
func TestRepeatOfAnAuditThatHasJustEnded(t *testing.T) {
	t.Parallel()
	a := audited(t)
	first := &AuditOrder{Request: "x"}
	_, err := Of(a).AuditAlone(t.Context(), first)
	require.NoError(t, err)
	_, err = Of(a).AuditAlone(t.Context(), first)
	var runs *AuditRunsError
	require.ErrorAs(t, err, &runs)
	require.Equal(t, "x", runs.Request)
	last, err := a.Store().Auditing(t.Context())
	require.NoError(t, err)
	last.Ended = time.Now().Add(-storedWithin)
	require.NoError(t, a.Store().SetAuditing(t.Context(), last))
	for _, o := range []*AuditOrder{first, {Request: "y"}} {
		_, err = Of(a).AuditAlone(t.Context(), o)
		require.NoError(t, err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Of(a).AuditAlone(canceled, &AuditOrder{Request: "z"})
	require.Error(t, err)
	_, err = Of(a).AuditAlone(t.Context(), &AuditOrder{Request: "z"})
	require.NoError(t, err, "an audit that failed ended without an answer")
}

// One campaign can't be sealed. The later ones are sealed all the same.
func TestOneFailureDoesNotStopTheNextSeal(t *testing.T) {
	t.Parallel()
	config := ledger.DefaultConfig()
	config.Database = sqlite.Database{Path: filepath.Join(t.TempDir(), "l.db")}
	_, err := ledger.Migrate(t.Context(), config)
	require.NoError(t, err)
	l, err := ledger.Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	for _, id := range []string{"open", "over"} {
		spec := hongbao.Campaign{ID: id, Name: "rain", Kind: hongbao.KindRedPacket, Currency: "CNY", Total: 10, Packets: 1,
			Sponsor: "acme", Split: hongbao.Split{Mode: hongbao.SplitEven}, TimeZone: "UTC", From: time.Now(), To: time.Now()}
		_, err := l.CreateCampaign(t.Context(), ledger.Campaign{Spec: spec, Seed: campaign.NewSeed(), Hash: "h",
			Canonical: campaign.Canonical(spec)})
		require.NoError(t, err)
	}
	_, err = l.Cancel(t.Context(), "over", []int{0})
	require.NoError(t, err)
	report := &model.AuditReport{Verdict: model.Agrees}
	report.Campaigns = []model.CampaignReport{{Campaign: "open", Sealable: true}, {Campaign: "over", Sealable: true}}
	err = Of(lone(l)).Seal(t.Context(), report)
	require.ErrorIs(t, err, books.ErrNotSealable)
	require.False(t, report.Campaigns[0].Sealed)
	require.True(t, report.Campaigns[1].Sealed, "the failure of one stops the sealing of the next")
	totals, _, err := books.Of(l.Tables()).Totals(t.Context(), "over")
	require.NoError(t, err)
	require.True(t, totals.Sealed)
}

// lone returns an App with a ledger and nothing else.
func lone(l *ledger.Ledger) *app.App {
	a := &app.App{}
	a.SetLedger(l)
	return a
}
