package deadletter

import (
	"context"

	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Undecided counts grants of a campaign that wait for a person's decision. The ledger may still pay each of them, so
// nothing of the campaign is refunded before they are decided.
type Undecided struct {
	Letters    int64
	Quarantine int64
}

// Quarantine lists up to limit grants that wait in the ledger's quarantine, with ids above after. *ledger.Ledger is one.
type Quarantine interface {
	Quarantine(ctx context.Context, after int64, limit int) ([]ledger.Quarantined, error)
}

// Undecided finds the undecided grants of a campaign on its places. sink is the ledger's.
func (l *Letters) Undecided(ctx context.Context, sink, campaign string, places []*store.Shard,
	of Quarantine) (u Undecided, err error) {
	for _, k := range places {
		err := l.Each(ctx, sink, k.Index(), "", func(page []Letter) error {
			for i := range page {
				if page[i].Campaign() == campaign {
					u.Letters++
				}
			}
			return nil
		})
		if err != nil {
			return u, err
		}
	}
	const page = 500
	for after := int64(0); ; {
		list, err := of.Quarantine(ctx, after, page)
		if err != nil {
			return u, err
		}
		for i := range list {
			if after = list[i].ID; list[i].Grant.Campaign == campaign {
				u.Quarantine++
			}
		}
		if len(list) < page {
			return u, nil
		}
	}
}
