// Package sink is a whole sink of your own: each grant gives its user points in a SQLite database. Copy it and write
// your effect instead; it uses public packages only.
//
// One transaction stores the grant's campaign and packet together with the points, so a repeat changes nothing. The
// package's test runs sinktest, the suite that every sink must pass. docs/sinks.md explains both.
package sink

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/hongbao-project/hongbao"
)

const tables = `
	CREATE TABLE IF NOT EXISTS booked (
		campaign TEXT, packet INTEGER, user_id TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (campaign, packet));
	CREATE TABLE IF NOT EXISTS points (user_id TEXT PRIMARY KEY, n INTEGER NOT NULL)`

// Sink is a hongbao.Handler that books points. Its methods are safe for concurrent use: each shard has its own calls.
type Sink struct{ db *sql.DB }

// Open opens the database in a file, and creates the tables if they are missing.
func Open(ctx context.Context, file string) (*Sink, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=busy_timeout(200)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // SQLite has one writer
	if _, err = db.ExecContext(ctx, tables); err != nil {
		return nil, errors.Join(fmt.Errorf("create the tables in %s: %w", file, err), db.Close())
	}
	return &Sink{db}, nil
}

// Close closes the database. Call it after all calls of Handle have returned.
func (s *Sink) Close() error { return s.db.Close() }

// Handle books the points of all grants in one transaction. A nil result means that the transaction is committed.
//
// If the database fails, nothing is stored, or only the answer to COMMIT is lost. A repeat does no harm in both cases,
// so the error is an outage: the worker delivers all grants again, and none becomes a dead letter.
func (s *Sink) Handle(ctx context.Context, b hongbao.Batch) []error {
	errs, err := s.book(ctx, b.Grants)
	if err != nil {
		err = hongbao.Outagef(hongbao.ClassUnknown, "book the points of %d grants: %w", len(b.Grants), err)
		return slices.Repeat([]error{err}, len(b.Grants))
	}
	return errs
}

// book returns one result for each grant. After an error none of the results counts.
func (s *Sink) book(ctx context.Context, grants []hongbao.Grant) ([]error, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
	errs := make([]error, len(grants))
	for i := range grants {
		if errs[i], err = one(ctx, tx, &grants[i]); err != nil {
			return nil, err
		}
	}
	return errs, tx.Commit()
}

// one books the points of a grant. refused is the grant's own error, which ends as a dead letter. err concerns the
// whole transaction.
func one(ctx context.Context, tx *sql.Tx, g *hongbao.Grant) (refused, err error) {
	if g.Amount <= 0 {
		return hongbao.Errorf(hongbao.ClassPermanent, "grant %s has no amount: want a red packet", g.EventID()), nil
	}
	result, err := tx.ExecContext(ctx, "INSERT INTO booked VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", g.Campaign,
		g.Packet, g.User, g.Amount)
	if err != nil {
		return nil, err
	}
	added, err := result.RowsAffected()
	if err != nil {
		return nil, err
	}
	if added == 0 {
		return compare(ctx, tx, g)
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO points VALUES (?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n", g.User,
		g.Amount)
	return nil, err
}

// compare compares a grant with the row of its packet. A repeat of the grant is done. Another user's grant must not be
// reported as done: that user has a receipt and no points, so a person has to look.
func compare(ctx context.Context, tx *sql.Tx, g *hongbao.Grant) (refused, err error) {
	var user string
	var n hongbao.Amount
	err = tx.QueryRowContext(ctx, "SELECT user_id, n FROM booked WHERE campaign = ? AND packet = ?", g.Campaign,
		g.Packet).Scan(&user, &n)
	if err == nil && (user != g.User || n != g.Amount) {
		refused = hongbao.Errorf(hongbao.ClassConflict, "packet %d of campaign %s was booked for another user or amount "+
			"than that of grant %s", g.Packet, g.Campaign, g.EventID())
	}
	return refused, err
}
