package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// Lost is what the ledger knows of a shard's events above a seq.
type Lost struct {
	// Grants are the grants that are paid or pending (a remote may have booked them), sorted by seq. If Redis went back
	// in time, a seq can occur twice, for different packets. EntryID and Trace are empty, because the ledger does not
	// store them.
	Grants []hongbao.Grant
	// Others says that there are further events, which only an operator can judge: grants in quarantine, even decided
	// ones; closes that refunds are based on; grants of archived campaigns.
	Others bool
}

// LostEvents reads everything that the ledger knows of a shard's events above a seq, on one snapshot.
func (l *Ledger) LostEvents(ctx context.Context, shard int, above int64) (lost Lost, err error) {
	err = l.tables.ReadPages(ctx, func(ctx context.Context, t db.Txn) (err error) {
		lost = Lost{}
		for _, table := range []string{"grants", "pending"} {
			if err := lost.read(ctx, t, table, shard, above); err != nil {
				return err
			}
		}
		_, lost.Others, err = tables.Query[int64]{SQL: `SELECT 1 FROM quarantine WHERE shard = $1 AND seq > $2
			UNION ALL SELECT 1 FROM refund WHERE shard = $1 AND close_seq > $2
			UNION ALL SELECT 1 FROM refund_close WHERE shard = $1 AND close_seq > $2
			UNION ALL SELECT 1 FROM archive_shard WHERE shard = $1 AND last_seq > $2 LIMIT 1`,
			Args: []any{int64(shard), above}, Row: tables.Number}.First(ctx, t)
		return err
	})
	if err != nil {
		return Lost{}, fmt.Errorf("read what the ledger knows of shard %d above seq %d: %w", shard, above, err)
	}
	slices.SortFunc(lost.Grants, func(a, b hongbao.Grant) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Campaign, b.Campaign), cmp.Compare(a.Packet, b.Packet))
	})
	return lost, nil
}

func (lost *Lost) read(ctx context.Context, t db.Txn, table string, shard int, above int64) error {
	last := hongbao.Grant{Seq: above + 1} // sorts before every row of that seq, since no campaign has an empty id
	return tables.EachPage(ctx, t, `SELECT `+tables.GrantColumns+`,
		COALESCE((SELECT code FROM code AS k WHERE k.campaign = `+table+`.campaign AND k.packet = `+table+`.packet), ''),
		COALESCE((SELECT currency FROM campaign AS c WHERE c.id = `+table+`.campaign), '')
		FROM `+table+` WHERE shard = $1 AND seq >= $2 AND (seq, campaign, packet) > ($2, $3, $4)
		ORDER BY seq, campaign, packet LIMIT $5`,
		func() []any { return []any{int64(shard), last.Seq, last.Campaign, last.Packet} }, func(s db.Scan) error {
			var g hongbao.Grant
			var in, at int64
			err := s(&g.Campaign, &g.Packet, &g.User, &g.Amount, &in, &g.Seq, &g.Epoch, &g.RequestID, &at, &g.Code, &g.Currency)
			g.Shard, g.Time = int(in), time.UnixMilli(at).UTC()
			last, lost.Grants = g, append(lost.Grants, g)
			return err
		})
}
