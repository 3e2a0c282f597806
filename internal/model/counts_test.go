package model

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// Reports for people have separators in large counts.
func TestReportsSeparateThousands(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	audit := AuditReport{Total: Counts{InFlight: 12_034, Unsettled: 12_034, Unpublished: 1_000}}
	require.NoError(t, audit.Write(&out))
	require.Contains(t, out.String(), "12,034 grants in flight, not judged (12,034 to the ledger, 1,000 to the topic).\n")
	out.Reset()
	letters := LetterReport{Decision: LetterDropped}
	letters.Matched, letters.Resolved = 12_034, 1_000
	require.NoError(t, letters.Write(&out))
	require.Contains(t, out.String(), "1,000 of 12,034 letters were dropped.\n")
	out.Reset()
	replay := ReplayReport{Name: "again", Target: "kafka", Finished: true, Delivered: 12_034, There: 2_000, Before: 1_000}
	require.NoError(t, replay.Write(&out))
	require.Contains(t, out.String(), "12,034 grants delivered now, 2,000 were there, 1,000 delivered before, ")
}
