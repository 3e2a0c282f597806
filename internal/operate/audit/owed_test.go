package audit_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/store"
)

// The sink kafka is added to shards with a trimmed history, and its group publishes what is left in the streams. The
// audit judges nothing of what the group does not owe, and everything else.
func TestASinkThatWasAddedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, k := range w.store.Shards() {
		do(t, w.rdb.XGroupDestroy(t.Context(), k.Keys.Events(), topicGroup))
	}
	w.grab(t, "a", 0, 30)
	w.grab(t, "b", 0, 20)
	w.settle(t)
	owed := make([]stream.Owed, w.store.Len())
	for i, k := range w.store.Shards() {
		_, err := k.TrimEvents(t.Context(), store.Trim{Groups: []string{ledgerGroup}, Limit: 1_000})
		require.NoError(t, err)
		do(t, w.rdb.XTrimMinID(t.Context(), k.Keys.Events(), "9999999999999-0"))
		begin, err := k.Group(topicGroup).Begin(t.Context())
		require.NoError(t, err)
		owed[i] = begin.Owed(nil)
		_, err = k.Group(topicGroup).Create(t.Context())
		require.NoError(t, err)
	}
	w.grab(t, "a", 100, 10)
	w.settle(t)
	w.publish(t)
	require.Equal(t, map[model.DifferenceKind]int64{audit.MissingInTopic: 50}, w.audit(t, audit.Options{}).Found,
		"without a record")

	w.cfg.Owed = func(_ context.Context, group string) ([]stream.Owed, error) {
		if group == topicGroup {
			return owed, nil
		}
		return make([]stream.Owed, len(owed)), nil
	}
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.EqualValues(t, 50, r.Total.NotOwed)
	require.EqualValues(t, 10, r.Total.Published)

	w.topic.grants = w.topic.grants[1:]
	w.ledger.grants["b"] = w.ledger.grants["b"][1:]
	require.Equal(t, map[model.DifferenceKind]int64{audit.MissingInTopic: 1, audit.Lost: 1}, w.audit(t,
		audit.Options{}).Found)
}

// Entries that a removed sink did not get are deleted from the stream. They are no gap, unless the sink owes them.
func TestAGapThatNoSinkOwes(t *testing.T) {
	t.Parallel()
	w := busy(t)
	gone := w.hole(t)
	w.ledger.grants["a"] = append(w.ledger.grants["a"], gone.Grants...)
	w.ack(t, w.keys("a").Index(), ledgerGroup, &gone)
	require.Contains(t, w.audit(t, audit.Options{}).Found, audit.StreamGap)
	owed := stream.NewOwed([]stream.SeqRange{{First: 1, Last: gone.Seq - 1}, {First: gone.Last() + 1, Last: stream.Forever}})
	w.cfg.Owed = func(_ context.Context, group string) ([]stream.Owed, error) {
		all := make([]stream.Owed, w.store.Len())
		if group == topicGroup {
			all[w.keys("a").Index()] = owed
		}
		return all, nil
	}
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.EqualValues(t, 1, r.Total.NotOwed)

	// The sink had stored a push of this event when it was removed. Nobody waits for it.
	w.ack(t, w.keys("a").Index(), topicGroup, &gone)
	text := fmt.Sprintf("1 1000 w1\n%d-%d\npayload", gone.Seq, gone.Last())
	do(t, w.rdb.HSet(t.Context(), w.keys("a").Keys.Claims(topicGroup), "c1", text))
	r = w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	owed = nil
	require.Contains(t, w.audit(t, audit.Options{}).Found, audit.OpenClaim)
}
