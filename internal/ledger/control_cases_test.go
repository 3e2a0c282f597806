package ledger

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// testControls stores decisions in any order: for each campaign and sink the decision with the highest rev counts.
func testControls(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.ledger
	f.create(t, "rain", 10)
	at := time.UnixMilli(1_700_000_000_000)
	pause := stream.Control{Kind: stream.ControlCampaign, Campaign: "rain", Value: "paused",
		Decision: by("ann", "one"), At: at,
		Rev: 10}
	resume := pause
	resume.Value, resume.By, resume.Why, resume.At, resume.Rev = "open", "bob", "two, 两", time.Time{}, 20
	none, err := l.CampaignPause(ctx, "rain")
	require.NoError(t, err)
	require.Nil(t, none)
	for _, step := range []struct {
		keep []stream.Control
		want stream.Control
	}{
		{[]stream.Control{pause}, pause}, {[]stream.Control{pause}, pause}, {[]stream.Control{resume}, resume},
		{[]stream.Control{pause}, resume}, {[]stream.Control{resume, pause}, resume}, {nil, resume},
	} {
		require.NoError(t, l.KeepControls(ctx, step.keep...))
		has, err := l.CampaignPause(ctx, "rain")
		require.NoError(t, err)
		require.Equal(t, step.want, *has)
	}
	for _, c := range []struct {
		by, value string
		want      int64
	}{{stream.ByWorker, "paused", 1}, {"ann", "paused", 0}, {stream.ByWorker, "paused", 1}, {"ann", "open", 0}} {
		resume.Rev++
		resume.By, resume.Value = c.by, c.value
		require.NoError(t, l.KeepControls(ctx, resume))
		require.Equal(t, c.want, f.unfinished(t, 0, 0).Paused, "%+v", c)
	}
	sink := stream.Control{Kind: stream.ControlSink, Sink: "kafka", Value: "1", Decision: by("ann", "w"), At: at, Rev: 1}
	one := stream.Control{Kind: stream.ControlSinkCampaign, Sink: "kafka", Campaign: "rain", Value: "0", At: at, Rev: 2}
	rate := stream.Control{Kind: stream.ControlRate, Sink: "kafka", At: at, Rev: 3}
	gone := stream.Control{Kind: stream.ControlCampaign, Campaign: "gone", Value: "paused", At: at, Rev: 4}
	require.NoError(t, l.KeepControls(ctx, rate, sink, one, gone))
	all, err := l.Controls(ctx)
	require.NoError(t, err)
	require.Equal(t, []stream.Control{resume, rate, sink, one}, all, "the ledger has no campaign with the id gone")

	// A text that is not UTF-8, such as a sink's error, does not keep any decision from being stored.
	sink.Rev, sink.By, sink.Why = 5, "an\x00n", strings.Repeat("\xd2\xf8\xd0\xd0", 1000)
	rate.Rev, rate.Value = 6, "7"
	require.NoError(t, l.KeepControls(ctx, sink, rate))
	all, err = l.Controls(ctx)
	require.NoError(t, err)
	require.Equal(t, "7", all[1].Value)
	require.Equal(t, "ann", all[2].By)
	require.Contains(t, all[2].Why, "?")
}
