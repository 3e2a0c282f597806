package ledgertest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Currency is the currency of every test campaign.
const Currency = "CNY"

// Planned returns the amount of a packet in every test campaign.
func Planned(packet int64) hongbao.Amount { return hongbao.Amount(100 + packet%7) }

// FundedFor returns the sum of the first packets of a test campaign.
func FundedFor(packets int64) hongbao.Amount {
	var sum hongbao.Amount
	for p := int64(1); p <= packets; p++ {
		sum += Planned(p)
	}
	return sum
}

// Plan is a function that implements ledger.PlanSource.
type Plan func(campaign string, packet int64) (hongbao.Amount, bool, error)

// Amount implements ledger.PlanSource.
func (f Plan) Amount(_ context.Context, campaign string, packet int64) (hongbao.Amount, bool, error) {
	return f(campaign, packet)
}

// Spec returns the specification of a test campaign.
func Spec(id string, packets int64) hongbao.Campaign {
	return hongbao.Campaign{
		ID: id, Name: "rain", Kind: hongbao.KindRedPacket, Currency: Currency, Total: FundedFor(packets),
		Packets: packets,
		Split:   hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: 200}, TimeZone: "Asia/Shanghai", Sponsor: "acme",
		From: time.UnixMilli(1_700_000_000_000).UTC(), To: time.UnixMilli(1_700_000_060_000).UTC(),
		Durability: hongbao.DurabilityFast,
		Limits:     []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 3}},
	}
}

// Campaign has the fields of ledger.Campaign, which this package can't import.
type Campaign struct {
	Spec      hongbao.Campaign
	Canonical []byte
	Seed      [32]byte `json:"-"`
	Hash      string
}

// Canonical returns the campaign of a specification.
func Canonical(t testing.TB, spec hongbao.Campaign) Campaign {
	t.Helper()
	text, err := json.Marshal(spec)
	require.NoError(t, err)
	c := Campaign{Spec: spec, Canonical: text, Hash: "sha256-of-" + spec.ID}
	copy(c.Seed[:], "seed of "+spec.ID)
	return c
}

// Grant returns the grant of a packet as Redis would make it. Its seq is the packet, and each user gets several
// packets.
func Grant(campaign string, packet int64) hongbao.Grant {
	return hongbao.Grant{
		Shard: 3, Seq: packet, Epoch: 1, EntryID: "1700000000000-0", Campaign: campaign, Packet: packet,
		Amount: Planned(packet), User: fmt.Sprintf("u%d", packet*7919%101), RequestID: fmt.Sprintf("r%d", packet),
		Time: time.UnixMilli(1_700_000_000_000 + packet).UTC(),
	}
}

// Grants returns the grants of some packets.
func Grants(campaign string, first, last int64) []hongbao.Grant {
	list := make([]hongbao.Grant, 0, last-first+1)
	for p := first; p <= last; p++ {
		list = append(list, Grant(campaign, p))
	}
	return list
}

// SecondOf returns another grant of a packet of campaign rain, to another user.
func SecondOf(packet int64, user string) hongbao.Grant {
	g := Grant("rain", packet)
	g.User, g.Seq = user, 1000+packet
	return g
}

// Close returns the close entry of a campaign whose packets 1 to granted were granted.
func Close(campaign string, packets, granted int64) stream.Entry {
	return stream.Entry{
		ID: "1700000060000-0", Shard: 3, Kind: stream.EntryClose, Campaign: campaign, Seq: granted + 1, Epoch: 1,
		Close: stream.Closing{
			Granted: granted, GrantedAmount: FundedFor(granted),
			Left: packets - granted, LeftAmount: FundedFor(packets) - FundedFor(granted),
		},
	}
}

// Settle settles the grants of each shard in a batch of its own.
func Settle(t rapid.TB, by hongbao.Handler, grants ...hongbao.Grant) {
	t.Helper()
	of := map[int][]hongbao.Grant{}
	for i := range grants {
		of[grants[i].Shard] = append(of[grants[i].Shard], grants[i])
	}
	for _, some := range of {
		require.Nil(t, by.Handle(context.Background(), testkit.Batch(some)))
	}
}

// Has checks that each calls its function for exactly these grants, as the ledger stores them.
func Has(t testing.TB, each func(func(hongbao.Grant) error) error, want []hongbao.Grant) {
	t.Helper()
	var got []hongbao.Grant
	require.NoError(t, each(func(g hongbao.Grant) error {
		got = append(got, g)
		return nil
	}))
	require.Len(t, got, len(want))
	for i, g := range want {
		g.EntryID, g.Trace = "", ""
		require.Equal(t, g, got[i])
	}
}
