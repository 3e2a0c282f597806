package app

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Answers and failures are counted by campaign. A name that only failed grabs have is not counted.
func TestOutcomesCountFailedGrabs(t *testing.T) {
	t.Parallel()
	var o Outcomes
	o.Fail("made-up", errors.New("Redis is down"))
	o.Add("rain", hongbao.OutcomeSoldOut)
	o.Add("rain", hongbao.OutcomeGranted)
	o.Add("rain", hongbao.OutcomeUnknownCampaign)
	for _, class := range []hongbao.Class{hongbao.ClassTransient, hongbao.ClassBroken, hongbao.ClassUnknown, hongbao.ClassPermanent} {
		o.Fail("rain", hongbao.Errorf(class, "failed"))
	}
	require.Equal(t, []model.AnswerCount{{Name: "granted", N: 1}, {Name: "sold_out", N: 1}, {Name: "unavailable", N: 2},
		{Name: "outcome_unknown", N: 1}}, o.Of("rain"))
	require.Empty(t, o.Of("made-up"))
}

func TestErrOfOneProblem(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, (&Examination{Problems: 1, Warnings: 2}).Err(), "1 problem and 2 warnings")
}
