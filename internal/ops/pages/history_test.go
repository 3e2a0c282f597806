package pages

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// sampled is a deployment with campaign rain, which runs, and campaign snow, which is not loaded.
func sampled(t *testing.T) *Source {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnServers(t, "sqlite", filepath.Join(t.TempDir(), "l.db"), "")
	require.NoError(t, a.Store().Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	apptest.Creates(t, a, "rain")
	apptest.Creates(t, a, "snow")
	apptest.Loads(t, a, "rain", hongbao.DurabilityFast, 1)
	return NewSource(a)
}

// answered stores that a server has granted n grabs of campaign rain.
func answered(t *testing.T, s *Source, n int64) {
	t.Helper()
	line := store.AnswersLine{Campaign: "rain", Name: "a", Counts: []model.AnswerCount{{Name: "granted", N: n}}}
	require.NoError(t, s.Store().Home("rain").StoreAnswers(t.Context(), []store.AnswersLine{line})[0].Err)
}

// Running campaigns are sampled although no page shows them. Who opens the page gets the samples.
func TestRunningCampaignsAreSampled(t *testing.T) {
	t.Parallel()
	s := sampled(t)
	apptest.Grants(t, s.App, "u1")
	answered(t, s, 5)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	testkit.Eventually(t, 30*time.Second, func() bool { return len(s.history.samples("rain")) > 1 }, "rain is sampled")
	stop()
	<-ended
	require.Empty(t, s.history.samples("snow"))
	live, err := s.Campaign(t.Context(), "rain")
	require.NoError(t, err)
	for _, sample := range live.Samples {
		require.Equal(t, []int64{1, 0, 5}, []int64{*sample.Granted, *sample.Settled, *sample.Answered})
	}
	require.WithinDuration(t, live.Samples[0].At.Add(sampledEvery), live.Samples[1].At, sampledEvery/2)
}

// A counter that can't be read is a hole. The other counters go on.
func TestSamplesHaveHoles(t *testing.T) {
	t.Parallel()
	s := sampled(t)
	list, err := s.running(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	meta, answers := s.Store().Home("rain").Keys.Meta(), s.Store().Home("rain").Keys.Answers("rain")
	known := func() [3]bool {
		t.Helper()
		s.sample(t.Context(), list, time.Now())
		all := s.history.samples("rain")
		last := all[len(all)-1]
		return [3]bool{last.Granted != nil, last.Settled != nil, last.Answered != nil}
	}
	require.Equal(t, [3]bool{true, true, true}, known())
	require.NoError(t, s.Store().Redis().HSet(t.Context(), meta, "frozen", "1").Err())
	require.Equal(t, [3]bool{false, true, true}, known(), "the shard is frozen")
	require.NoError(t, s.Store().Redis().HDel(t.Context(), meta, "frozen").Err())
	require.NoError(t, s.Store().Redis().Set(t.Context(), answers, "planted", 0).Err())
	require.Equal(t, [3]bool{true, true, false}, known(), "the answers can't be read")
	s.SetLedger(ledger.Lazy(s.LedgerConfig(), func(context.Context) (*ledger.Ledger, error) {
		return nil, hongbao.Outagef(hongbao.ClassTransient, "the ledger is away")
	}))
	require.Equal(t, [3]bool{true, false, false}, known(), "the ledger is away, too")
}

// A sample is kept for ten minutes, and a campaign without samples is forgotten. A campaign is not sampled after its
// window.
func TestSamplesAreForgotten(t *testing.T) {
	t.Parallel()
	s := sampled(t)
	list, err := s.running(t.Context())
	require.NoError(t, err)
	now := time.Now()
	for range 700 {
		s.history.add(now, map[string]model.Sample{"rain": {At: now}})
		now = now.Add(time.Second)
	}
	require.Len(t, s.history.samples("rain"), int(sampledFor/sampledEvery))
	s.sample(t.Context(), list, list[0].Spec.To)
	require.Empty(t, s.history.of)
}
