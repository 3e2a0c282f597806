package subscriber

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/hongbao-project/hongbao/topic"
)

var _ positioned = (*sqlSink)(nil)

// pushAt implements positioned.
func (s *sqlSink) pushAt(ctx context.Context, events []topic.Event, of place, at position) (Report, error) {
	return s.push(ctx, events, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO hongbao_offset (name, consumer_group, topic, partition_id, next, last)
			VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (name, consumer_group, topic, partition_id)
			DO UPDATE SET next = excluded.next, last = excluded.last`,
			s.cfg.Name, of.group, of.topic, of.partition, at.next, at.last.String())
		if err != nil {
			return fmt.Errorf("store the offset of partition %d in hongbao_offset: %w", of.partition, err)
		}
		return nil
	})
}

// position implements positioned.
func (s *sqlSink) position(ctx context.Context, of place) (at position, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var last string
	err = s.cfg.DB.QueryRowContext(ctx, `SELECT next, last FROM hongbao_offset
		WHERE name = $1 AND consumer_group = $2 AND topic = $3 AND partition_id = $4`,
		s.cfg.Name, of.group, of.topic, of.partition).Scan(&at.next, &last)
	if errors.Is(err, sql.ErrNoRows) {
		return at, false, nil
	}
	if err != nil {
		return at, false, fmt.Errorf("read the offset of partition %d from hongbao_offset: %w", of.partition, err)
	}
	at.last = parseLandmark(last)
	return at, true, nil
}
