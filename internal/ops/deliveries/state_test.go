package deliveries

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/base/metrics"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/configs/configstest"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The record of the last audit can't be read: the rest of the state is still reported. Redis does not answer before the
// deadline: State returns an error.
func TestStateKeepsWhatCame(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	a := apptest.OnRedis(t, server, hongbao.DurabilityFast, 1)
	require.NoError(t, a.Redis().HSet(t.Context(), a.Store().Shard(0).Keys.Audit(), "started", "yesterday").Err())
	s, err := Of(a).State(t.Context())
	require.NoError(t, err)
	require.Nil(t, s.Audit)
	require.Len(t, s.Servers, 1)
	require.Len(t, s.Shards, a.Store().Len())
	left, err := Of(a).Left(t.Context(), []string{"rain", "none"})
	require.NoError(t, err)
	require.Equal(t, []metrics.CampaignState{{ID: "rain", Left: 50}}, left.Campaigns)
	for _, sink := range s.Sinks {
		require.Len(t, sink.Shards, a.Store().Len())
	}
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	s, err = Of(a).State(late)
	require.Error(t, err)
	require.Empty(t, s.Servers)
}

// Parked entries are reported by shard and level. A shard without parked entries reports 0. A shard that fails reports
// nothing.
func TestStateTellsWhatEachShardHasParked(t *testing.T) {
	t.Parallel()
	s, err := Of((&app.App{Config: &configs.Config{}})).sinkState("kafka", []standing{
		{GroupStatus: store.GroupStatus{ParkedAt: []int64{0, 3}}}, {}, {err: errors.New("an odd entry")},
	})
	require.NoError(t, err)
	require.Len(t, s.Shards, 2)
	require.Equal(t, []int64{0, 3}, s.Shards[0].Parked)
	require.Equal(t, []int64{0}, s.Shards[1].Parked)
}

// A sink's limit is the one that a person has set, or else that of the knob. A campaign that is paused on several shards
// counts once.
func TestStateReportsLimitsAndPausedCampaigns(t *testing.T) {
	t.Parallel()
	a := &app.App{Config: configstest.Config(t, "HONGBAO_SINKS_KAFKA_GRANTS_PER_SECOND=50")}
	pause := func(campaign, by string, paused bool) store.CampaignPause {
		return store.CampaignPause{Campaign: campaign, By: by, Paused: paused}
	}
	on := []standing{{GroupStatus: store.GroupStatus{Campaigns: []store.CampaignPause{pause("a", stream.ByWorker, true),
		pause("b", "ann", true), pause("c", stream.ByWorker, false)}}},
		{GroupStatus: store.GroupStatus{Campaigns: []store.CampaignPause{pause("a", stream.ByWorker, true)}}}}
	s, err := Of(a).sinkState("kafka", on)
	require.NoError(t, err)
	require.Equal(t, []int{50, 1, 1}, []int{s.Rate, s.PausedByWorker, s.PausedByPerson})
	none := 0
	on[1].Control.Rate = &none
	s, err = Of(a).sinkState("kafka", on)
	require.NoError(t, err)
	require.Zero(t, s.Rate)
}

// A top-up was ordered, but no worker has dealt it. The state counts it, so that a worker can be started for it. If the
// ledger does not answer, the state has no counts.
func TestStateTellsWhatWaitsInTheLedger(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	dsn := filepath.Join(t.TempDir(), "l.db")
	a := apptest.OnServers(t, "sqlite", dsn, "")
	require.NoError(t, a.Store().Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	now := time.Now()
	spec := apptest.Creates(t, a, "rain")
	unfinished := func() *metrics.LedgerState {
		s, err := Of(a).State(t.Context())
		require.NoError(t, err)
		return s.Ledger
	}
	require.Equal(t, &metrics.LedgerState{Unrefunded: new(time.Duration),
		Unfinished: map[string]metrics.Backlog{"top_ups": {}, "credits": {}}}, unfinished())
	_, err := a.Ledger().TopUp(t.Context(), ledger.TopUp{Campaign: "rain", ID: "more", Generation: 2, Packets: 1,

		Total: 1, Expect: 1, Split: spec.Split, Hash: "other", Seed: campaign.NewSeed(),
		Decision: stream.Decision{By: "ann", Why: "it rains"}})
	require.NoError(t, err)
	testkit.Eventually(t, 10*time.Second, func() bool {
		has := unfinished().Unfinished
		return has["top_ups"].Count == 1 && has["top_ups"].Oldest > 0 && has["credits"] == metrics.Backlog{}
	}, "the state has the top-up and its age")
	require.NoError(t, a.Ledger().KeepControls(t.Context(), stream.Control{Kind: stream.ControlCampaign, Campaign: "rain",
		Value: store.StatePaused, Decision: stream.Decision{By: stream.ByWorker, Why: "a wrong grant"}, Rev: 1}))
	require.EqualValues(t, 1, unfinished().Paused)
	require.Zero(t, *unfinished().Unrefunded)
	var status Status
	Of(a).AddUnrefunded(t.Context(), &status)
	require.Equal(t, []ledger.Unrefunded{}, status.Unrefunded)
	spec.ID, spec.From, spec.To = "old", now.Add(-50*time.Hour).UTC(), now.Add(-49*time.Hour).UTC()
	_, err = a.Ledger().CreateCampaign(t.Context(), ledger.Campaign{Spec: spec, Seed: campaign.NewSeed(), Hash: "h",
		Canonical: campaign.Canonical(spec)})
	require.NoError(t, err)
	require.Zero(t, *unfinished().Unrefunded, "a process reads the campaigns once in a minute")
	a.ForgetUnrefunded()
	require.InDelta(t, 49*time.Hour, *unfinished().Unrefunded, float64(time.Minute))
	Of(a).AddUnrefunded(t.Context(), &status)
	require.Equal(t, []ledger.Unrefunded{{Campaign: "old", Ends: spec.To.Truncate(time.Millisecond)}}, status.Unrefunded)
	db, err := sql.Open("sqlite", dsn)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), `UPDATE campaign SET spec = '{' WHERE id = 'old'`)
	require.NoError(t, err)
	a.ForgetUnrefunded()
	require.EqualValues(t, 1, unfinished().Paused, "one campaign can't be read")
	require.Nil(t, unfinished().Unrefunded)
	_, err = db.ExecContext(t.Context(), `UPDATE campaign SET spec = $1 WHERE id = 'old'`, string(campaign.Canonical(spec)))
	require.NoError(t, err)
	require.Nil(t, unfinished().Unrefunded, "after a failure the next calls do not wait for the ledger")
	a.ForgetUnrefunded()
	require.NotZero(t, unfinished().Unrefunded)
	a.SetLedger(ledger.Lazy(a.LedgerConfig(), func(context.Context) (*ledger.Ledger, error) { return nil, errors.New("down") }))
	require.Nil(t, unfinished())
	a.ForgetUnrefunded()
	status.Unrefunded = nil
	Of(a).AddUnrefunded(t.Context(), &status)
	require.Nil(t, status.Unrefunded, "unknown")
}
