package ledger

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// AcceptLoss moves a shard that has lost data to the epoch word.Epoch, like SetShard. In the same transaction it
// records the decision. It ignores word.At.
func (l *Ledger) AcceptLoss(ctx context.Context, from int64, token string, decision model.AcceptedLoss) error {
	if err := decision.Decision.Check(); err != nil {
		return hongbao.Errorf(hongbao.ClassPermanent, "accept the loss of shard %d: %w", decision.Shard, err)
	}
	move := shardMove{shard: decision.Shard, from: from, to: ShardState{Epoch: decision.Epoch, Token: token}}
	return move.named(l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		if _, err := move.run(ctx, t); err != nil {
			return nil, err
		}
		return []db.Stmt{{SQL: l.tables.Dialect.InsertAcceptedLoss,
			Args: []any{int64(decision.Shard), decision.Epoch, decision.By, decision.Why, decision.Lost, time.Now().UnixMilli()}}}, nil
	}))
}

// AcceptedLosses lists up to limit accepted losses, the newest first.
func (l *Ledger) AcceptedLosses(ctx context.Context, limit int) ([]model.AcceptedLoss, error) {
	return tables.Ask("list the losses that were accepted",
		`SELECT shard, epoch, accepted_by, why, lost, created_at FROM accepted_loss
			ORDER BY created_at DESC, shard, epoch DESC LIMIT $1`, []any{int64(limit)},
		func(s db.Scan) (w model.AcceptedLoss, err error) {
			var at int64
			err = s(&w.Shard, &w.Epoch, &w.By, &w.Why, &w.Lost, &at)
			w.At = time.UnixMilli(at).UTC()
			return w, err
		}).All(ctx, l.tables)
}
