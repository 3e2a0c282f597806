package access

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// maxSessions bounds the live sessions of a key. A further session ends the oldest one.
const maxSessions = 50

// Live returns the API keys and the console sessions that are neither revoked nor expired, read in one snapshot.
func (a Access) Live(ctx context.Context) (access.Live, error) {
	return tables.Snapshot(ctx, a.tables, "read the live API keys and sessions", func(ctx context.Context,
		t db.Txn) (live access.Live, err error) {
		now := time.Now().UnixMilli()
		if live.Keys, err = liveKeys(now).In(ctx, t); err != nil {
			return live, err
		}
		live.Sessions, err = tables.Query[access.Session]{
			SQL:  `SELECT hash, key_id, secret_hash, created_at, expires_at FROM console_session WHERE expires_at > $1`,
			Args: []any{now}, Row: scanSession}.In(ctx, t)
		return live, err
	})
}

func scanSession(s db.Scan) (v access.Session, err error) {
	var begun, expires int64
	err = s(&v.Hash, &v.Key, &v.SecretHash, &begun, &expires)
	v.Begun, v.Expires = tables.At(begun), tables.At(expires)
	return v, err
}

// AddSession stores a session of the console. If the key has too many sessions, AddSession deletes the oldest ones. It
// also deletes all expired sessions.
func (a Access) AddSession(ctx context.Context, s access.Session) error {
	now := time.Now().UnixMilli()
	err := a.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		err := t.Run(ctx, db.Stmt{SQL: `DELETE FROM console_session WHERE expires_at <= $1`, Args: []any{now}})
		if err != nil {
			return nil, err
		}
		has, err := tables.Query[string]{SQL: `SELECT hash FROM console_session WHERE key_id = $1 ORDER BY created_at DESC, hash`,
			Args: []any{s.Key}, Row: tables.Text}.In(ctx, t)
		var stmts []db.Stmt
		for _, hash := range has[min(len(has), maxSessions-1):] {
			stmts = append(stmts, db.Stmt{SQL: `DELETE FROM console_session WHERE hash = $1`, Args: []any{hash}})
		}
		return append(stmts, db.Stmt{SQL: `INSERT INTO console_session (hash, key_id, secret_hash, created_at, expires_at)
			VALUES ($1, $2, $3, $4, $5)`,
			Args: []any{s.Hash, s.Key, s.SecretHash, tables.Milli(s.Begun), tables.Milli(s.Expires)}}), err
	})
	if err != nil {
		return fmt.Errorf("store a session of API key %s: %w", s.Key, err)
	}
	return nil
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
