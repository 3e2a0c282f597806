package access

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// maxLiveKeys bounds the keys that are neither revoked nor expired, because each program that checks keys has all of
// them in memory.
const maxLiveKeys = 10_000

const keyColumns = `id, role, campaigns, hash, old_hash, old_until, created_at, expires_at, revoked_at, note,
	sponsors, largest_total, client`

func scanKey(s db.Scan) (k access.Key, err error) {
	var role, campaigns, sponsors string
	var oldUntil, created, expires, revoked int64
	err = s(&k.ID, &role, &campaigns, &k.Hash, &k.OldHash, &oldUntil, &created, &expires, &revoked, &k.Note, &sponsors,
		&k.LargestTotal, &k.Client)
	k.Role, k.Campaigns = access.Role(role), strings.Fields(campaigns)
	if sponsors != "" {
		k.Sponsors = strings.Fields(sponsors)
	}
	k.OldUntil, k.Created = tables.At(oldUntil), tables.At(created)
	k.Expires, k.Revoked = tables.At(expires), tables.At(revoked)
	return k, err
}

// AddKey stores a new API key, and returns the stored key.
func (a Access) AddKey(ctx context.Context, k access.Key) (access.Key, error) {
	now := time.Now()
	if err := k.Check(now); err != nil {
		return access.Key{}, err
	}
	k.Created = tables.At(now.UnixMilli())
	err := a.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		live, _, err := tables.Query[int64]{SQL: `SELECT COUNT(*) FROM api_key WHERE revoked_at = 0 AND
			(expires_at = 0 OR expires_at > $1)`, Args: []any{now.UnixMilli()}, Row: tables.Number}.First(ctx, t)
		if err == nil && live >= maxLiveKeys {
			err = hongbao.Errorf(hongbao.ClassPermanent, "%d keys are live already: revoke some with `hongbao key revoke`", live)
		}
		return []db.Stmt{{SQL: `INSERT INTO api_key (id, role, campaigns, hash, created_at, expires_at, note, sponsors,
			largest_total, client) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, Args: []any{k.ID, string(k.Role),
			strings.Join(k.Campaigns, " "), k.Hash, tables.Milli(k.Created), tables.Milli(k.Expires), k.Note,
			strings.Join(k.Sponsors, " "), int64(k.LargestTotal), k.Client}}}, err
	})
	if err != nil {
		return access.Key{}, fmt.Errorf("store API key %s: %w", k.ID, err)
	}
	return k, nil
}

// LiveKeys returns the API keys that are neither revoked nor expired, in the order of their creation.
func (a Access) LiveKeys(ctx context.Context) ([]access.Key, error) {
	return liveKeys(time.Now().UnixMilli()).All(ctx, a.tables)
}

func liveKeys(now int64) tables.Query[access.Key] {
	return tables.Ask("read the live API keys", `SELECT `+keyColumns+` FROM api_key WHERE revoked_at = 0 AND
		(expires_at = 0 OR expires_at > $1) ORDER BY created_at, id`, []any{now}, scanKey)
}

// Keys returns all API keys, also revoked and expired ones, in the order of their creation.
func (a Access) Keys(ctx context.Context) ([]access.Key, error) {
	return tables.Ask("read the API keys",
		`SELECT `+keyColumns+` FROM api_key ORDER BY created_at, id`, nil, scanKey).All(ctx, a.tables)
}

// RevokeKey ends an API key permanently. A repeated call changes nothing.
func (a Access) RevokeKey(ctx context.Context, id string) (access.Key, error) {
	return a.changeKey(ctx, "revoke", id, func(k *access.Key, now time.Time) error {
		if k.Revoked.IsZero() {
			k.Revoked = now
		}
		return nil
	})
}

// RotateKey sets a new secret for an API key. While an earlier secret is still valid, it refuses a rotation with an
// overlap: the caller may not have received the newest secret, and programs may still use the earlier one. Without an
// overlap all older secrets become invalid at once.
func (a Access) RotateKey(ctx context.Context, id string, to access.Rotation) (access.Key, error) {
	return a.changeKey(ctx, "rotate", id, func(k *access.Key, now time.Time) error {
		if !k.Revoked.IsZero() || !k.Expires.IsZero() && !k.Expires.After(now) {
			return hongbao.Errorf(hongbao.ClassPermanent, "it is revoked or expired: make a new one with `hongbao key create`")
		}
		if k.Hash != to.Hash && k.OldUntil.After(now) && to.Overlap > 0 {
			return hongbao.Errorf(hongbao.ClassPermanent, "it has a new secret already, and the secret before is valid until %s; "+
				"another rotation would end that one at once. If you do not have the new secret, make another key with `hongbao "+
				"key create`, and revoke this one when no program uses it; or end all older secrets now with --overlap 0s",
				k.OldUntil.Format(time.RFC3339))
		}
		if k.Hash != to.Hash { // equal in a retry after the response to COMMIT was lost
			k.OldHash, k.OldUntil, k.Hash = k.Hash, now.Add(to.Overlap), to.Hash
		}
		if to.Expires == nil {
			return nil
		}
		k.Expires = *to.Expires
		return k.Check(now)
	})
}

// changeKey reads a key with its row locked, calls change and stores the result.
func (a Access) changeKey(ctx context.Context, what, id string, change func(*access.Key, time.Time) error) (k access.Key,
	err error) {
	err = a.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		// An update without a change locks the row on every database.
		if err := t.Run(ctx, db.Stmt{SQL: `UPDATE api_key SET id = id WHERE id = $1`, Args: []any{id}}); err != nil {
			return nil, err
		}
		var found bool
		k, found, err = tables.Query[access.Key]{SQL: `SELECT ` + keyColumns + ` FROM api_key WHERE id = $1`, Args: []any{id},
			Row: scanKey}.First(ctx, t)
		if err == nil && !found {
			err = hongbao.Errorf(hongbao.ClassPermanent, "there is no such key; `hongbao key list` lists the keys")
		}
		if err == nil {
			err = change(&k, tables.At(time.Now().UnixMilli()))
		}
		return []db.Stmt{{SQL: `UPDATE api_key SET hash = $2, old_hash = $3, old_until = $4, revoked_at = $5, expires_at = $6
			WHERE id = $1`, Args: []any{id, k.Hash, k.OldHash, tables.Milli(k.OldUntil), tables.Milli(k.Revoked),
			tables.Milli(k.Expires)}}}, err
	})
	if err != nil {
		return access.Key{}, fmt.Errorf("%s API key %.40s: %w", what, id, err)
	}
	return k, nil
}
