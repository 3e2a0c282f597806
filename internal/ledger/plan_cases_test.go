package ledger

import (
	"testing"

	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
)

// testIncompletePlan settles packets of a top-up with a plan that does not know it. The grants wait until the plan is
// complete, and none goes to quarantine.
func testIncompletePlan(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.tops(t, added("rain", 2, 10, 5))
	core, logs := observer.New(zap.ErrorLevel)
	f.Settler.config.Log = zap.New(core)
	f.setPlan(t, func(_ string, packet int64) (hongbao.Amount, bool, error) { return planned(packet), packet <= 10, nil })
	errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 9, 12)))
	require.Empty(t, f.open(t), "the packets of a top-up went to quarantine")
	require.Len(t, errs, 4)
	require.Equal(t, []error{nil, nil}, errs[:2])
	for _, err := range errs[2:] {
		require.True(t, hongbao.IsWaiting(err), "%v", err)
		require.ErrorContains(t, err, "plan")
	}
	alarms := logs.FilterField(zap.String("code", "incomplete_plan")).All()
	require.Len(t, alarms, 1, "one alarm for a campaign")

	f.setPlan(t, func(_ string, packet int64) (hongbao.Amount, bool, error) { return planned(packet), true, nil })
	f.settles(t, append(grantsOf("rain", 9, 15), grant("rain", 16))...)
	f.holds(t, "rain", grantsOf("rain", 9, 15))
	require.Len(t, f.open(t), 1, "the ledger does not count packet 16")
}
