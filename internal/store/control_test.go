package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// A decision is restored from the ledger unless Redis has a later one. A new decision counts as later than the
// previous one even if the clock was set back.
func TestRestoreControl(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, k := t.Context(), b.k
	b.load(t, spec("rain", 5))
	state := func() string { return b.rdb.HGet(ctx, b.k.Keys.Campaign("rain"), "state").Val() }
	restore := func(c stream.Control) bool {
		t.Helper()
		restored, err := k.RestoreControl(ctx, &c)
		require.NoError(t, err)
		return restored
	}
	ahead := time.Now().Add(time.Hour).UnixMilli()
	paused := stream.Control{Kind: stream.ControlCampaign, Campaign: "rain", Value: store.StatePaused,
		Decision: by("ann", ""), Rev: ahead}
	require.True(t, restore(paused))
	require.False(t, restore(paused))
	require.Equal(t, store.StatePaused, state())
	require.NoError(t, k.Place("rain").SetState(ctx, store.StateOpen, store.StatePaused))
	require.False(t, restore(paused), "the resume is later, whatever the clock says")
	require.Equal(t, store.StateOpen, state())

	_, _, err := k.Group("kafka").Pause(ctx, by("ann", "w"))
	require.NoError(t, err)
	require.False(t, restore(stream.Control{Kind: stream.ControlSink, Sink: "kafka", Value: "0", Rev: 5}))
	c, err := k.Group("kafka").Control(ctx)
	require.NoError(t, err)
	require.True(t, c.Paused)
	require.True(t, restore(stream.Control{Kind: stream.ControlSink, Sink: "kafka", Value: "1", Rev: ahead}))
	_, _, err = k.Group("kafka").Resume(ctx, by("ann", "w"))
	require.NoError(t, err)
	require.False(t, restore(stream.Control{Kind: stream.ControlSink, Sink: "kafka", Value: "1", Rev: ahead}),
		"the resume is later")
	require.False(t, restore(stream.Control{Kind: "later", Sink: "kafka", Value: "0", Rev: ahead}), "of a later build")

	paused.Campaign = "gone"
	require.False(t, restore(paused))
	require.Zero(t, b.rdb.Exists(ctx, b.k.Keys.Campaign("gone")).Val(), "no incomplete hash is created")
	require.NoError(t, b.rdb.HSet(ctx, b.k.Keys.Campaign("rain"), "state", "closed").Err())
	paused.Campaign, paused.Rev = "rain", 2*ahead
	require.False(t, restore(paused))
	require.Equal(t, "closed", state())
}

// A decision is made while the one before it is stored in the ledger. ControlKept does not drop the new decision.
func TestControlKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, k := t.Context(), b.k
	waiting := func() []store.NewControl {
		t.Helper()
		all, errs := b.store.NewControls(ctx)
		require.NoError(t, errs[b.k.Index()])
		return all[b.k.Index()]
	}
	decide := func(do func(context.Context, stream.Decision) (bool, store.SinkControl, error),
		d stream.Decision) {
		t.Helper()
		_, _, err := do(ctx, d)
		require.NoError(t, err)
	}
	decide(k.Group("kafka").Pause, by("ann\nb", "one\n\ntwo"))
	first := waiting()
	require.Len(t, first, 1)
	require.Equal(t, stream.Control{Kind: stream.ControlSink, Sink: "kafka", Value: "1",
		Decision: by("ann\nb", "one\n\ntwo"), At: first[0].At, Rev: first[0].At.UnixMilli()}, first[0].Control)
	decide(k.Group("kafka").Resume, by("bob", ""))
	require.NoError(t, k.ControlKept(ctx, &first[0]))
	second := waiting()
	require.Len(t, second, 1)
	require.Equal(t, "0", second[0].Value)
	require.Greater(t, second[0].Rev, first[0].Rev)
	require.NoError(t, k.ControlKept(ctx, &second[0]))
	require.Empty(t, waiting())
}

// Answers in JSON show the times of pauses and limits, so they are in UTC, whatever the server's zone is.
func TestTimesOfPausesAreInUTC(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	b.load(t, spec("rain", 5))
	kafka, why := b.k.Group("kafka"), by("ann", "test")
	_, c, err := kafka.Pause(ctx, why)
	require.NoError(t, err)
	require.Equal(t, time.UTC, c.At.Location())
	_, c, err = kafka.Limit(ctx, new(5), why)
	require.NoError(t, err)
	require.Equal(t, time.UTC, c.LimitAt.Location())
	_, _, err = kafka.PauseCampaign(ctx, "rain", why)
	require.NoError(t, err)
	list, err := kafka.PausedCampaigns(ctx)
	require.NoError(t, err)
	require.Equal(t, time.UTC, list[0].At.Location())
	_, err = b.store.Campaign("rain").Pause(ctx, why)
	require.NoError(t, err)
	f, err := b.k.Place("rain").CampaignFields(ctx)
	require.NoError(t, err)
	for _, at := range []time.Time{f.PauseAt, f.From, f.To} {
		require.False(t, at.IsZero())
		require.Equal(t, time.UTC, at.Location())
	}
}
