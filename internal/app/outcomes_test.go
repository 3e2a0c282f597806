package app

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Grabs without a decision are counted, too. Names that callers make up take the counts of no campaign.
func TestFailedGrabsAreCounted(t *testing.T) {
	t.Parallel()
	var o Outcomes
	o.Add("rain", hongbao.OutcomeGranted)
	o.Fail("rain")
	o.Fail("rain")
	require.Equal(t, []model.Count{{Name: "granted", N: 1}, {Name: "failed", N: 2}}, o.Of("rain"))
	for i := range 2 * maxCounted {
		o.Fail(fmt.Sprint("made-up-", i))
	}
	require.Len(t, o.Of("rain"), 2)
}

func TestVerdictOfOneProblem(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, (&Examination{Problems: 1, Warnings: 2}).Verdict(), "1 problem and 2 warnings")
}
