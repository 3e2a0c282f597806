package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/guard"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// untilStopped is a job that runs until it is canceled.
func untilStopped(ctx context.Context) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Callers with the same job share a task. A job with the same name and another order is refused, and so is a job
// above the limit. A failure after an answer 202 is logged.
func TestTasks(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.WarnLevel)
	all := newTasks(zap.New(core))
	defer all.close()
	x, err := all.start(&job{name: "a", order: "1"}, untilStopped)
	require.NoError(t, err)
	same, err := all.start(&job{name: "a", order: "1"}, untilStopped)
	require.NoError(t, err)
	require.Same(t, x, same)
	_, err = all.start(&job{name: "a", order: "2"}, untilStopped)
	require.ErrorContains(t, err, "other parameters")
	for i := range maxTasks - 1 {
		_, err = all.start(&job{name: fmt.Sprint("b", i)}, untilStopped)
		require.NoError(t, err)
	}
	_, err = all.start(&job{name: "c"}, untilStopped)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	x.stop()
	_, err = x.wait(t.Context(), time.Minute)
	require.ErrorIs(t, err, context.Canceled)

	for _, heard := range []bool{true, false} {
		fail := make(chan struct{})
		x, err = all.start(&job{name: "c"}, func(context.Context) (any, error) {
			<-fail
			return nil, errors.New("no luck")
		})
		require.NoError(t, err)
		if !heard {
			_, err = x.wait(t.Context(), 0)
			require.ErrorIs(t, err, errStillRuns)
		}
		close(fail)
		_, err = x.wait(t.Context(), time.Minute)
		require.ErrorContains(t, err, "no luck")
	}
	all.close()
	require.Equal(t, 1, logs.Len())
}

// A panic in a task ends that task only.
func TestPanickingTask(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.WarnLevel)
	all := newTasks(zap.New(core))
	defer all.close()
	x, err := all.start(&job{name: "a"}, func(context.Context) (any, error) { panic("a bug") })
	require.NoError(t, err)
	_, err = x.wait(t.Context(), time.Minute)
	require.ErrorIs(t, err, guard.ErrPanic)
	release := make(chan struct{})
	x, err = all.start(&job{name: "a", keep: func(context.Context, any) { panic("a bug") }},
		func(context.Context) (any, error) { <-release; return nil, nil })
	require.NoError(t, err)
	_, err = x.wait(t.Context(), 0)
	require.ErrorIs(t, err, errStillRuns)
	close(release)
	_, err = x.wait(t.Context(), time.Minute)
	require.NoError(t, err)
	all.close()
	require.Equal(t, 2, logs.FilterField(zap.String("code", "handler_panicked")).Len())
	require.Empty(t, all.named, "the name is free again")
}

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
	d.c.Close()
	var err error
	d.c, err = New(d.app, d.app.Authority(), zap.NewNop(), Config{AnswerTime: 30 * time.Second, Patience: 20 * time.Second})
	require.NoError(t, err)
	d.h, err = d.c.API().Handler()
	require.NoError(t, err)
	for range 2 {
		d.post("operator", "/v1/campaigns/rain/load", "{}", again).OK(t, http.StatusOK, &loaded)
		require.EqualValues(t, 50_000, loaded.Packets)
		require.False(t, loaded.Loading)
	}
}

// A replay that is still reading the topic is not recorded in Redis yet. It is listed and can be stopped; a replay with
// the same name and other parameters is refused. A stop also stops its dry runs.
func TestReplayThatHasNotedNothing(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	of := deliveries.Replay{Name: "repair", To: "kafka", Missing: true}
	dry := of
	dry.DryRun = true
	for _, j := range []job{{name: taskOf("repair"), order: "1", replay: &of}, {name: taskOf("repair") + " dry run", replay: &dry}} {
		_, err := d.c.tasks.start(&j, untilStopped)
		require.NoError(t, err)
	}
	var state replayState
	d.get("viewer", "/v1/replays/repair").OK(t, http.StatusOK, &state)
	require.True(t, state.RunsHere)
	require.Equal(t, "kafka", state.Target)
	var list replaysAnswer
	d.get("viewer", "/v1/replays").OK(t, http.StatusOK, &list)
	require.Equal(t, []replayState{state}, list.Replays)
	d.post("operator", "/v1/replays/repair", `{"to":"balance"}`).Refused(t, "conflict")
	d.post("operator/rain*", "/v1/replays/repair/stop", "{}").Refused(t, "unknown_replay", "a replay of everything is outside a scope, too")
	d.post("operator", "/v1/replays/repair/stop", "{}").OK(t, http.StatusOK, &state)
	require.False(t, state.RunsHere)
	require.Empty(t, d.c.tasks.replays(""))
	d.get("viewer", "/v1/replays/repair").Refused(t, "unknown_replay")
}
