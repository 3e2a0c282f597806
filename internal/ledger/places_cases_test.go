package ledger

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
)

// dealt is a campaign on several shards: packet k is on shard on[(k-1) % len(on)].
type dealt struct {
	id      string
	packets int64
	on      []int
	seqs    map[int]int64 // the last seq, by shard
	grants  []hongbao.Grant
}

func (f *fixture) deal(t testing.TB, id string, packets int64, on ...int) *dealt {
	c := testCampaign(t, id, packets)
	c.Spec.Shards = len(on)
	_, err := f.ledger.CreateCampaign(context.Background(), canonical(t, c.Spec))
	require.NoError(t, err)
	return &dealt{id: id, packets: packets, on: on, seqs: map[int]int64{}}
}

// grant returns grants of packets, each with the packet's shard and that shard's next seq.
func (d *dealt) grant(packets ...int64) []hongbao.Grant {
	var list []hongbao.Grant
	for _, p := range packets {
		g := grant(d.id, p)
		g.Shard = d.on[(p-1)%int64(len(d.on))]
		d.seqs[g.Shard]++
		g.Seq = d.seqs[g.Shard]
		list = append(list, g)
	}
	d.grants = append(d.grants, list...)
	return list
}

func (d *dealt) closes() []stream.Entry {
	list := make([]stream.Entry, len(d.on))
	for j, shard := range d.on {
		list[j] = stream.Entry{Shard: shard, Kind: stream.EntryClose, Campaign: d.id, Seq: d.seqs[shard] + 1, Epoch: 1}
		c := &list[j].Close
		for p := int64(j) + 1; p <= d.packets; p += int64(len(d.on)) {
			c.Left, c.LeftAmount = c.Left+1, c.LeftAmount+planned(p)
		}
		for _, g := range d.grants {
			if g.Shard == shard {
				*c = c.Plus(stream.Closing{Granted: 1, GrantedAmount: g.Amount, Left: -1, LeftAmount: -g.Amount})
			}
		}
	}
	return list
}

func testRefundPlaces(t *testing.T, f *fixture) {
	d := f.deal(t, "rain", 10, 3, 0, 5)
	first, last := d.grant(1, 2, 3, 4), d.grant(6)
	closes := d.closes()
	f.settles(t, first...)
	_, err := f.ledger.Refund(t.Context(), closes, 0)
	require.ErrorIs(t, err, payment.ErrSettling, "the last grant of one shard is not settled")
	f.settles(t, last...)
	for says, wrong := range map[string][]stream.Entry{
		"got 0 closes":                          nil,
		"the campaign is on 3 shards":           closes[:2],
		"there are 4 closes":                    append(slices.Clone(closes), closes[0]),
		"the close counts 11 packets":           {closes[0], closes[0], closes[2]},
		"event 5-3 is not a close of it":        {closes[0], closes[1], {Shard: 5, Seq: 3, Campaign: "snow", Kind: "close"}},
		"can't have counted: they come after i": {closes[1], closes[0], closes[2]},
	} {
		_, err = f.ledger.Refund(t.Context(), wrong, 0)
		require.ErrorContains(t, err, says)
	}
	require.Zero(t, f.count(t, `SELECT COUNT(*) FROM refund`))

	r, err := f.ledger.Refund(t.Context(), closes, 0)
	require.NoError(t, err)
	want := []payment.Close{{Shard: 3, Seq: 3}, {Shard: 0, Seq: 2}, {Shard: 5, Seq: 3}}
	require.Equal(t, want, r.Closes)
	require.EqualValues(t, 5, r.Packets)
	again, err := f.ledger.Refund(t.Context(), closes, 0)
	require.NoError(t, err)
	require.Equal(t, r, again)
	stored, _, err := f.ledger.RefundOf(t.Context(), "rain")
	require.NoError(t, err)
	require.Equal(t, r, stored)
	totals, _, err := f.books().Totals(t.Context(), "rain")
	require.NoError(t, err)
	require.Equal(t, want, totals.Closes)
	for shard, seq := range map[int]int64{0: 2, 3: 3, 5: 3, 4: 0} {
		has, err := f.ledger.HighestSeq(t.Context(), shard)
		require.NoError(t, err)
		require.Equal(t, seq, has, "a close is an event of shard %d", shard)
	}
	f.create(t, "snow", 10)
	f.refunds(t, closeOf("snow", 10, 0))
	closed := map[string][]payment.Close{}
	require.NoError(t, f.books().EachTotals(t.Context(), func(c *books.Totals) error {
		closed[c.Campaign] = c.Closes
		return nil
	}))
	require.Equal(t, map[string][]payment.Close{"rain": want, "snow": {{Shard: 3, Seq: 1}}}, closed)
	f.conserved(t)
}

