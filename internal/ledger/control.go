package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// KeepControls stores decisions to pause, resume or limit a campaign or a sink. It ignores a decision whose rev is not
// higher than the stored one, so decisions may arrive out of order or twice.
func (l *Ledger) KeepControls(ctx context.Context, list ...stream.Control) error {
	err := l.tables.Write(ctx, func(context.Context, db.Txn) ([]db.Stmt, error) {
		stmts := make([]db.Stmt, 0, 2*len(list))
		for i := range list {
			c := &list[i]
			args := []any{string(c.Kind), c.Sink, c.Campaign, c.Value, words(c.By), words(c.Why), tables.Milli(c.At), c.Rev}
			stmts = append(stmts, db.Stmt{SQL: l.tables.Dialect.InsertControl, Args: args},
				db.Stmt{SQL: `UPDATE control SET setting = $4, decided_by = $5, why = $6, decided_at = $7, rev = $8
					WHERE kind = $1 AND sink = $2 AND campaign = $3 AND rev < $8`, Args: args})
		}
		return stmts, nil
	})
	if err != nil {
		return fmt.Errorf("keep decisions about campaigns and sinks in the ledger: %w", err)
	}
	return nil
}

// maxWords bounds the texts for the decider and the reason, in bytes.
const maxWords = 1000

// words makes a text storable, so that characters which the database refuses don't block a decision.
func words(text string) string { return access.Storable(text, maxWords) }

const selectControls = `SELECT kind, sink, campaign, setting, decided_by, why, decided_at, rev FROM control `

// Controls returns the last decision about each sink, and about each campaign that is not refunded.
func (l *Ledger) Controls(ctx context.Context) ([]stream.Control, error) {
	return tables.Ask("read the decisions about campaigns and sinks",
		selectControls+`WHERE campaign = '' OR campaign IN (SELECT id FROM campaign WHERE state = 'funded')
			ORDER BY kind, sink, campaign`, nil, scanControl).All(ctx, l.tables)
}

// CampaignPause returns the last decision to pause or resume a campaign, nil if there is none.
func (l *Ledger) CampaignPause(ctx context.Context, campaign string) (*stream.Control, error) {
	c, found, err := tables.Ask("ask whether campaign "+campaign+" is paused",
		selectControls+`WHERE kind = $1 AND sink = '' AND campaign = $2`,
		[]any{string(stream.ControlCampaign), campaign}, scanControl).One(ctx, l.tables)
	if err != nil || !found {
		return nil, err
	}
	return &c, nil
}

func scanControl(s db.Scan) (c stream.Control, err error) {
	var kind string
	var at int64
	err = s(&kind, &c.Sink, &c.Campaign, &c.Value, &c.By, &c.Why, &at, &c.Rev)
	if c.Kind = stream.ControlKind(kind); at > 0 {
		c.At = time.UnixMilli(at)
	}
	return c, err
}
