package deadletter

import (
	"context"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Undecided counts grants of a campaign about which a person has to decide. The ledger may still pay them, so the
// campaign is not refunded before.
type Undecided struct {
	Letters    int64
	Quarantine int64
}

// Quarantine lists up to limit undecided grants in the ledger's quarantine whose ID is greater than after.
// *ledger.Ledger implements it.
type Quarantine interface {
	Quarantine(ctx context.Context, after int64, limit int) ([]model.Quarantined, error)
}

// Undecided counts the undecided grants of a campaign. places are the campaign's shards, and sink is the ledger's sink.
func (l *Letters) Undecided(ctx context.Context, sink, campaign string, places []store.Place,
	of Quarantine) (u Undecided, err error) {
	for _, k := range places {
		err := l.Each(ctx, sink, k.Index(), "", func(page []model.Letter) error {
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
