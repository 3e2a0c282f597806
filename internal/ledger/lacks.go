package ledger

import (
	"context"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// Lacks returns the grants whose packets are unknown to the ledger: neither paid, nor in quarantine, nor pending at a
// remote. A call should have at most about a thousand grants.
func (l *Ledger) Lacks(ctx context.Context, grants []hongbao.Grant) (lacks []hongbao.Grant, err error) {
	items := itemsOf(grants, 0)
	err = l.tables.Read(ctx, func(ctx context.Context, t db.Txn) error {
		has, err := l.recall(ctx, t, items)
		lacks = nil
		for i := range grants {
			key := keyOf(&grants[i])
			_, paid := has.paid[key]
			_, pending := has.pending[key]
			if !paid && !pending && len(has.aside[key]) == 0 {
				lacks = append(lacks, grants[i])
			}
		}
		return err
	})
	return lacks, err
}

// Settled reports for each grant whether the ledger has settled exactly this grant. A grant that the reserve has paid to
// the same user counts, too. Call Replicated before something that can't be taken back. A call should have at most about
// a thousand grants.
func (l *Ledger) Settled(ctx context.Context, grants []hongbao.Grant) (settled []bool, err error) {
	items := itemsOf(grants, 0)
	err = l.tables.Read(ctx, func(ctx context.Context, t db.Txn) error {
		has, err := l.recall(ctx, t, items)
		settled = make([]bool, len(grants))
		for i := range grants {
			g := &grants[i]
			row, paid := has.paid[keyOf(g)]
			settled[i] = paid && difference(g, &row.Grant) == "" || has.aside.paid(g) != nil
		}
		return err
	})
	return settled, err
}
