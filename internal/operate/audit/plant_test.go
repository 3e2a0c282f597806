package audit_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func do(t *testing.T, cmd redis.Cmder) {
	t.Helper()
	require.NoError(t, cmd.Err())
}

func drop(grants map[string][]hongbao.Grant, id, user string) {
	grants[id] = slices.DeleteFunc(grants[id], func(g hongbao.Grant) bool { return g.User == user })
}

func again(grants map[string][]hongbao.Grant, id, user string) {
	i := slices.IndexFunc(grants[id], func(g hongbao.Grant) bool { return g.User == user })
	grants[id] = append(grants[id], grants[id][i])
}

// addEntry appends an entry with one grant of campaign a to the stream, bypassing the scripts.
func (w *world) addEntry(t *testing.T, line string, seq int64) {
	t.Helper()
	do(t, w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: w.keys("a").Keys.Events(),
		Values: testkit.Entry("grant", "a", seq, 1, 1700000000000, line)}))
}

// forge moves the last packet of campaign a from the stock into a receipt of user mallory with this seq. The counts
// still match.
func (w *world) forge(t *testing.T, seq int64) {
	t.Helper()
	k := w.keys("a")
	packet, err := w.rdb.RPop(t.Context(), k.Keys.Stock("a")).Result()
	require.NoError(t, err)
	do(t, w.rdb.HSet(t.Context(), k.Keys.Receipts("a"), "mallory", fmt.Sprintf("%s %d 0 ", packet, seq)))
}

// deadLetter grants one packet, publishes it, and makes it a dead letter of the ledger's group.
func (w *world) deadLetter(t *testing.T, reason string) {
	t.Helper()
	w.grab(t, "a", 500, 1)
	w.publish(t)
	k := w.keys("a")
	e := w.read(t, k.Index(), ledgerGroup)[0]
	written, err := k.DeadLetter(t.Context(), store.Letter{
		Group: ledgerGroup, Consumer: "w1", EntryID: e.ID, Grant: &e.Grants[0], Last: true, Class: hongbao.ClassPermanent,
		Reason: reason, Attempts: 1,
	})
	require.NoError(t, err)
	require.True(t, written)
}
