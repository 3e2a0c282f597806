package publish

import (
	"context"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
)

const (
	grabTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	grabParent = "00-" + grabTrace + "-00f067aa0ba902b7-01"
)

// parents returns the header traceparent of each grant in partition 0, by ce_id. It is empty if the record has none.
func parents(t *testing.T, cfg *Config) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	log, err := NewLog(*cfg)
	require.NoError(t, err)
	defer log.Close()
	all, err := log.bounds(ctx, 0)
	require.NoError(t, err)
	out := map[string]string{}
	readPartition(ctx, t, cfg, 0, all, func(r *kgo.Record) {
		values := map[string]string{}
		for _, h := range r.Headers {
			values[h.Key] = string(h.Value)
		}
		if values["ce_type"] == cloudevent.TypeGrant {
			out[values["ce_id"]] = values["traceparent"]
		}
	})
	return out
}

// A subscriber with W3C Trace Context reads the header traceparent and continues the trace of the grab.
func TestRecordOfATracedGrabHasATraceparent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	g := b.store.grants(0, 3, decided)
	g[1].Trace = grabParent
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	got := parents(t, &b.cfg)
	require.Equal(t, map[string]string{"0-1": "", "0-2": grabParent, "0-3": ""}, got)
	ctx := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": got["0-2"]})
	require.Equal(t, grabTrace, trace.SpanContextFromContext(ctx).TraceID().String())
	requireOneCopy(t, &b.cfg, g)
}

// A stored batch that is sent again has the same bytes, with the header traceparent.
func TestBatchWithTraceparentIsSentAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, again := &recorder{}, &recorder{}
	p, w := b.worker(t)
	w.answer = first.note
	p.cfg.AttemptTime = hopeless
	g := traced(b.store.grants(0, 20, decided))
	w.fate = func() fate { return lost }
	requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 20, hongbao.ClassUnknown, true)
	require.NotEmpty(t, first.raw)
	other, w := b.worker(t)
	w.answer = again.note
	require.Nil(t, other.Handle(t.Context(), testkit.Batch(g)))
	require.EqualValues(t, 1, other.Stats().SentAgain)
	require.Equal(t, first.raw[0], again.raw[0])
	requireOneCopy(t, &b.cfg, g)
}

// traced adds a trace to every grant. The store shares the slice, so its entry changes, too.
func traced(grants []hongbao.Grant) []hongbao.Grant {
	for i := range grants {
		grants[i].Trace = grabParent
	}
	return grants
}
