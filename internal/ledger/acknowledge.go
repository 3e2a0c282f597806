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
	"github.com/hongbao-project/hongbao/internal/model"
)

// Bounds of acknowledgements.
const (
	maxAcknowledged    = 1_000 // at once
	maxAcknowledgedFor = 366 * 24 * time.Hour
	maxDetail          = 4_000
)

func checkAcknowledgement(a *model.Acknowledgement, now time.Time) error {
	errs := []error{stream.Decision{By: a.By, Why: a.Why}.Check()}
	for _, f := range []struct {
		name, text  string
		least, most int
	}{
		{"kind", a.Kind, 1, 255}, {"where", a.Where, 1, 255}, {"campaign", a.Campaign, 0, 255}, {"event", a.Event, 0, 255},
		{"detail", a.Detail, 1, maxDetail},
	} {
		if len(f.text) < f.least || len(f.text) > f.most {
			errs = append(errs, fmt.Errorf("%s has %d bytes: want %d to %d", f.name, len(f.text), f.least, f.most))
		}
	}
	if !a.Until.After(now) || a.Until.Sub(now) > maxAcknowledgedFor {
		errs = append(errs, fmt.Errorf("until is %s: want a time within the next 366 days", a.Until.UTC().Format(time.RFC3339)))
	}
	if err := errors.Join(errs...); err != nil {
		return hongbao.Errorf(hongbao.ClassPermanent, "acknowledge a difference: %w", err)
	}
	return nil
}

// Acknowledge stores an acknowledgement. It replaces an earlier one of the same difference.
func (l *Ledger) Acknowledge(ctx context.Context, a model.Acknowledgement) error {
	now := time.Now()
	if err := checkAcknowledgement(&a, now); err != nil {
		return err
	}
	err := l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		if err := t.Run(ctx, db.Stmt{SQL: `DELETE FROM acknowledged WHERE difference = $1 OR until_at <= $2`,
			Args: []any{a.ID(), now.UnixMilli()}}); err != nil {
			return nil, err
		}
		n, _, err := tables.Query[int64]{SQL: `SELECT COUNT(*) FROM acknowledged`, Row: tables.Number}.First(ctx, t)
		if err == nil && n >= maxAcknowledged {
			err = hongbao.Errorf(hongbao.ClassPermanent, "%d differences are acknowledged already: fix their cause", n)
		}
		return []db.Stmt{{SQL: `INSERT INTO acknowledged (difference, kind, place, campaign, packet, event, detail, decided_by, why,
			until_at, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
			Args: []any{a.ID(), a.Kind, a.Where, a.Campaign, a.Packet, a.Event, a.Detail, a.By, a.Why, a.Until.UnixMilli(),
				now.UnixMilli()}}}, err
	})
	if err != nil {
		return fmt.Errorf("acknowledge a difference: %w", err)
	}
	return nil
}

// Acknowledged lists the acknowledgements that have not expired.
func (l *Ledger) Acknowledged(ctx context.Context) ([]model.Acknowledgement, error) {
	return tables.Ask("read the acknowledged differences", `SELECT kind, place, campaign, packet, event, detail,
		decided_by, why, until_at FROM acknowledged WHERE until_at > $1 ORDER BY created_at, difference`,
		[]any{time.Now().UnixMilli()}, func(s db.Scan) (a model.Acknowledgement, err error) {
			var until int64
			err = s(&a.Kind, &a.Where, &a.Campaign, &a.Packet, &a.Event, &a.Detail, &a.By, &a.Why, &until)
			a.Until = tables.At(until)
			return a, err
		}).All(ctx, l.tables)
}
