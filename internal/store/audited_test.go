package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
)

// An older build's audit replaces a result without its number of dead letters. Then no difference counts as a dead
// letter, so that none is hidden from the alert audit_differs.
func TestAuditOfAnOlderBuild(t *testing.T) {
	t.Parallel()
	b := setup(t)
	found := store.Audited{Started: time.UnixMilli(1_000), Differences: 3, DeadLetters: 3}
	require.NoError(t, b.store.SetAudited(t.Context(), found))
	last, _, err := b.store.LastAudit(t.Context())
	require.NoError(t, err)
	require.Equal(t, found, last)

	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Audit(), "started", 2_000, "differences", 2).Err())
	last, _, err = b.store.LastAudit(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.Audited{Started: time.UnixMilli(2_000), Differences: 2}, last)
}