func (f *fixture) conserved(t *testing.T) {
	t.Helper()
	differences, err := f.books().CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
}

// testRefundPlacesDies kills the refund before each of its statements: either all closes are stored or none.
func testRefundPlacesDies(t *testing.T, f *fixture) {
	d := f.deal(t, "rain", 10, 3, 0, 5)
	f.settles(t, d.grant(1, 2, 3, 4)...)
	closes, inner := d.closes(), f.ledger.tables.Store
	for deaths := 0; ; deaths++ {
		f.ledger.tables.Store = &dying{Store: inner, after: deaths}
		r, err := f.ledger.Refund(t.Context(), closes, 0)
		f.ledger.tables.Store = inner
		rows := f.count(t, `SELECT COUNT(*) FROM refund_close`)
		if err == nil {
			require.Len(t, r.Closes, 3)
			require.Equal(t, []int64{8, 2}, []int64{int64(deaths - f.looks(3)), rows}, "the lock and seven statements")
			break
		}
		require.ErrorIs(t, err, errDied)
		require.Zero(t, rows)
	}
	f.conserved(t)
}

// testRefundLostPlaces refunds a campaign after Redis has lost one of its three places. Grants of the other places must
// come before the closes of these places.
func testRefundLostPlaces(t *testing.T, f *fixture) {
	d := f.deal(t, "rain", 10, 3, 0, 5)
	f.settles(t, d.grant(1, 2, 3, 4)...)
	o := lostOf(4)
	for says, closes := range map[string][]payment.Close{
		"the campaign is on 3":           {{Shard: 3}},
		"1 grants (packet 2 for one) of": {{Shard: 3}, {Shard: 0, Seq: 1}, {Shard: 5, Seq: 2}},
		"2 grants (packet 4 for one) of": {{Shard: 2}, {Shard: 0}, {Shard: 5}},
	} {
		o.Closes = closes
		_, err := f.ledger.RefundLost(t.Context(), o)
		require.ErrorContains(t, err, says)
	}
	o.Closes = []payment.Close{{Shard: 3}, {Shard: 0, Seq: 2}, {Shard: 5, Seq: 2}}
	r, err := f.ledger.RefundLost(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, o.Closes, r.Closes)
	stored, _, err := f.ledger.RefundOf(t.Context(), "rain")
	require.NoError(t, err)
	require.Equal(t, r, stored)
	f.conserved(t)
}

var endings atomic.Int64

// testRefundModel draws closed campaigns on one to five shards, and may alter a grant or a close. Refund succeeds only
// if the closes can have counted exactly the grants in the ledger.
func testRefundModel(t *testing.T, f *fixture) {
	rapid.Check(t, func(rt *rapid.T) {
		shards := rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6}).Draw(rt, "shards")
		places := rapid.IntRange(1, 5).Draw(rt, "places")
		packets := int64(places + rapid.IntRange(0, 9).Draw(rt, "packets"))
		d := f.deal(t, fmt.Sprintf("end%d", endings.Add(1)), packets, shards[:places]...)
		for _, s := range d.on {
			d.seqs[s] = rapid.Int64Range(0, 5).Draw(rt, "earlier")
		}
		all := make([]int64, packets)
		for i := range all {
			all[i] = int64(i) + 1
		}
		granted := rapid.IntRange(1, int(packets)).Draw(rt, "granted")
		grants := d.grant(rapid.Permutation(all).Draw(rt, "order")[:granted]...)
		closes := d.closes()
		at := rapid.IntRange(0, granted-1).Draw(rt, "at")
		place := slices.Index(d.on, grants[at].Shard)
		refunded := false
		switch rapid.IntRange(0, 6).Draw(rt, "wrong") {
		case 0:
			grants[at].Seq = closes[place].Seq + rapid.Int64Range(0, 2).Draw(rt, "behind")
		case 1:
			grants[at].Shard, grants[at].Seq = shards[places], 1 // a shard on which the campaign has no place
		case 2:
			grants[at].Shard = d.on[(place+1)%places] // the place of other packets
			refunded = places == 1
		case 3:
			grants = slices.Delete(grants, at, at+1)
		case 4:
			closes[place].Close.Granted--
		case 5:
			closes = closes[:places-1]
		default:
			refunded = true
		}
		f.settles(rt, grants...)
		_, err := f.ledger.Refund(context.Background(), closes, 0)
		require.Equal(rt, refunded, err == nil, "%v", err)
	})
	f.conserved(t)
}
