package books

import (
	"context"
	"errors"
	"fmt"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// TopicBases returns the bases of a topic, in the order of the partitions; none if no audit has stored them.
func (b Books) TopicBases(ctx context.Context, topic string) ([]model.TopicBase, error) {
	return tables.Ask("read where audits begin in topic "+topic, `SELECT part, first_offset, next_offset,
		last_offset, last_event FROM topic_base WHERE topic = $1 ORDER BY part`, []any{topic},
		func(s db.Scan) (b model.TopicBase, err error) {
			var part int64
			err = s(&part, &b.First, &b.Next, &b.Last, &b.Event)
			b.Part = int(part)
			return b, err
		}).All(ctx, b.tables)
}

var errNewerBases = errors.New("another audit has stored bases")

// SetTopicBases replaces the bases of a topic, unless they are not those in was any more: then another audit has stored
// newer ones, and SetTopicBases changes nothing. Call it only after the campaigns that the bases count as sealed are
// sealed.
func (b Books) SetTopicBases(ctx context.Context, topic string, was, bases []model.TopicBase) error {
	err := b.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		var others int64
		if err := t.Query(ctx, `SELECT COUNT(*) FROM topic_base WHERE topic = $1`, []any{topic},
			func(s db.Scan) error { return s(&others) }); err != nil {
			return nil, err
		}
		if others != int64(len(was)) {
			return nil, errNewerBases
		}
		for _, b := range was {
			var deleted int64
			err := t.Run(ctx, db.Stmt{SQL: `DELETE FROM topic_base WHERE topic = $1 AND part = $2 AND next_offset = $3
				AND last_event = $4`, Args: []any{topic, int64(b.Part), b.Next, b.Event}, Changed: &deleted})
			if err == nil && deleted == 0 {
				err = errNewerBases
			}
			if err != nil {
				return nil, err
			}
		}
		var stmts []db.Stmt
		for _, b := range bases {
			stmts = append(stmts, db.Stmt{SQL: `INSERT INTO topic_base (topic, part, first_offset, next_offset, last_offset,
				last_event) VALUES ($1, $2, $3, $4, $5, $6)`, Args: []any{topic, int64(b.Part), b.First, b.Next, b.Last, b.Event}})
		}
		return stmts, nil
	})
	if err != nil && !errors.Is(err, errNewerBases) {
		return fmt.Errorf("store where audits begin in topic %s: %w", topic, err)
	}
	return nil
}
