package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// Fence ends the older epochs of a shard. A grant or a close of an older epoch with a seq above the floor no longer
// counts. The ledger does not settle it, lets no remote credit it, and bases no refund on it.
type Fence struct {
	Shard int
	// From is the epoch that the ledger has; Epoch is the epoch in which the shard continues.
	From, Epoch int64
	// Floor is the last seq that Redis has.
	Floor int64
	// Token names the Redis server for which the shard continues.
	Token string
}

// FenceRow is a fence as the ledger stores it.
type FenceRow struct {
	Shard        int
	Epoch, Floor int64
	Token        string
	Fenced       time.Time
	// Opened and Note are set by NoteOpening; Opened is zero before.
	Opened time.Time
	Note   string
}

// Fence moves the shard to the new epoch and stores the fence, in one transaction. Once it has returned, all grants
// that the ledger accepted before are visible, and events that the fence leaves out can't be added any more. A repeated
// call changes nothing. A Conflict says that another process has opened or fenced the shard.
func (l *Ledger) Fence(ctx context.Context, f Fence) error {
	if f.Shard < 0 || f.Epoch <= f.From || f.Floor < 0 {
		return hongbao.Errorf(hongbao.ClassPermanent, "fence shard %d: epoch %d after %d and floor %d are not a valid fence",
			f.Shard, f.Epoch, f.From, f.Floor)
	}
	move := shardMove{shard: f.Shard, from: f.From, to: ShardState{Epoch: f.Epoch, Token: f.Token}}
	return move.named(l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		moved, err := move.run(ctx, t)
		if err != nil {
			return nil, err
		}
		if !moved {
			return nil, f.isThere(ctx, t)
		}
		return []db.Stmt{{SQL: `INSERT INTO fence (shard, epoch, floor, token, fenced_at, note)
			VALUES ($1, $2, $3, $4, $5, '')`,
			Args: []any{int64(f.Shard), f.Epoch, f.Floor, f.Token, time.Now().UnixMilli()}}}, nil
	}))
}

// isThere returns nil if the ledger has this fence. It refuses a shard that reached the epoch in another way, because a
// settler may have read the epoch without the fence.
func (f *Fence) isThere(ctx context.Context, t db.Txn) error {
	floor, found, err := tables.Query[int64]{SQL: `SELECT floor FROM fence WHERE shard = $1 AND epoch = $2`,
		Args: []any{int64(f.Shard), f.Epoch}, Row: tables.Number}.First(ctx, t)
	switch {
	case err != nil:
		return err
	case !found:
		return hongbao.Errorf(hongbao.ClassConflict, "another process has opened it in this epoch, without a fence")
	case floor != f.Floor:
		return hongbao.Errorf(hongbao.ClassConflict, "another process has fenced it above seq %d, not %d", floor, f.Floor)
	}
	return nil
}

// Fences lists the fences of a shard, the newest first. There is one for each opening.
func (l *Ledger) Fences(ctx context.Context, shard int) ([]FenceRow, error) {
	return tables.Ask(fmt.Sprintf("list the fences of shard %d", shard),
		`SELECT epoch, floor, token, fenced_at, COALESCE(opened_at, 0), note FROM fence WHERE shard = $1
			ORDER BY epoch DESC`, []any{int64(shard)},
		func(s db.Scan) (FenceRow, error) {
			r := FenceRow{Shard: shard}
			var fenced, opened int64
			err := s(&r.Epoch, &r.Floor, &r.Token, &fenced, &opened, &r.Note)
			r.Fenced, r.Opened = tables.At(fenced), tables.At(opened)
			return r, err
		}).All(ctx, l.tables)
}

// NoteOpening records that the shard was opened in the epoch of a fence, and what the opening did. A repeated call
// replaces the time and the note.
func (l *Ledger) NoteOpening(ctx context.Context, shard int, epoch int64, note string) error {
	err := l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		_, found, err := tables.Query[int64]{SQL: `SELECT floor FROM fence WHERE shard = $1 AND epoch = $2`,
			Args: []any{int64(shard), epoch}, Row: tables.Number}.First(ctx, t)
		if err == nil && !found {
			err = hongbao.Errorf(hongbao.ClassPermanent, "the ledger has no fence of that epoch")
		}
		return []db.Stmt{{SQL: `UPDATE fence SET opened_at = $3, note = $4 WHERE shard = $1 AND epoch = $2`,
			Args: []any{int64(shard), epoch, time.Now().UnixMilli(), note}}}, err
	})
	if err != nil {
		return fmt.Errorf("note that shard %d is open in epoch %d: %w", shard, epoch, err)
	}
	return nil
}

// Withholding returns the funded campaigns, if a restore has noted that it withheld packets. Otherwise it returns none,
// without a scan of the campaigns.
func (l *Ledger) Withholding(ctx context.Context) ([]string, error) {
	return tables.Ask("list the campaigns that may have withheld packets", `SELECT id FROM campaign
		WHERE state = 'funded' AND EXISTS (SELECT 1 FROM fence WHERE note LIKE $1) ORDER BY id`,
		[]any{`%"silent":true%`}, tables.Text).All(ctx, l.tables)
}
