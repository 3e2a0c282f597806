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

// OwedRow is a range of a shard's events that a group owes to its sink. While the sink is not removed, Last is
// stream.Forever, and Ended is zero.
type OwedRow struct {
	Sink  string
	Shard int
	stream.SeqRange
	Begun, Ended time.Time
}

// OwedRows returns what the groups of all sinks owe, in the order of sink, shard and seq.
func (l *Ledger) OwedRows(ctx context.Context) ([]OwedRow, error) {
	return owedRows("read what the sinks owe", `1 = 1`).All(ctx, l.tables)
}

// Owed returns what each group owes on a shard. A group that is not among them owes every event.
func (l *Ledger) Owed(ctx context.Context, shard int) (map[string]stream.Owed, error) {
	what := fmt.Sprintf("read what the sinks owe on shard %d", shard)
	rows, err := owedRows(what, `shard = $1`, int64(shard)).All(ctx, l.tables)
	out := map[string]stream.Owed{}
	for i := range rows {
		out[rows[i].Sink] = OwedBy(rows, rows[i].Sink, shard)
	}
	return out, err
}

// OwedBy returns what a group owes on a shard.
func OwedBy(rows []OwedRow, sink string, shard int) stream.Owed {
	var ranges []stream.SeqRange
	for i := range rows {
		if r := &rows[i]; r.Sink == sink && r.Shard == shard {
			ranges = append(ranges, r.SeqRange)
		}
	}
	return stream.NewOwed(ranges)
}

func owedRows(what, where string, args ...any) tables.Query[OwedRow] {
	return tables.Ask(what, `SELECT sink, shard, first_seq, last_seq, begun_at, ended_at FROM owed WHERE `+where+
		` ORDER BY sink, shard, last_seq`, args, func(s db.Scan) (r OwedRow, err error) {
		var shard, begun, ended int64
		err = s(&r.Sink, &shard, &r.First, &r.Last, &begun, &ended)
		r.Shard, r.Begun, r.Ended = int(shard), tables.At(begun), tables.At(ended)
		return r, err
	})
}

// Owe records that a group owes all events of a shard from the seq first on, or from the end of an earlier range if that
// is later. It changes nothing if the group owes the newest events already: so a group that Redis has lost still owes
// what it owed.
func (l *Ledger) Owe(ctx context.Context, sink string, shard int, first int64) error {
	what := fmt.Sprintf("record what sink %s owes on shard %d", sink, shard)
	if first < 1 {
		return hongbao.Errorf(hongbao.ClassPermanent, "%s: seq %d is below 1", what, first)
	}
	args := []any{sink, int64(shard), int64(stream.Forever)}
	err := l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		_, found, err := tables.Query[int64]{SQL: `SELECT first_seq FROM owed
			WHERE sink = $1 AND shard = $2 AND last_seq = $3` + l.tables.Dialect.Share, Args: args,
			Row: tables.Number}.First(ctx, t) // it waits for an EndOwing that is under way
		if err != nil || found {
			return nil, err
		}
		err = t.Run(ctx, db.Stmt{SQL: l.tables.Dialect.InsertOwed,
			Args: []any{sink, int64(shard), first, int64(stream.Forever), time.Now().UnixMilli()}})
		if err != nil {
			return nil, err
		}
		last, _, err := tables.Query[int64]{SQL: `SELECT COALESCE(MAX(last_seq), 0) FROM owed
			WHERE sink = $1 AND shard = $2 AND last_seq < $3`, Args: args, Row: tables.Number}.First(ctx, t)
		return []db.Stmt{{SQL: `UPDATE owed SET first_seq = $4
			WHERE sink = $1 AND shard = $2 AND last_seq = $3 AND first_seq < $4`, Args: append(args, last+1)}}, err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

var errGroupIsBack = errors.New("the group exists again")

// EndOwing records that a group whose sink was removed owes no event of the shard after the seq last. gone reports
// whether Redis still lacks the group; if it has the group again, EndOwing changes nothing. Owe is called after the
// group was created. It waits for this transaction, so the group never exists without a record.
func (l *Ledger) EndOwing(ctx context.Context, sink string, shard int, last int64,
	gone func(context.Context) (bool, error)) error {
	err := l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		args := []any{sink, int64(shard), int64(stream.Forever), last}
		err := t.Run(ctx, db.Stmt{SQL: `DELETE FROM owed WHERE sink = $1 AND shard = $2 AND last_seq = $3 AND first_seq > $4`,
			Args: args}, // the group owed nothing yet
			db.Stmt{SQL: `UPDATE owed SET last_seq = $4, ended_at = $5 WHERE sink = $1 AND shard = $2 AND last_seq = $3`,
				Args: append(args, time.Now().UnixMilli())})
		if err != nil {
			return nil, err
		}
		still, err := gone(ctx)
		if err == nil && !still {
			err = errGroupIsBack
		}
		return nil, err
	})
	if err != nil && !errors.Is(err, errGroupIsBack) {
		return fmt.Errorf("record that sink %s was removed from shard %d: %w", sink, shard, err)
	}
	return nil
}
