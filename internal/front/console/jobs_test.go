package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/operate/audit"
)

// The page of an audit shows the differences that an operator has acknowledged, with the operator, the reason and the
// expiry.
func TestAuditPageShowsAcknowledgements(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	known := audit.Acknowledged{Difference: audit.Difference{Kind: audit.DuplicateInTopic, Where: "topic", Campaign: "rain",
		Packet: 7, Detail: "a copy"}, By: "ann", Why: "a second producer", Until: time.Date(2027, 2, 17, 20, 0, 0, 0, time.UTC)}
	text, err := f.render("job-live", page{View: &Job{Audit: &audit.Report{Verdict: audit.Agrees,
		Acknowledged: []audit.Acknowledged{known}}}})
	require.NoError(t, err)
	for _, want := range []string{"duplicate_in_topic", "a copy", "by ann", "2027", "a second producer"} {
		require.Contains(t, text, want)
	}
}
