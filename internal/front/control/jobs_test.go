package control

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// An answer 202 is not stored. If the server dies during a load, the same request with the same key continues the
// load.
func TestLoadGoesOnUnderItsKey(t *testing.T) {
	t.Parallel()
	d := setup(t, options{patience: time.Nanosecond})
	d.do(func(a *app.App) error {
		_, err := campaigns.Of(a).Create(t.Context(), campaignOf("rain", 50_000, 1_000_000), nil)
		return err
	})
	again := func(r *http.Request) { r.Header.Set(keyHeader, "k1") }
	var loaded loadAnswer
	d.post("operator", "/v1/campaigns/rain/load", "{}", again).OK(t, http.StatusAccepted, &loaded)
	require.True(t, loaded.Loading)
	d.jobs.Close()
	d.serve("second", 20*time.Second)
	for range 2 {
		d.post("operator", "/v1/campaigns/rain/load", "{}", again).OK(t, http.StatusOK, &loaded)
		require.EqualValues(t, 50_000, loaded.Packets)
		require.False(t, loaded.Loading)
	}
}

// While a server loads a campaign, a request at another server joins that load instead of a second one.
func TestLoadIsJoinedAtAnotherServer(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	release := make(chan struct{})
	order := jobs.Load(nil, "rain")
	order.Do = func(_ context.Context, r *jobs.Report) error {
		<-release
		r.Loaded = new(ops.Loaded)
		return nil
	}
	_, err := d.jobs.Start(t.Context(), order)
	require.NoError(t, err)
	d.serve("second", time.Second)
	var loaded loadAnswer
	d.post("operator", "/v1/campaigns/rain/load", "{}").OK(t, http.StatusAccepted, &loaded)
	require.True(t, loaded.Loading)
	close(release)
	testkit.Eventually(t, 30*time.Second, func() bool {
		return d.post("operator", "/v1/campaigns/rain/load", "{}").Status == http.StatusOK
	}, "the load has ended")
}

// A load that a person has stopped is a conflict for those who wait for it, at each server: a program that repeats its
// request does not start the load again at once.
func TestAStoppedLoadIsNotRepeated(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	first := d.jobs
	d.serve("second", 20*time.Second)
	testkit.Eventually(t, 60*time.Second, func() bool { // until the request came before the stop
		order := jobs.Load(nil, "rain")
		order.Do = func(ctx context.Context, _ *jobs.Report) error {
			<-ctx.Done()
			return ctx.Err()
		}
		run, err := first.Start(t.Context(), order)
		require.NoError(t, err)
		if !run.Here() { // the load of the request that came too late
			return false
		}
		waits := make(chan *reply, 1)
		go func() { waits <- d.send(d.request("operator", http.MethodPost, "/v1/campaigns/rain/load", "{}")) }()
		testkit.Eventually(t, 30*time.Second, func() bool { return run.Job().Seen.After(run.Job().Began.Add(time.Second)) }, "a heartbeat")
		require.NoError(t, first.Stop(t.Context(), run.Job().ID, "ann", time.Minute))
		r := <-waits
		return r.Status == http.StatusConflict && r.Body["code"] == "conflict"
	}, "the request is refused")
}

// A replay that is still reading the topic is not recorded in Redis yet. Each server lists it and can stop it; a replay
// with the same name and other parameters is refused. A stop also stops its dry runs.
func TestReplayThatHasNotedNothing(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	for _, in := range []ops.Replay{{Name: "repair", To: "kafka", Missing: true}, {Name: "repair", To: "kafka", Missing: true, DryRun: true}} {
		order := jobs.Replay(nil, &access.Caller{Key: "k"}, &in)
		order.Do = func(ctx context.Context, _ *jobs.Report) error {
			<-ctx.Done()
			return ctx.Err()
		}
		_, err := d.jobs.Start(t.Context(), order)
		require.NoError(t, err)
	}
	for _, server := range []string{"first", "second"} {
		var state replayState
		d.get("viewer", "/v1/replays/repair").OK(t, http.StatusOK, &state)
		require.True(t, state.Running)
		require.Equal(t, "kafka", state.Target)
		var list replaysAnswer
		d.get("viewer", "/v1/replays").OK(t, http.StatusOK, &list)
		require.Equal(t, []replayState{state}, list.Replays)
		d.post("operator", "/v1/replays/repair", `{"to":"balance"}`).Refused(t, "conflict")
		d.post("operator/rain*", "/v1/replays/repair/stop", "{}").Refused(t, "unknown_replay", "a replay of everything is outside a scope, too")
		if server == "first" {
			d.serve("second", 20*time.Second)
		}
	}
	var state replayState
	d.post("operator", "/v1/replays/repair/stop", "{}").OK(t, http.StatusOK, &state)
	require.False(t, state.Running)
	list, err := d.jobs.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	for _, j := range list {
		require.False(t, j.Running())
		require.NotEmpty(t, j.StopBy)
	}
	d.get("viewer", "/v1/replays/repair").Refused(t, "unknown_replay")
}
