package subscriber

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/topic"
)

// Earlier builds stored the shards and seqs of the events that had their effect in the table hongbao_position. This
// build only reads the rows, until an operator deletes them.

// position has the events of a shard that an earlier build has handled: all up to the floor, and runs of seqs above it.
type position struct {
	floor int64
	runs  []stream.SeqRange // ascending
}

func (p *position) has(seq int64) bool {
	i := sort.Search(len(p.runs), func(i int) bool { return p.runs[i].Last >= seq })
	return seq <= p.floor || i < len(p.runs) && p.runs[i].First <= seq
}

type positions map[shardOf]position

func (p positions) has(e *topic.Event) bool {
	of := p[shardOf{source: e.Source, shard: e.Grant.Shard}]
	return of.has(e.Grant.Seq)
}

// hasPositions reports whether an earlier build has rows of this Name. Only earlier builds write such rows.
func (s *sqlSink) hasPositions(ctx context.Context) (bool, error) {
	find := `SELECT count(*) FROM sqlite_master WHERE name = 'hongbao_position'`
	if s.cfg.Dialect == postgreSQL {
		find = `SELECT count(to_regclass('hongbao_position'))`
	}
	var n int
	err := s.cfg.DB.QueryRowContext(ctx, find).Scan(&n)
	if err == nil && n > 0 {
		err = s.cfg.DB.QueryRowContext(ctx, `SELECT count(*) FROM hongbao_position WHERE name = $1`, s.cfg.Name).Scan(&n)
	}
	if err != nil {
		return false, fmt.Errorf("look for rows of an earlier build in hongbao_position: %w", err)
	}
	return n > 0, nil
}

// readPositions reads the rows of an earlier build. It does so in each transaction, because a process of the earlier
// build may have ended after NewSQL.
func (s *sqlSink) readPositions(ctx context.Context, tx *sql.Tx) (positions, error) {
	if !s.positions {
		return nil, nil
	}
	rows, err := tx.QueryContext(ctx, `SELECT source, shard, seen FROM hongbao_position WHERE name = $1`, s.cfg.Name)
	if err != nil {
		return nil, down("read hongbao_position", err)
	}
	defer func() { _ = rows.Close() }() // rows.Err has the error
	all := positions{}
	for rows.Next() {
		var of shardOf
		var seen []byte
		if err := rows.Scan(&of.source, &of.shard, &seen); err != nil {
			return nil, down("read hongbao_position", err)
		}
		if all[of], err = parsePosition(seen); err != nil {
			return nil, hongbao.Errorf(hongbao.ClassBroken, "hongbao_position of %q, %q, shard %d can't be read: %w; restore "+
				"the row from a backup", s.cfg.Name, of.source, of.shard, err)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, down("read hongbao_position", err)
	}
	return all, nil
}

// parsePosition parses unsigned varints: the version 1, the floor, the number of runs, and two numbers for each run: the
// length of the hole before it and the length of the run, both minus one. Empty bytes give the empty position.
func parsePosition(b []byte) (p position, err error) {
	if len(b) == 0 {
		return position{}, nil
	}
	next := func(most int64) int64 {
		n, size := binary.Uvarint(b)
		if size <= 0 || most < 0 || n > uint64(most) {
			err = errors.New("the bytes end too early, or a number is out of bounds")
			return 0
		}
		b = b[size:]
		return int64(n)
	}
	const most = int64(hongbao.MaxAmount)
	version := next(most)
	p.floor = next(most)
	last := p.floor
	for n := next(most); n > 0 && err == nil; n-- {
		first := last + 1 + next(most-last-1)
		last = first + next(most-first)
		p.runs = append(p.runs, stream.SeqRange{First: first, Last: last})
	}
	switch {
	case err != nil:
		return position{}, err
	case version != 1:
		return position{}, fmt.Errorf("its version is %d, want 1", version)
	case len(b) > 0:
		return position{}, fmt.Errorf("%d bytes follow its end", len(b))
	}
	return p, nil
}
