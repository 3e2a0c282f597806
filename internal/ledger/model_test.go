package ledger

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// bookModel is the simplest possible ledger of one campaign.
type bookModel struct {
	packets int64
	paid    map[int64]hongbao.Grant
	aside   map[hongbao.Grant]model.QuarantineReason
}

func (m *bookModel) settle(campaign string, batch []hongbao.Grant) {
	var rest []hongbao.Grant
	why := make(map[hongbao.Grant]model.QuarantineReason)
	for _, g := range batch {
		has, paid := m.paid[g.Packet]
		switch {
		case g.Campaign != campaign:
			why[g] = NoCampaign
		case g.Packet > m.packets:
			why[g] = PacketNotPlanned
		case g.Amount != planned(g.Packet):
			why[g] = AmountNotPlanned
		case !paid:
			m.paid[g.Packet] = g
			continue
		case has == g:
			continue
		}
		rest = append(rest, g)
	}
	for _, g := range rest { // the settler pays the others first, then compares with the ledger
		reason := why[g]
		if has, paid := m.paid[g.Packet]; paid && g.Campaign == campaign {
			reason = DifferentSeq
			if g.Amount != has.Amount {
				reason = DifferentAmount
			}
			if g.User != has.User {
				reason = DifferentUser
			}
		}
		if _, ok := m.aside[g]; !ok {
			m.aside[g] = reason
		}
	}
}

var histories atomic.Int64

// testModel compares random histories (batches in any order, repeats, altered and impossible grants, top-ups) with the
// model.
func testModel(t *testing.T, f *fixture) {
	rapid.Check(t, func(rt *rapid.T) {
		n := histories.Add(1)
		campaign, other := fmt.Sprintf("c%d", n), fmt.Sprintf("no%d", n)
		m := &bookModel{packets: 12, paid: make(map[int64]hongbao.Grant),
			aside: make(map[hongbao.Grant]model.QuarantineReason)}
		_, err := f.ledger.CreateCampaign(context.Background(), testCampaign(t, campaign, m.packets))
		require.NoError(rt, err)
		f.disown(rt, other)
		draw := rapid.Custom(func(rt *rapid.T) hongbao.Grant {
			g := grant(campaign, rapid.Int64Range(1, m.packets+1).Draw(rt, "packet"))
			g.EntryID = ""
			switch rapid.IntRange(0, 12).Draw(rt, "altered") {
			case 0:
				g.User = rapid.SampledFrom([]string{"eve", "mallory"}).Draw(rt, "user")
			case 1:
				g.Amount += hongbao.Amount(rapid.IntRange(1, 2).Draw(rt, "amount"))
			case 2:
				g.Seq += 1000
			case 3:
				g.Campaign = other
			case 4:
				g.User, g.Amount = "eve", 1
			}
			return g
		})
		generation := 1
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			if add := rapid.Int64Range(-3, 4).Draw(rt, "added"); add > 0 {
				generation++
				o := added(campaign, generation, m.packets, add)
				for range rapid.IntRange(1, 2).Draw(rt, "ordered") {
					f.tops(rt, o)
				}
				m.packets += add
				o.ID, o.Generation = "late", generation+1 // expects the total before the top-up
				_, err := f.ledger.TopUp(context.Background(), o)
				require.ErrorIs(rt, err, ErrFundedOtherwise)
			}
			batch := rapid.SliceOfN(draw, 1, 20).Draw(rt, "batch")
			m.settle(campaign, batch)
			require.Nil(rt, f.Handle(context.Background(), testkit.Batch(batch)))
			f.agrees(rt, campaign, other, m)
		}
	})
	differences, err := f.books().CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
}

func (f *fixture) agrees(t require.TestingT, campaign, other string, m *bookModel) {
	paid := make(map[int64]hongbao.Grant)
	require.NoError(t, f.ledger.EachGrant(context.Background(), campaign, func(g hongbao.Grant) error {
		paid[g.Packet] = g
		return nil
	}))
	require.Equal(t, m.paid, paid)
	list, err := f.ledger.Quarantine(context.Background(), 0, 100_000)
	require.NoError(t, err)
	aside := make(map[hongbao.Grant]model.QuarantineReason)
	for _, q := range list {
		if q.Grant.Campaign == campaign || q.Grant.Campaign == other {
			q.Grant.Currency = "" // the ledger adds the currency to the grants that it returns
			aside[q.Grant] = q.Reason
		}
	}
	require.Equal(t, m.aside, aside)
	totals, _, err := f.books().Totals(context.Background(), campaign)
	require.NoError(t, err)
	require.Len(t, m.paid, int(totals.Grants))
	require.Equal(t, fundedFor(m.packets), totals.Funded)
}
