package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// Disown records an operator's decision that the ledger will never have a campaign. From then on the settler sends the
// campaign's grants to quarantine; without the decision they wait. If the ledger has the
// campaign, Disown returns an error of ClassPermanent. A repeated call changes nothing.
func (l *Ledger) Disown(ctx context.Context, campaign string, d stream.Decision) error {
	if err := errors.Join(hongbao.CheckCampaignID(campaign), d.Check()); err != nil {
		return hongbao.Errorf(hongbao.ClassPermanent, "disown campaign %.80q: %w", campaign, err)
	}
	err := l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		_, found, err := campaignByID(campaign).First(ctx, t)
		if err == nil && found {
			err = hongbao.Errorf(hongbao.ClassPermanent, "the ledger has it: its grants are settled, and what contradicts it "+
				"is in quarantine already")
		}
		return []db.Stmt{{SQL: l.tables.Dialect.InsertDisowned,
			Args: []any{campaign, d.By, d.Why, time.Now().UnixMilli()}}}, err
	})
	if err != nil {
		return fmt.Errorf("disown campaign %s: %w", campaign, err)
	}
	return nil
}

func (l *Ledger) disowned(ctx context.Context, campaign string) (found bool, err error) {
	_, found, err = tables.Ask("ask whether campaign "+campaign+" is disowned",
		`SELECT created_at FROM disowned WHERE campaign = $1`, []any{campaign}, tables.Number).One(ctx, l.tables)
	return found, err
}
