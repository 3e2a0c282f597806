package audit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/store"
)

// A campaign that Redis has lost has a stub and can't be paused, so no remedy advises a pause. An open campaign can be
// paused.
func TestNoPauseForAStub(t *testing.T) {
	t.Parallel()
	w := busy(t)
	k := w.keys("a")
	do(t, w.rdb.Del(t.Context(), k.Keys.Campaign("a"), k.Keys.Stock("a"), k.Keys.Receipts("a")))
	do(t, w.rdb.HSet(t.Context(), k.Keys.Campaign("a"), "state", store.StateFrozen, "packets", 0, "total", 0, "loaded", 0,
		"loaded_amount", 0, "granted", 0, "granted_amount", 0, "user_campaign", 1, "from", 0))
	r := w.audit(t, audit.Options{})
	require.NotZero(t, r.Found[audit.CampaignFrozen])
	require.NotZero(t, r.Found[audit.Unfounded])
	for kind, remedy := range r.Remedies {
		require.NotContains(t, remedy.Do, "hongbao campaign pause", kind)
	}
	require.Contains(t, r.Remedies[audit.Unfounded].Do, "hongbao campaign refund-lost ID")

	w.ledger.grants["b"][0].User = "mallory"
	b := w.keys("b")
	do(t, w.rdb.HDel(t.Context(), b.Keys.Receipts("b"), w.published("b", "u0004").User))
	r = w.audit(t, audit.Options{})
	require.Contains(t, r.Remedies[audit.Unfounded].Do, "hongbao campaign pause", "one of them is open")
}
