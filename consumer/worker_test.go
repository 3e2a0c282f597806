package consumer

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// worker is a Consumer that is running in a test.
type worker struct {
	*Consumer
	t    testing.TB
	logs *observer.ObservedLogs
	end  context.CancelFunc
	done chan struct{}
	err  error
}

func start(t testing.TB, cfg Config) *worker {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	cfg.Deployment = deployment.Of(cfg.Deployment.Store(), zap.New(core))
	c, err := New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{Consumer: c, t: t, logs: logs, end: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.err = c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-w.done:
		case <-time.After(soon):
			t.Errorf("worker %s did not end", cfg.Consumer)
		}
	})
	return w
}

func (w *worker) wait() error {
	w.t.Helper()
	testkit.Eventually(w.t, soon, func() bool { return closed(w.done) }, "Run returns")
	return w.err
}

func (w *worker) stop() error {
	w.t.Helper()
	w.end()
	return w.wait()
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (w *worker) logged(text string) int {
	return w.logs.Filter(func(e observer.LoggedEntry) bool { return strings.Contains(e.Message, text) }).Len()
}

// drained returns the fields of the log line "drained".
func (w *worker) drained() map[string]any {
	w.t.Helper()
	lines := w.logs.FilterMessage("drained").All()
	require.Len(w.t, lines, 1)
	return lines[0].ContextMap()
}
