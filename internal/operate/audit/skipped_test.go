package audit_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
)

// The audit reports no gap for seqs that an opening of the shard has skipped. It reports a missing seq beside them.
func TestSkippedSeqsAreNoGap(t *testing.T) {
	t.Parallel()
	w := busy(t)
	meta := w.keys("a").Keys.Meta()
	seq, err := w.rdb.HGet(t.Context(), meta, "seq").Int64()
	require.NoError(t, err)
	do(t, w.rdb.HSet(t.Context(), meta, "seq", seq+50, "skipped", fmt.Sprintf("%d-%d@2", seq+1, seq+50)))
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	do(t, w.rdb.HSet(t.Context(), meta, "skipped", fmt.Sprintf("%d-%d@2", seq+1, seq+49)))
	r = w.audit(t, audit.Options{})
	require.EqualValues(t, 1, r.Found[audit.SeqGap])
}

// A shard that has only skipped seqs needs no consumer group: an opening skips seqs before the workers create groups.
func TestSkippedSeqsNeedNoGroup(t *testing.T) {
	t.Parallel()
	w := busy(t)
	keys := w.keys("a").Keys
	do(t, w.rdb.Del(t.Context(), keys.Events()))
	missing := func(skipped string) int {
		do(t, w.rdb.HSet(t.Context(), keys.Meta(), "seq", 65535, "skipped", skipped))
		return int(w.audit(t, audit.Options{}).Found[audit.GroupMissing])
	}
	require.Zero(t, missing("1-65535@2"), "no event")
	require.Positive(t, missing("1-65534@2"), "one event")
}
