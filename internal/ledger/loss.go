package ledger

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// AcceptedLoss is an operator's decision that a shard continues although Redis has lost some of its data.
type AcceptedLoss struct {
	Shard int `json:"shard"`
	// Epoch is the epoch in which the shard continues.
	Epoch int64 `json:"epoch"`
	stream.Decision
	// Lost describes the loss as far as it was known.
	Lost string `json:"lost"`
	// At is when the decision was recorded, by the clock of the process that recorded it.
	At time.Time `json:"at"`
}

// AcceptLoss moves a shard that has lost data to the epoch word.Epoch, like SetShard. In the same transaction it
// records the decision. It ignores word.At.
func (l *Ledger) AcceptLoss(ctx context.Context, from int64, token string, decision AcceptedLoss) error {
	if err := decision.Decision.Check(); err != nil {
		return hongbao.Errorf(hongbao.ClassPermanent, "accept the loss of shard %d: %w", decision.Shard, err)
	}
	move := shardMove{shard: decision.Shard, from: from, to: ShardState{Epoch: decision.Epoch, Token: token}}
	return move.named(l.write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		if _, err := move.run(ctx, t); err != nil {
			return nil, err
		}
		return []db.Stmt{{SQL: l.dialect.InsertAcceptedLoss,
			Args: []any{int64(decision.Shard), decision.Epoch, decision.By, decision.Why, decision.Lost, time.Now().UnixMilli()}}}, nil
	}))
}

// AcceptedLosses lists up to limit accepted losses, the newest first.
func (l *Ledger) AcceptedLosses(ctx context.Context, limit int) ([]AcceptedLoss, error) {
	return rowQuery[AcceptedLoss]{"list the losses that were accepted",
		`SELECT shard, epoch, accepted_by, why, lost, created_at FROM accepted_loss
			ORDER BY created_at DESC, shard, epoch DESC LIMIT $1`, []any{int64(limit)},
		func(s db.Scan) (w AcceptedLoss, err error) {
			var at int64
			err = s(&w.Shard, &w.Epoch, &w.By, &w.Why, &w.Lost, &at)
			w.At = time.UnixMilli(at).UTC()
			return w, err
		}}.all(ctx, l)
}
