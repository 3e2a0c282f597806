package publish

import (
	"bytes"
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
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
	require.Nil(t, p.Handle(t.Context(), g))
	got := parents(t, &b.cfg)
	require.Equal(t, map[string]string{"0-1": "", "0-2": grabParent, "0-3": ""}, got)
	ctx := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": got["0-2"]})
	require.Equal(t, grabTrace, trace.SpanContextFromContext(ctx).TraceID().String())
	requireOneCopy(t, &b.cfg, g)
}

// An older build, which did not write the header traceparent, filled a batch up to the size limit and died. This build
// sends the batch again with the same number of records. If the first copy has arrived, the broker drops the second.
func TestBatchOfABuildWithoutTraceparentFitsAgain(t *testing.T) {
	t.Parallel()
	for _, codec := range codecNames {
		for name, arrived := range map[string]bool{"arrived": true, "lost": false} {
			t.Run(codec+" "+name, func(t *testing.T) {
				t.Parallel()
				store := newStore()
				g := traced(store.grants(0, 50, decided))
				limit := len(olderBuild(t, codec, &stored{}, g)) - 4 // without the size in front of the batch
				b := setup(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": strconv.Itoa(limit)}))
				b.store = store
				p, _ := b.worker(t)
				n, err := p.newProducer(t.Context())
				require.NoError(t, err)
				st := stored{numbers: n, ms: time.Now().UnixMilli(), topic: testTopic}
				raw := olderBuild(t, codec, &st, g)
				_, err = store.Claim(t.Context(), 0, "older.1", st.events(), st.String())
				require.NoError(t, err)
				if arrived {
					_, err := p.produce(t.Context(), 0, raw)
					require.NoError(t, err)
				}
				require.Nil(t, p.Handle(t.Context(), g))
				require.EqualValues(t, 1, p.Stats().SentAgain)
				requireOneCopy(t, &b.cfg, g)
			})
		}
	}
}

// When a worker sends a stored batch again, it leaves out the header traceparent, as an older build would. So the copy
// is shorter.
func TestBatchWithTraceparentIsSentAgainWithout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, again := &recorder{}, &recorder{}
	p, w := b.worker(t)
	w.answer = first.note
	p.cfg.AttemptTime = hopeless
	g := traced(b.store.grants(0, 20, decided))
	w.fate = func() fate { return lost }
	requireClass(t, p.Handle(t.Context(), g), 20, hongbao.ClassUnknown, true)
	require.NotEmpty(t, first.raw)
	other, w := b.worker(t)
	w.answer = again.note
	require.Nil(t, other.Handle(t.Context(), g))
	require.EqualValues(t, 1, other.Stats().SentAgain)
	require.Less(t, len(again.raw[0]), len(first.raw[0]))
	require.Equal(t, first.raw[0][atProducer:headSize], again.raw[0][atProducer:headSize], "numbers and count of records")
	requireOneCopy(t, &b.cfg, g)
}

// traced adds a trace to every grant. The store shares the slice, so its entry changes, too.
func traced(grants []hongbao.Grant) []hongbao.Grant {
	for i := range grants {
		grants[i].Trace = grabParent
	}
	return grants
}

// olderBuild encodes the batch like a build that did not write the header traceparent.
func olderBuild(t *testing.T, codec string, st *stored, grants []hongbao.Grant) []byte {
	t.Helper()
	var err error
	st.codec, err = parseCodec(codec)
	require.NoError(t, err)
	b := newBatch("/hongbao/d1")
	b.start(st.numbers, st.ms)
	b.parents = false
	for i := range grants {
		require.True(t, b.add(&grants[i], 1<<30))
		st.extend(&grants[i])
	}
	raw, err := b.pack(st.codec)
	require.NoError(t, err)
	return bytes.Clone(raw)
}
