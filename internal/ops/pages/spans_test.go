package pages

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
)

// told returns spans as text: kind, sink, seconds after start, who and why.
func told(list []model.Span, start time.Time) string {
	lines := make([]string, len(list))
	for i, s := range list {
		to := "..."
		if s.To != nil {
			to = fmt.Sprint(s.To.Sub(start).Seconds())
		}
		lines[i] = strings.TrimSpace(fmt.Sprintf("%s %v-%s %s", s.Kind, s.From.Sub(start).Seconds(), to,
			strings.Join(strings.Fields(fmt.Sprint(s.Sink, " ", s.By, " ", s.Why)), " ")))
	}
	return strings.Join(lines, "; ")
}

// A pause ends with the resume or the close that follows it. What was refused, or failed, is no action.
func TestActionsBecomeSpans(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	entries := []access.Entry{}
	for i, e := range []struct {
		action  access.Action
		outcome access.Outcome
		why     string
	}{
		{access.LoadCampaign, access.OutcomeDone, ""}, {access.ResumeCampaign, access.OutcomeDone, ""},
		{access.PauseCampaign, access.OutcomeRefused, "no"}, {access.PauseCampaign, access.OutcomeDone, "typo"},
		{access.PauseCampaign, access.OutcomeDone, "again"}, {access.ResumeCampaign, access.OutcomeFailed, ""},
		{access.ResumeCampaign, access.OutcomeDone, ""}, {access.RunAudit, access.OutcomeDone, ""},
		{access.PauseCampaign, access.OutcomeDone, "end"}, {access.CloseCampaign, access.OutcomeDone, ""},
		{access.Refund, access.OutcomeDone, ""},
	} {
		entry := access.Entry{Time: start.Add(time.Duration(i) * time.Second), Who: "wei", Action: e.action, Outcome: e.outcome}
		if e.why != "" {
			entry.Details = map[string]any{"why": e.why}
		}
		entries = append(entries, entry)
	}
	require.Equal(t, "load 0-0 wei; paused 3-6 wei typo; paused 8-9 wei end; close 9-9 wei; refund 10-10 wei", told(acted(entries), start))
	require.Equal(t, "paused 3-... wei typo", told(acted(entries[2:5]), start))
}

// Samples say since when something could not be read, until the first sample in which it could.
func TestSamplesBecomeSpans(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	list := make([]model.Sample, 8)
	for i := range list {
		list[i] = model.Sample{At: start.Add(time.Duration(i) * time.Second), Granted: new(int64(1)), Settled: new(int64(1))}
	}
	list[1].Granted, list[2].Granted, list[2].Frozen = nil, nil, true
	for i := 4; i < 8; i++ {
		list[i].Settled = nil
	}
	list[5].Down, list[6].Down = []string{"kafka"}, []string{"kafka"}
	require.Equal(t, "redis_unread 1-2; frozen 2-3; ledger_unread 4-...; sink_down 5-7 kafka", told(observed(list), start))

	restored := []model.Restored{{Shard: 1, At: start.Add(20 * time.Second)}, {Shard: 0, At: start.Add(4 * time.Second)},
		{Shard: 0, At: start.Add(30 * time.Second)}, {Shard: 0, At: start.Add(40 * time.Second)}}
	for i := range restored {
		restored[i].Took = model.OpeningSteps{Ledger: 100, Topic: 900, Witnesses: 1_500, Open: 400}
		restored[i].Next = int64(i % 3) // that of the last one did not end with an opening
	}
	require.Equal(t, "frozen 28-30", told(opened(restored, 0, observed(list)), start), "the freeze at 2 s was observed")
}

// A campaign's page has the actions of the journal, and keeps them while the ledger is down.
func TestSpansOutliveTheLedger(t *testing.T) {
	t.Parallel()
	s := sampled(t)
	for _, step := range []func(context.Context, string, stream.Decision) (bool, error){campaigns.Of(s.App).Pause, campaigns.Of(s.App).Resume,
		campaigns.Of(s.App).Pause} {
		_, err := step(t.Context(), "rain", stream.Decision{By: "ann", Why: "a typo"})
		require.NoError(t, err)
		require.True(t, retry.Pause(t.Context(), 2*time.Millisecond)) // the journal has times in ms
	}
	live, err := s.Campaign(t.Context(), "rain")
	require.NoError(t, err)
	kinds := func(list []model.Span) (text string) {
		for i := range list {
			text += fmt.Sprint(list[i].Kind, " ", list[i].Why, " ", list[i].To == nil, "; ")
		}
		return text
	}
	const paused = "paused a typo false; paused a typo true; "
	require.Contains(t, kinds(live.Spans), paused)
	list, err := s.running(t.Context())
	require.NoError(t, err)
	s.SetLedger(ledger.Lazy(s.LedgerConfig(), func(context.Context) (*ledger.Ledger, error) {
		return nil, hongbao.Outagef(hongbao.ClassTransient, "the ledger is away")
	}))
	s.records.held["rain"] = record{entries: s.records.held["rain"].entries} // it was read long ago
	h, err := s.History(t.Context(), "rain")
	require.Error(t, err, "without samples, only the ledger knows the campaign")
	require.Empty(t, h.Spans)
	s.sample(t.Context(), list, time.Now())
	h, err = s.History(t.Context(), "rain")
	require.NoError(t, err)
	require.False(t, h.Recorded)
	require.Contains(t, kinds(h.Spans), paused)
	require.Contains(t, kinds(h.Spans), "ledger_unread  true")
	_, err = s.Store().Campaign("rain").Resume(t.Context(), stream.Decision{By: "wei"})
	require.NoError(t, err)
	h, err = s.History(t.Context(), "rain")
	require.NoError(t, err)
	require.NotContains(t, kinds(h.Spans), "paused a typo true", "Redis knows better that it is over")
	_, err = s.Store().Campaign("rain").Pause(t.Context(), stream.Decision{By: "wei", Why: "at night"})
	require.NoError(t, err)
	h, err = s.History(t.Context(), "rain")
	require.NoError(t, err)
	require.Contains(t, kinds(h.Spans), "paused at night true")
}
