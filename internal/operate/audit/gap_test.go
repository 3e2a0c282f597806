package audit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
)

// Workers delete finished entries after a parked one from the stream. The audit does not report such entries as lost.
func TestFinishedEntriesBehindAParkedOneMayGo(t *testing.T) {
	t.Parallel()
	w := busy(t)
	gone := w.hole(t)
	require.Equal(t, map[model.DifferenceKind]int64{audit.StreamGap: 1}, w.audit(t, audit.Options{}).Found,
		"no group has finished it")
	w.ledger.grants["a"], w.topic.grants = append(w.ledger.grants["a"], gone.Grants...),
		append(w.topic.grants, gone.Grants...)
	for _, group := range []string{ledgerGroup, topicGroup} {
		require.Equal(t, model.Differs, w.audit(t, audit.Options{}).Verdict)
		w.ack(t, w.keys("a").Index(), group, &gone)
	}
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.EqualValues(t, 2, r.Total.InFlight)
}

// hole grants three packets, one in each entry, and delivers the entries to both groups. It deletes the second entry
// from the stream and returns it.
func (w *world) hole(t *testing.T) stream.Entry {
	t.Helper()
	for i := range 3 {
		w.grab(t, "a", 203+i, 1) // all three users grab at the home of a
	}
	var entries []stream.Entry
	for _, group := range []string{ledgerGroup, topicGroup} {
		entries = w.read(t, w.keys("a").Index(), group)
		require.Len(t, entries, 3)
	}
	do(t, w.rdb.XDel(t.Context(), w.keys("a").Keys.Events(), entries[1].ID))
	return entries[1]
}
