package books

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// Archived returns the archive of a campaign; false if the campaign has none.
func (b Books) Archived(ctx context.Context, campaign string) (tables.Archive, bool, error) {
	return tables.ArchiveOf(campaign).One(ctx, b.tables)
}

// ArchiveCopy returns the file that has the grants of a sealed campaign while the ledger has them, too; false if none
// is recorded.
func (b Books) ArchiveCopy(ctx context.Context, campaign string) (tables.Archive, bool, error) {
	return tables.Ask("ask whether a file has the grants of campaign "+campaign,
		`SELECT campaign, file, sha256, grants, amount, written_at, 0 FROM archive_copy WHERE campaign = $1`, []any{campaign},
		tables.ScanArchive).One(ctx, b.tables)
}

// NoteArchiveCopy records a verified file with the grants of a sealed campaign. It replaces an earlier file. It refuses
// what NoteArchive refuses. Once NoteArchive has recorded an archive, it changes nothing.
func (b Books) NoteArchiveCopy(ctx context.Context, a tables.Archive) error {
	err := b.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		noted, err := checkArchive(ctx, t, &a)
		if err != nil || noted {
			return nil, err
		}
		return []db.Stmt{{SQL: b.tables.Dialect.SetArchiveCopy, Args: []any{a.Campaign, a.File, a.SHA256, a.Grants,
			int64(a.Amount), time.Now().UnixMilli()}}}, nil
	})
	if err != nil {
		return fmt.Errorf("note the file with the grants of campaign %s: %w", a.Campaign, err)
	}
	return nil
}

// NoteArchive records the file that contains the grants of a sealed campaign. From then on DeleteArchived may delete
// the grants, so the caller must have verified the file before. A repeated call with the same file changes nothing.
// NoteArchive refuses a campaign that is not sealed (ErrNotSealable) and a file whose grants differ from the seal. If a
// different file is already recorded, it returns a Conflict.
func (b Books) NoteArchive(ctx context.Context, a tables.Archive) error {
	err := b.finishSeal(ctx, a.Campaign)
	var seqs map[int][]stream.SeqRange
	if err == nil {
		seqs, err = b.SealedSeqs(ctx, a.Campaign)
	}
	if err == nil {
		err = b.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
			noted, err := checkArchive(ctx, t, &a)
			if err != nil || noted {
				return nil, err
			}
			stmts := []db.Stmt{{SQL: `DELETE FROM archive_copy WHERE campaign = $1`, Args: []any{a.Campaign}},
				{SQL: `INSERT INTO archive (` + tables.ArchiveColumns + `) VALUES ($1, $2, $3, $4, $5, $6, 0)`,
					Args: []any{a.Campaign, a.File, a.SHA256, a.Grants, int64(a.Amount), time.Now().UnixMilli()}}}
			for shard, runs := range seqs {
				stmts = append(stmts, db.Stmt{SQL: `INSERT INTO archive_shard (campaign, shard, last_seq) VALUES ($1, $2, $3)`,
					Args: []any{a.Campaign, int64(shard), runs[len(runs)-1].Last}})
			}
			return stmts, nil
		})
	}
	if err != nil {
		return fmt.Errorf("note the archive of campaign %s: %w", a.Campaign, err)
	}
	return nil
}

// checkArchive reports whether the archive is already recorded. It refuses an archive whose number or sum of grants
// differs from the seal.
func checkArchive(ctx context.Context, t db.Txn, a *tables.Archive) (noted bool, err error) {
	has, noted, err := tables.ArchiveOf(a.Campaign).First(ctx, t)
	if err != nil {
		return false, err
	}
	if noted {
		if has.File != a.File || has.SHA256 != a.SHA256 {
			err = hongbao.Errorf(hongbao.ClassConflict, "the file %s with SHA-256 %s is noted already", has.File, has.SHA256)
		}
		return true, err
	}
	sealed := false
	var grants, amount int64
	err = t.Query(ctx, `SELECT grants, amount FROM seal WHERE campaign = $1`, []any{a.Campaign}, func(s db.Scan) error {
		sealed = true
		return s(&grants, &amount)
	})
	switch {
	case err != nil:
		return false, err
	case !sealed:
		return false, hongbao.Errorf(hongbao.ClassPermanent, "%w: it has no seal; `hongbao audit --seal` creates one once "+
			"it is refunded and has left Redis", ErrNotSealable)
	case a.Grants != grants || int64(a.Amount) != amount:
		return false, hongbao.Errorf(hongbao.ClassBroken, "the file has %d grants that sum to %d, the seal has %d that "+
			"sum to %d: nothing is recorded or deleted; run `hongbao audit`", a.Grants, a.Amount, grants, amount)
	}
	return false, nil
}

// DeleteArchived deletes the grants of an archived campaign, a chunk of packets in each transaction, and returns how
// many it deleted. A repeat continues where the last call ended. Campaign, seal, transfers and balances stay. After each
// chunk it calls gone with the number of grants that are deleted, those of earlier calls not included.
func (b Books) DeleteArchived(ctx context.Context, campaign string, chunk int64, gone func(int64)) (deleted int64, err error) {
	a, found, err := b.Archived(ctx, campaign)
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.ClassPermanent, "delete the grants of campaign %s: it is not archived", campaign)
	}
	if err != nil || !a.Deleted.IsZero() {
		return 0, err
	}
	for {
		n, err := b.deleteChunk(ctx, campaign, chunk)
		if deleted += n; err != nil {
			return deleted, fmt.Errorf("delete the grants of archived campaign %s, %d so far: %w", campaign, deleted, err)
		}
		if n == 0 {
			return deleted, nil
		}
		gone(deleted)
	}
}

// deleteChunk deletes the grants of the next chunk of packet numbers, beginning with the lowest one left. If no grant
// is left, it records the time in the archive.
func (b Books) deleteChunk(ctx context.Context, campaign string, chunk int64) (deleted int64, err error) {
	err = b.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		lowest, found, err := tables.Query[int64]{SQL: `SELECT packet FROM grants WHERE campaign = $1 ORDER BY packet LIMIT 1`,
			Args: []any{campaign}, Row: tables.Number}.First(ctx, t)
		if err != nil {
			return nil, err
		}
		if !found {
			deleted = 0
			return []db.Stmt{{SQL: `UPDATE archive SET deleted_at = $2 WHERE campaign = $1 AND deleted_at = 0`,
				Args: []any{campaign, time.Now().UnixMilli()}}}, nil
		}
		// EXISTS guards against data loss: without the archive's row the statement deletes nothing.
		return []db.Stmt{{SQL: `DELETE FROM grants WHERE campaign = $1 AND packet >= $2 AND packet < $3
			AND EXISTS (SELECT 1 FROM archive WHERE archive.campaign = $1)`, Args: []any{campaign, lowest, lowest + chunk},
			Changed: &deleted}}, nil
	})
	return deleted, err
}
