package ledger

import (
	"context"

	"github.com/hongbao-project/hongbao"
)

// Lacks returns the grants whose packets are unknown to the ledger: neither paid, nor in quarantine, nor pending at a
// remote. A call should have at most about a thousand grants.
func (l *Ledger) Lacks(ctx context.Context, grants []hongbao.Grant) (lacks []hongbao.Grant, err error) {
	items := itemsOf(grants)
	err = l.read(ctx, func(ctx context.Context, t txn) error {
		lacks = nil
		has, err := l.readGrants(ctx, t, items)
		if err != nil {
			return err
		}
		known := make(map[packetKey]bool, len(items))
		for key := range has {
			known[key] = true
		}
		err = l.eachQuarantined(ctx, t, items, func(q *Quarantined) { known[keyOf(&q.Grant)] = true })
		if err != nil {
			return err
		}
		pending, err := l.readPending(ctx, t, items)
		for i := range pending {
			known[keyOf(&pending[i].Grant)] = true
		}
		for i := range grants {
			if !known[keyOf(&grants[i])] {
				lacks = append(lacks, grants[i])
			}
		}
		return err
	})
	return lacks, err
}
