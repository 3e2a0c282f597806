package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// The log has a line every five seconds, with the rate and the rest.
func TestProgressInTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.InfoLevel)
		p := (&App{log: zap.New(core)}).LongCall(t.Context(), "loading rain", 100_000)
		for i := range int64(12) {
			p.Set(10_000 + 1_000*i) // an earlier call had loaded 10,000
			require.True(t, retry.Pause(t.Context(), time.Second))
		}
		p.End()
		all := logs.All()
		require.Len(t, all, 1, "set is called at 0, 1, ... 11 s, and shows at 6 s")
		require.Equal(t, "loading rain", all[0].Message)
		require.Equal(t, map[string]any{"done": int64(16_000), "of": int64(100_000), "per_second": int64(1_000), "rest": "1m24s"},
			all[0].ContextMap())
	})
}

// A hook gets the progress several times a second, and the end.
func TestProgressByTheHook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var shown []string
		a := &App{log: zap.NewNop(), hooks: Hooks{Progress: func(p Progress) { shown = append(shown, p.String()) }}}
		p := a.LongCall(t.Context(), "loading rain", 20_000)
		for i := range int64(41) {
			p.Set(500 * i)
			require.True(t, retry.Pause(t.Context(), 100*time.Millisecond))
		}
		p.Step("audit: read the ledger, step 7 of 14")
		p.End()
		require.Equal(t, "loading rain: 1,500 of 20,000 (7 %)", shown[0])
		require.Contains(t, shown, "loading rain: 10,500 of 20,000 (52 %), 5,000 a second, 2s left")
		require.Empty(t, shown[len(shown)-1])
		require.InDelta(t, 15, len(shown), 3)
	})
}

// A caller learns how far its own call has come, beside the hook of the process.
func TestProgressToldToTheCaller(t *testing.T) {
	t.Parallel()
	var told []Progress
	ctx := WithProgress(t.Context(), func(p Progress) { told = append(told, p) })
	p := (&App{log: zap.NewNop()}).LongCall(ctx, "loading rain", 20_000)
	p.Set(5)
	p.Step("dealing")
	p.End()
	require.Equal(t, []Progress{{What: "loading rain", Done: 5, Of: 20_000}, {What: "dealing", Done: 5, Of: 20_000}}, told)
}

// Whoever stops a call learns how far it came, and how to go on.
func TestProgressStopped(t *testing.T) {
	t.Parallel()
	p := (&App{log: zap.NewNop()}).LongCall(t.Context(), "loading rain", 20_000)
	p.Set(12_000)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, p.Stopped(ctx, nil, "go on"))
	broken := errors.New("broken")
	require.Equal(t, broken, p.Stopped(ctx, broken, "go on"))
	cancel()
	err := p.Stopped(ctx, ctx.Err(), "run the same command again: it continues")
	require.EqualError(t, err, "loading rain was stopped after 12,000 of 20,000; run the same command again: it continues")
	require.ErrorIs(t, err, context.Canceled)
}
