package access

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

const (
	// maxSessions bounds the live sessions of a key. A further session ends the oldest one.
	maxSessions = 50
	// maxLinks bounds the live links to a campaign. A further link is refused, because people still use the others.
	maxLinks = 20
)

// Live returns the API keys and the console sessions that are neither revoked nor expired, read in one snapshot.
func (a Access) Live(ctx context.Context) (access.Live, error) {
	return tables.Snapshot(ctx, a.tables, "read the live API keys and sessions", func(ctx context.Context,
		t db.Txn) (live access.Live, err error) {
		now := time.Now().UnixMilli()
		if live.Keys, err = liveKeys(now).In(ctx, t); err != nil {
			return live, err
		}
		live.Sessions, err = tables.Query[access.Session]{
			SQL: `SELECT hash, key_id, secret_hash, created_at, expires_at, campaign, money, why FROM console_session
				WHERE expires_at > $1`, Args: []any{now}, Row: scanSession}.In(ctx, t)
		return live, err
	})
}

func scanSession(s db.Scan) (v access.Session, err error) {
	var begun, expires, money int64
	err = s(&v.Hash, &v.Key, &v.SecretHash, &begun, &expires, &v.Campaign, &money, &v.Why)
	v.Begun, v.Expires, v.Money = tables.At(begun), tables.At(expires), money == 1
	return v, err
}

// AddSession stores a session of the console. If the key has too many sessions, AddSession deletes the oldest ones. It
// refuses a link to a campaign that has too many. It also deletes all expired sessions.
func (a Access) AddSession(ctx context.Context, s access.Session) error {
	now := time.Now().UnixMilli()
	err := a.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		err := t.Run(ctx, db.Stmt{SQL: `DELETE FROM console_session WHERE expires_at <= $1`, Args: []any{now}})
		if err != nil {
			return nil, err
		}
		stmts, err := makeRoom(ctx, t, &s)
		money := int64(0)
		if s.Money {
			money = 1
		}
		return append(stmts, db.Stmt{SQL: `INSERT INTO console_session (hash, key_id, secret_hash, created_at, expires_at,
			campaign, money, why) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`, Args: []any{s.Hash, s.Key, s.SecretHash,
			tables.Milli(s.Begun), tables.Milli(s.Expires), s.Campaign, money, s.Why}}), err
	})
	if err != nil {
		return fmt.Errorf("store a session of API key %s: %w", s.Key, err)
	}
	return nil
}

// makeRoom returns the statements that delete the oldest sessions of a key which has too many. It refuses a link to a
// campaign that has too many.
func makeRoom(ctx context.Context, t db.Txn, s *access.Session) (stmts []db.Stmt, err error) {
	if s.Campaign != "" {
		links, err := tables.Query[string]{SQL: `SELECT hash FROM console_session WHERE campaign = $1`, Args: []any{s.Campaign},
			Row: tables.Text}.In(ctx, t)
		if err == nil && len(links) >= maxLinks {
			err = hongbao.Errorf(hongbao.ClassPermanent, "campaign %s has %d links already: end some first", s.Campaign, len(links))
		}
		return nil, err
	}
	has, err := tables.Query[string]{SQL: `SELECT hash FROM console_session WHERE key_id = $1 AND campaign = ''
		ORDER BY created_at DESC, hash`, Args: []any{s.Key}, Row: tables.Text}.In(ctx, t)
	for _, hash := range has[min(len(has), maxSessions-1):] {
		stmts = append(stmts, db.Stmt{SQL: `DELETE FROM console_session WHERE hash = $1`, Args: []any{hash}})
	}
	return stmts, err
}

// KeepSession moves the end of a session of the console. It changes no session that has ended, and never moves an end
// back.
func (a Access) KeepSession(ctx context.Context, hash string, expires time.Time) error {
	err := a.tables.Write(ctx, func(context.Context, db.Txn) ([]db.Stmt, error) {
		return []db.Stmt{{SQL: `UPDATE console_session SET expires_at = $2 WHERE hash = $1 AND expires_at < $2 AND expires_at > $3`,
			Args: []any{hash, tables.Milli(expires), time.Now().UnixMilli()}}}, nil
	})
	if err != nil {
		return fmt.Errorf("store the end of a session: %w", err)
	}
	return nil
}

// EndSession deletes a session of the console; a missing session is no error.
func (a Access) EndSession(ctx context.Context, hash string) error {
	err := a.tables.Write(ctx, func(context.Context, db.Txn) ([]db.Stmt, error) {
		return []db.Stmt{{SQL: `DELETE FROM console_session WHERE hash = $1`, Args: []any{hash}}}, nil
	})
	if err != nil {
		return fmt.Errorf("delete a session: %w", err)
	}
	return nil
}
