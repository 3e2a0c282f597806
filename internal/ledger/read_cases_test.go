package ledger

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func (f *fixture) bySeq(t *testing.T, shard int, first, last int64) []int64 {
	t.Helper()
	var packets []int64
	require.NoError(t, f.ledger.EachGrantBySeq(t.Context(), shard, stream.SeqRange{First: first, Last: last},
		func(g hongbao.Grant) error {
			packets = append(packets, g.Packet)
			return nil
		}))
	return packets
}

func testBySeq(t *testing.T, f *fixture) {
	const packets = 2*pageRows + 10
	f.create(t, "rain", packets)
	all := grantsOf("rain", 1, packets)
	for i := range all {
		all[i].Seq = packets - int64(i) // the last packet was granted first
	}
	all[9].Seq = all[10].Seq // Redis went back in time: two packets have the same seq
	f.settles(t, all...)
	require.Equal(t, []int64{10, 11, 9}, f.bySeq(t, 3, packets-10, packets-8))
	require.Equal(t, []int64{packets}, f.bySeq(t, 3, 0, 1))
	require.Empty(t, f.bySeq(t, 2, 1, packets))
	require.Empty(t, f.bySeq(t, 3, packets+1, packets+100))
	got := f.bySeq(t, 3, 1, packets)
	require.Len(t, got, packets, "each grant once, across pages")
	require.EqualValues(t, packets, got[0])
	require.EqualValues(t, 1, got[packets-1])
}

func testIterationError(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 10)...)
	stop := errors.New("enough")
	calls := 0
	fn := func(hongbao.Grant) error {
		calls++
		return stop
	}
	require.Equal(t, stop, f.ledger.EachGrant(t.Context(), "rain", fn))
	require.Equal(t, stop, f.ledger.EachGrantBySeq(t.Context(), 3, stream.SeqRange{First: 1, Last: 10}, fn))
	require.Equal(t, 2, calls)
}

func testUnknown(t *testing.T, f *fixture) {
	_, found, err := f.ledger.Campaign(t.Context(), "rain")
	require.NoError(t, err)
	require.False(t, found)
	_, found, err = f.books().Totals(t.Context(), "rain")
	require.NoError(t, err)
	require.False(t, found)
	_, found, err = f.ledger.Balance(t.Context(), "user:CNY:nobody")
	require.NoError(t, err)
	require.False(t, found)
}

func testResolve(t *testing.T, f *fixture) {
	f.disown(t, "nowhere")
	f.settles(t, grantsOf("nowhere", 1, 3)...)
	list := f.open(t)
	require.Len(t, list, 3)
	require.Empty(t, list[0].Grant.Currency, "the ledger does not know the campaign")
	_, err := f.ledger.Decide(t.Context(), Resolution{ID: list[1].ID}, nil)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	_, err = f.ledger.Decide(t.Context(), Resolution{ID: list[1].ID, Decision: by("ann", "forged")}, nil)
	require.NoError(t, err)
	f.settles(t, grantsOf("nowhere", 1, 3)...) // the redelivered grant stays decided
	require.Equal(t, []model.Quarantined{list[0], list[2]}, f.open(t))
	rest, err := f.ledger.Quarantine(t.Context(), list[0].ID, 1)
	require.NoError(t, err)
	require.Equal(t, []model.Quarantined{list[2]}, rest)

	f.create(t, "rain", 1)
	f.settles(t, grantsOf("rain", 2, 2)...) // no such packet
	rain := f.open(t)[2]
	require.Equal(t, testCurrency, rain.Grant.Currency)
	one, _, err := f.ledger.Quarantined(t.Context(), rain.ID)
	require.NoError(t, err)
	require.Equal(t, rain, one)
}

func testDeletedByHand(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 1)...)
	f.tamper(t, db.Stmt{SQL: `DELETE FROM transfer`}, db.Stmt{SQL: `DELETE FROM account WHERE kind = 'pool'`})
	errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 2, 2)))
	require.Len(t, errs, 1)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(errs[0]), "%v", errs[0])
}

func testRecorded(t *testing.T, f *fixture) {
	f.create(t, "rain", 20)
	f.create(t, "snow", 20)
	all := append(grantsOf("rain", 1, 4), grantsOf("snow", 3, 6)...)
	f.settles(t, all...)
	ask := append(grantsOf("rain", 3, 6), grantsOf("snow", 1, 3)...)
	for i := range ask {
		ask[i].User, ask[i].Seq, ask[i].Shard = "another", 77, 1
	}
	got, before, err := f.Settler.Begin(t.Context(), asking("w1", 1), testkit.Batch(ask))
	require.NoError(t, err)
	require.Empty(t, before)
	var ids []string
	for i := range got {
		require.NotEqual(t, "another", got[i].User)
		ids = append(ids, fmt.Sprint(got[i].Campaign, got[i].Packet))
	}
	require.ElementsMatch(t, []string{"rain3", "rain4", "snow3"}, ids)
	got, _, err = f.Settler.Begin(t.Context(), asking("w1", 2), testkit.Batch(nil))
	require.NoError(t, err)
	require.Empty(t, got)
}
