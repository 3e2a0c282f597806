package recovery_test

import (
	"github.com/hongbao-project/hongbao/internal/testkit"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// grantsOf returns the grants of a campaign in the stream whose seq is greater than above.
func (w *world) grantsOf(t *testing.T, id string, above int64) (out []hongbao.Grant) {
	t.Helper()
	entries, err := w.shard().Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	for _, e := range entries {
		if e.Campaign == id && e.Seq > above {
			out = append(out, e.Grants...)
		}
	}
	return out
}

// Redis loses several events. If the ledger knows all of them, only their campaigns are in doubt. If the ledger lacks
// one, its campaign is unknown, so all open campaigns of the shard are in doubt.
func TestLedgerLacksALostEvent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lose  func(t *testing.T, w *world)
		doubt []string
	}{
		"an event of another campaign": {func(t *testing.T, w *world) {
			w.grabIn(t, w.server.Client(t), "snow", 1)
			w.grab(t, w.server.Client(t), 1)
			require.Nil(t, w.settler(t).Handle(t.Context(), testkit.Batch(w.grantsOf(t, id, 10))))
		}, []string{"hail", id, "snow"}},
		"an event of the same campaign": {func(t *testing.T, w *world) {
			w.grab(t, w.server.Client(t), 2)
			require.Nil(t, w.settler(t).Handle(t.Context(), testkit.Batch(w.grantsOf(t, id, 10)[1:])))
		}, []string{"hail", id, "snow"}},
		"every event is paid": {func(t *testing.T, w *world) {
			w.grab(t, w.server.Client(t), 2)
			require.Nil(t, w.settler(t).Handle(t.Context(), testkit.Batch(w.grantsOf(t, id, 10))))
		}, []string{id}},
		"one is in quarantine, one is pending, one is paid": {func(t *testing.T, w *world) {
			w.grab(t, w.server.Client(t), 2)
			w.grabIn(t, w.server.Client(t), "snow", 1)
			list := w.grantsOf(t, id, 10)
			list[0].User = "mallory"
			list[0].Amount++
			require.Nil(t, w.settler(t).Handle(t.Context(), testkit.Batch(list[:1])))
			w.pends(t, list[1:])
			require.Nil(t, w.settler(t).Handle(t.Context(), testkit.Batch(w.grantsOf(t, "snow", 10))))
		}, []string{id, "snow"}},
		"one is a close that was refunded": {func(t *testing.T, w *world) {
			closed, err := w.shard().Place("hail").Close(t.Context(), true, 0)
			require.NoError(t, err)
			w.refund(t, closed)
			w.grab(t, w.server.Client(t), 1)
			require.Nil(t, w.settler(t).Handle(t.Context(), testkit.Batch(w.grantsOf(t, id, 10))))
		}, []string{"hail", id}},
		"one is a close that was not refunded": {func(t *testing.T, w *world) {
			_, err := w.shard().Place("hail").Close(t.Context(), true, 0)
			require.NoError(t, err)
			w.grab(t, w.server.Client(t), 1)
			require.Nil(t, w.settler(t).Handle(t.Context(), testkit.Batch(w.grantsOf(t, id, 10))))
		}, []string{"hail", id, "snow"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.fund(t, "snow", 0)
			w.fund(t, "hail", 0)
			w.grab(t, w.rdb, 10)
			w.settle(t)
			old := w.older(t)
			c.lose(t, w)
			w.restart(t, old)
			w.staysFrozen(t)
			reports, err := w.rec.Reports(t.Context())
			require.NoError(t, err)
			var doubt []string
			for _, d := range reports[0].Campaigns {
				doubt = append(doubt, d.Campaign)
			}
			require.Equal(t, c.doubt, doubt, "%+v", reports[0].Campaigns)
			require.NoError(t, w.rec.Accept(t.Context(), reports[0], by("ann", "the disk is gone")))
			for _, id := range []string{"hail", id, "snow"} {
				state, err := w.rdb.HGet(t.Context(), w.store.Shard(0).Keys.Campaign(id), "state").Result()
				require.NoError(t, err)
				require.Equal(t, slices.Contains(c.doubt, id), state == "frozen", "%s is %s", id, state)
			}
		})
	}
}

func (w *world) refund(t *testing.T, closed stream.Entry) {
	t.Helper()
	_, err := w.ledger.Refund(t.Context(), []stream.Entry{closed}, 0)
	require.NoError(t, err)
}

// pends notes in the ledger that a worker is asking the remote to credit these grants.
func (w *world) pends(t *testing.T, list []hongbao.Grant) {
	t.Helper()
	_, _, err := w.settler(t).Begin(t.Context(), payment.CreditCall{Owner: "w", Batch: 1, OwnedFor: time.Hour}, testkit.Batch(list))
	require.NoError(t, err)
}

// A worker has asked the remote to credit a grant, and the ledger has no result yet. Redis loses the grant. The shard
// stays frozen, because the remote may have booked the credit.
func TestPendingCreditIsKnown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	w.settle(t)
	old := w.older(t)
	w.grab(t, w.server.Client(t), 1)
	w.pends(t, w.grantsOf(t, id, 10))
	w.restart(t, old)
	w.staysFrozen(t)
	reports, err := w.rec.Reports(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 11, reports[0].Ledger)
	require.Equal(t, "the ledger has grants of it that Redis has lost", reports[0].Campaigns[0].Why)
}
