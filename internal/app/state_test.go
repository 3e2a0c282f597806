package app

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/stream"
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
	a := onRedis(t, server, hongbao.DurabilityFast, 1)
	require.NoError(t, a.redis.HSet(t.Context(), a.store.Shard(0).Keys.Audit(), "started", "yesterday").Err())
	s, err := a.State(t.Context(), []string{"rain"}, false)
	require.NoError(t, err)
	require.Nil(t, s.Audit)
	require.Len(t, s.Servers, 1)
	require.Len(t, s.Shards, a.store.Len())
	require.EqualValues(t, 10, s.Campaigns[0].Left)
	for _, sink := range s.Sinks {
		require.Len(t, sink.Shards, a.store.Len())
	}
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	s, err = a.State(late, []string{"rain"}, false)
	require.Error(t, err)
	require.Empty(t, s.Servers)
}

// Parked entries are reported by shard and level. A shard without parked entries reports 0. A shard that fails reports
// nothing.
func TestStateTellsWhatEachShardHasParked(t *testing.T) {
	t.Parallel()
	s, err := (&App{}).sinkState("kafka", []standing{
		{GroupStatus: store.GroupStatus{ParkedAt: []int64{0, 3}}}, {}, {err: errors.New("an odd entry")},
	})
	require.NoError(t, err)
	require.Len(t, s.Shards, 2)
	require.Equal(t, []int64{0, 3}, s.Shards[0].Parked)
	require.Equal(t, []int64{0}, s.Shards[1].Parked)
}

// A top-up was ordered, but no worker has dealt it. The state counts it, so that a worker can be started for it. If the
// ledger does not answer, the state has no counts.
func TestStateTellsWhatWaitsInTheLedger(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := onServers(t, "sqlite", filepath.Join(t.TempDir(), "l.db"), "")
	require.NoError(t, a.store.Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	now := time.Now()
	spec := campaign.Complete(hongbao.Campaign{ID: "rain", Sponsor: "acme", Currency: "CNY", Packets: 1, Total: 1,
		From: now.Truncate(time.Second), To: now.Add(time.Hour).Truncate(time.Second), TimeZone: "UTC"})
	_, err := a.ledger.CreateCampaign(t.Context(), ledger.Campaign{Spec: spec, Seed: campaign.NewSeed(), Hash: "h",
		Canonical: campaign.Canonical(spec)})
	require.NoError(t, err)
	unfinished := func() map[string]int64 {
		s, err := a.State(t.Context(), nil, true)
		require.NoError(t, err)
		return s.Unfinished
	}
	require.Equal(t, map[string]int64{"top_ups": 0, "credits": 0}, unfinished())
	_, err = a.ledger.TopUp(t.Context(), ledger.TopUp{Campaign: "rain", ID: "more", Generation: 2, Packets: 1,

		Total: 1, Expect: 1, Split: spec.Split, Hash: "other", Seed: campaign.NewSeed(),
		Decision: stream.Decision{By: "ann", Why: "it rains"}})
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"top_ups": 1, "credits": 0}, unfinished())
	a.ledger = ledger.Lazy(a.ledgerConfig(), func(context.Context) (*ledger.Ledger, error) { return nil, errors.New("down") })
	require.Nil(t, unfinished())
}
