package tracing

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
)

// A traceparent that is accepted has a trace and a span, and its text is short.
func FuzzTraceparent(f *testing.F) {
	for _, text := range []string{"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-", "ff-0-0-0", "----"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if of := spanOf(text); of.IsValid() {
			require.LessOrEqual(t, len(text), maxTraceparent)
			require.Len(t, textOf(trace.ContextWithRemoteSpanContext(t.Context(), of)), 55)
		}
	})
}
