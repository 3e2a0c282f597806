package ledger

import (
	"context"
	"time"
)

// Server is what a database says of itself.
type Server struct {
	Version string
	// Clock is the time that it is there; SQLite has this machine's.
	Clock time.Time
}

// Server asks the database for its version and its clock.
func (l *Ledger) Server(ctx context.Context) (s Server, err error) {
	var now int64
	err = l.read(ctx, func(ctx context.Context, t txn) error {
		return t.query(ctx, `SELECT `+l.dialect.version+`, `+l.dialect.now, nil,
			func(row scan) error { return row(&s.Version, &now) })
	})
	s.Clock = time.UnixMilli(now)
	return s, err
}
