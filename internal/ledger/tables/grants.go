package tables

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// GrantColumns are the columns of table grants that come from the grant itself, in the order in which they are packed
// and scanned.
const GrantColumns = `campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at`

// StoredGrant is a row of table grants: a grant, and the batch that has paid it.
type StoredGrant struct {
	hongbao.Grant
	Batch int64
}

// ScanGrant scans GrantColumns and batch.
func ScanGrant(s db.Scan) (StoredGrant, error) {
	var g StoredGrant
	var shard, at int64
	err := s(&g.Campaign, &g.Packet, &g.User, &g.Amount, &shard, &g.Seq, &g.Epoch, &g.RequestID, &at, &g.Batch)
	g.Shard, g.Time = int(shard), time.UnixMilli(at).UTC()
	return g, err
}

// PaidGrant has the columns of table grants that sums need.
type PaidGrant struct {
	Packet, Seq int64
	Shard       int
	User        string
	Amount      hongbao.Amount
}

// selectPaid reads the columns that scanPaid scans, of up to $3 grants of a campaign after a packet.
const selectPaid = `SELECT packet, user_id, amount, shard, seq FROM grants WHERE campaign = $1 AND packet > $2
	ORDER BY packet LIMIT $3`

func scanPaid(s db.Scan) (g PaidGrant, err error) {
	var shard int64
	err = s(&g.Packet, &g.User, &g.Amount, &shard, &g.Seq)
	g.Shard = int(shard)
	return g, err
}

// EachPaid calls fn for every grant of a campaign after a packet, in the order of the packets.
func EachPaid(ctx context.Context, t db.Txn, campaign string, after int64, fn func(*PaidGrant) error) error {
	return EachPage(ctx, t, selectPaid, func() []any { return []any{campaign, after} }, func(s db.Scan) error {
		g, err := scanPaid(s)
		if err != nil {
			return err
		}
		after = g.Packet
		return fn(&g)
	})
}

// PaidAfter selects up to limit grants of a campaign after a packet, in the order of the packets.
func PaidAfter(campaign string, packet, limit int64) Query[PaidGrant] {
	return Query[PaidGrant]{SQL: selectPaid, Args: []any{campaign, packet, limit}, Row: scanPaid}
}
