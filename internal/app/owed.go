package app

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Debts returns the record of what each sink owes; nil if the deployment has no ledger.
func (a *App) Debts() consumer.Debts {
	if a.Config.Ledger.DSN == "" {
		return nil
	}
	return a.ledger
}

// owed returns what a sink owes on each shard; nil if the deployment has no ledger, and the sink owes everything.
func (a *App) owed(ctx context.Context, sink string) ([]stream.Owed, error) {
	if a.Config.Ledger.DSN == "" {
		return nil, nil
	}
	begins := make([]store.GroupBegin, a.store.Len())
	for i := range begins {
		var err error
		if begins[i], err = a.store.Shard(i).GroupBegin(ctx, sink); err != nil {
			return nil, fmt.Errorf("what sink %s owes: %w", sink, err)
		}
	}
	rows, err := a.ledger.OwedRows(ctx)
	out := make([]stream.Owed, len(begins))
	for i := range out {
		out[i] = begins[i].Owed(ledger.OwedBy(rows, sink, i))
	}
	return out, err
}
