package subscriber

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/topic"
)

// An effect panics for one event. The process goes on, the event becomes a dead letter, and the others have their
// effect.
func TestAnEffectThatPanics(t *testing.T) {
	t.Parallel()
	panics := func(e *topic.Event) {
		if e.Grant.Seq == 3 {
			panic("a bug in the effect")
		}
	}
	for name, sink := range map[string]func(*testing.T, *atomic.Int64) Sink{
		"function": func(t *testing.T, effects *atomic.Int64) Sink {
			t.Helper()
			s, err := NewFuncSink(FuncSinkConfig{Timeout: soon, Effect: func(_ context.Context, e topic.Event) error {
				panics(&e)
				effects.Add(1)
				return nil
			}})
			require.NoError(t, err)
			return s
		},
		"sql": func(t *testing.T, effects *atomic.Int64) Sink {
			t.Helper()
			db, err := sql.Open("sqlite", "file:"+tempFile(t)+"?_pragma=synchronous(FULL)&_pragma=busy_timeout(20000)")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			db.SetMaxOpenConns(1) // a transaction that the panic left open would block all others
			s, err := NewSQL(t.Context(), SQLConfig{DB: db, Dialect: sqLite, Name: "g", Timeout: soon,
				Effect: func(_ context.Context, _ *sql.Tx, events []topic.Event) error {
					for i := range events {
						panics(&events[i])
					}
					effects.Add(int64(len(events)))
					return nil
				}})
			require.NoError(t, err)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, effects := inProcess(t, 1), &atomic.Int64{}
			d.write(t, 1, records(0, 1, 5)...)
			core, logs := observer.New(zap.ErrorLevel)
			cfg := d.config(sink(t, effects))
			cfg.Log = zap.New(core)
			w := start(t, cfg)
			testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 4 }, "the other events have their effect")
			letter := d.letters(t, 1)[0]
			require.Equal(t, "0-3", letterHeader(letter, "ce_id"))
			require.Contains(t, letterHeader(letter, headerError), "a bug in the effect")
			require.NoError(t, w.stop())
			require.EqualValues(t, 4, effects.Load())
			require.NotEmpty(t, logs.FilterField(zap.String("code", "handler_panicked")).All())
		})
	}
}

// A member that lost its broker keeps its partitions for SessionTimeout. It must have stopped its batch by then.
func TestDrainEndsWithinTheSession(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	require.NotContains(t, cfg.check().Error(), "SessionTimeout")
	cfg.SessionTimeout = cfg.DrainTimeout
	require.ErrorContains(t, cfg.check(), "DrainTimeout is 20s: want at most two thirds of SessionTimeout, 20s")
}
