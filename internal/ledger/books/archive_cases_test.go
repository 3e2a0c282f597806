package books

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// sealedRain creates a campaign of 10 packets, grants 4, refunds and seals the campaign, and returns its archive.
func sealedRain(t *testing.T, f *fixture) tables.Archive {
	t.Helper()
	return sealed(t, f, "rain")
}

func sealed(t *testing.T, f *fixture, id string) tables.Archive {
	t.Helper()
	f.Create(t, id, 10)
	f.Settle(t, ledgertest.Grants(id, 1, 4)...)
	f.Refund(t, ledgertest.Close(id, 10, 4))
	require.NoError(t, f.books.Seal(t.Context(), id))
	return tables.Archive{Campaign: id, File: id + ".csv", SHA256: "5e", Grants: 4, Amount: ledgertest.FundedFor(4)}
}

func (f *fixture) balance(t *testing.T, account string) hongbao.Amount {
	t.Helper()
	b, _, err := f.Ledger.Balance(t.Context(), account)
	require.NoError(t, err)
	return b
}

func (f *fixture) rows(t *testing.T, campaign string) int64 {
	t.Helper()
	return ledgertest.Number(t, f.Tables(), `SELECT COUNT(*) FROM grants WHERE campaign = $1`, campaign)
}

func untold(int64) {}

func testArchive(t *testing.T, f *fixture) {
	a := sealedRain(t, f)
	f.Create(t, "snow", 10)
	f.Settle(t, ledgertest.Grants("snow", 5, 6)...)
	_, err := f.books.DeleteArchived(t.Context(), "rain", 2, untold)
	require.ErrorContains(t, err, "not archived")
	first := a
	first.SHA256 = "5d"
	for _, one := range []tables.Archive{first, a, a} {
		require.NoError(t, f.books.NoteArchiveCopy(t.Context(), one))
	}
	written, found, err := f.books.ArchiveCopy(t.Context(), "rain")
	require.NoError(t, err)
	require.True(t, found && written.Deleted.IsZero())
	require.Equal(t, []any{a.File, a.SHA256, a.Grants, a.Amount}, []any{written.File, written.SHA256, written.Grants, written.Amount})
	_, found, err = f.books.Archived(t.Context(), "rain")
	require.NoError(t, err)
	require.False(t, found, "the ledger still has the grants")
	list, err := f.Ledger.UserGrants(t.Context(), "rain", ledgertest.Grant("rain", 4).User)
	require.NoError(t, err)
	require.Len(t, list, 1)
	_, err = f.books.DeleteArchived(t.Context(), "rain", 2, untold)
	require.ErrorContains(t, err, "not archived")
	require.EqualValues(t, 4, f.rows(t, "rain"))
	for range 2 {
		require.NoError(t, f.books.NoteArchive(t.Context(), a))
	}
	other := a
	other.SHA256 = "5f"
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(f.books.NoteArchive(t.Context(), other)))
	_, found, err = f.books.ArchiveCopy(t.Context(), "rain")
	require.NoError(t, err)
	require.False(t, found)

	// The first call is cancelled in its second chunk; the next call continues there.
	dies, cancel := context.WithCancel(t.Context())
	inner, looks := f.Tables().Store, 0
	f.Tables().Store = &ledgertest.Watched{Store: inner, Query: func(_ context.Context, sql string, _ int) {
		if looks++; strings.Contains(sql, "ORDER BY packet LIMIT 1") && looks > 2 {
			cancel()
		}
	}}
	var told []int64
	deleted, err := f.books.DeleteArchived(dies, "rain", 2, func(n int64) { told = append(told, n) })
	f.Tables().Store = inner
	require.Error(t, err)
	require.Equal(t, []int64{2, 2}, append(told, deleted))
	require.EqualValues(t, 2, f.rows(t, "rain"))
	now, _, err := f.books.Archived(t.Context(), "rain")
	require.NoError(t, err)
	require.Zero(t, now.Deleted)
	_, err = f.Ledger.UserGrants(t.Context(), "rain", ledgertest.Grant("rain", 4).User)
	require.ErrorIs(t, err, tables.ErrArchived, "a reader must not get only a part of a user's grants")
	deleted, err = f.books.DeleteArchived(t.Context(), "rain", 2, untold)
	require.NoError(t, err)
	require.EqualValues(t, 2, deleted)
	require.Zero(t, f.rows(t, "rain"))
	now, _, err = f.books.Archived(t.Context(), "rain")
	require.NoError(t, err)
	require.NotZero(t, now.Deleted)
	deleted, err = f.books.DeleteArchived(t.Context(), "rain", 2, untold)
	require.NoError(t, err)
	require.Zero(t, deleted)

	f.Tamper(t, db.Stmt{SQL: `UPDATE refund SET close_seq = 1 WHERE campaign = 'rain'`})
	seq, err := f.Ledger.HighestSeq(t.Context(), 3)
	require.NoError(t, err)
	require.EqualValues(t, 6, seq, "the last seq of snow")
	f.Tamper(t, db.Stmt{SQL: `DELETE FROM grants WHERE campaign = 'snow'`})
	seq, err = f.Ledger.HighestSeq(t.Context(), 3)
	require.NoError(t, err)
	require.EqualValues(t, 4, seq, "the last seq of rain, although its rows are gone")
}

func testArchiveRefused(t *testing.T, f *fixture) {
	f.Create(t, "snow", 10)
	err := f.books.NoteArchive(t.Context(), tables.Archive{Campaign: "snow", File: "snow.csv", SHA256: "5e"})
	require.ErrorIs(t, err, ErrNotSealable)
	a := sealedRain(t, f)
	for _, wrong := range []tables.Archive{
		{Campaign: "rain", File: "f", SHA256: "5e", Grants: 3, Amount: a.Amount},
		{Campaign: "rain", File: "f", SHA256: "5e", Grants: 4, Amount: a.Amount - 1},
	} {
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(f.books.NoteArchive(t.Context(), wrong)))
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(f.books.NoteArchiveCopy(t.Context(), wrong)))
	}
	_, found, err := f.books.Archived(t.Context(), "rain")
	require.NoError(t, err)
	require.False(t, found)
	require.EqualValues(t, 4, f.rows(t, "rain"))
}

// Reads of an archived campaign return tables.ErrArchived. The audit still covers the campaign, and no grant is paid again.
func testArchiveStays(t *testing.T, f *fixture) {
	a := sealedRain(t, f)
	before := f.balance(t, tables.UserAccount(ledgertest.Grant("rain", 2).User, ledgertest.Currency))
	require.NoError(t, f.books.NoteArchive(t.Context(), a))
	_, err := f.books.DeleteArchived(t.Context(), "rain", 10_000, untold)
	require.NoError(t, err)

	_, err = f.Ledger.UserGrants(t.Context(), "rain", "u1")
	_, _, packet := f.Ledger.PacketGrant(t.Context(), "rain", 1)
	each := f.Ledger.EachGrant(t.Context(), "rain", func(hongbao.Grant) error { return errors.New("a grant is left") })
	for _, err := range []error{err, packet, each} {
		require.ErrorIs(t, err, tables.ErrArchived)
		require.ErrorContains(t, err, "rain.csv")
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	}
	totals, _, err := f.books.Totals(t.Context(), "rain")
	require.NoError(t, err)
	require.True(t, totals.Archived && totals.Sealed)
	require.EqualValues(t, 4, totals.Grants)
	list, err := f.books.CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)

	f.Settle(t, ledgertest.Grant("rain", 2))
	require.Len(t, f.Waiting(t), 1, "a redelivered event goes to quarantine")
	require.Equal(t, ledger.AfterRefund, f.Waiting(t)[0].Reason)
	_, err = f.Ledger.Decide(t.Context(), ledger.Resolution{ID: f.Waiting(t)[0].ID, Pay: true, Decision: stream.Decision{By: "ann", Why: "came late"}},
		f.Plan)
	require.ErrorIs(t, err, ledger.ErrNotPayable)
	require.ErrorContains(t, err, "rain.csv")
	require.Len(t, f.Waiting(t), 1)
	require.Equal(t, before, f.balance(t, tables.UserAccount(ledgertest.Grant("rain", 2).User, ledgertest.Currency)))
	require.Zero(t, f.rows(t, "rain"))

	// CheckConservation can name only the group of accounts that differs, because it can't read archived grants.
	f.Tamper(t, db.Stmt{SQL: `UPDATE account SET balance = balance + 1 WHERE id = $1`,
		Args: []any{tables.UserAccount(ledgertest.Grant("rain", 2).User, ledgertest.Currency)}})
	list, err = f.books.CheckConservation(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 3)
	last := list[len(list)-1]
	require.Contains(t, last.Where, tables.UserAccount(ledgertest.Grant("rain", 2).User, ledgertest.Currency))
	require.Equal(t, last.Want+1, last.Got)
	f.Tamper(t, db.Stmt{SQL: `DELETE FROM seal`})
	list, err = f.books.CheckConservation(t.Context())
	require.NoError(t, err)
	require.Equal(t, "sum of the grants = granted", list[0].What,
		"without the seal the grants of the archived campaign seem to be missing")
}

// Another process archives the campaign between two reads. The reader gets all rows or tables.ErrArchived, but never only some
// of the rows.
func testArchiveAmongReaders(t *testing.T, f *fixture) {
	inner := f.Tables().Store
	for id, read := range map[string]func(id string) (int, error){
		"each": func(id string) (n int, err error) {
			err = f.Ledger.EachGrant(t.Context(), id, func(hongbao.Grant) error {
				n++
				return nil
			})
			return n / 4, err
		},
		"user": func(id string) (int, error) {
			list, err := f.Ledger.UserGrants(t.Context(), id, ledgertest.Grant(id, 4).User)
			return len(list), err
		},
		"packet": func(id string) (int, error) {
			_, found, err := f.Ledger.PacketGrant(t.Context(), id, 4)
			if !found {
				return 0, err
			}
			return 1, err
		},
	} {
		a, asked := sealed(t, f, id), false
		other := newFixture(t, f.Database).books
		f.Tables().Store = &ledgertest.Watched{Store: inner, Query: func(context.Context, string, int) {
			if asked {
				return
			}
			asked = true
			require.NoError(t, other.NoteArchive(t.Context(), a))
			_, err := other.DeleteArchived(t.Context(), id, 10_000, untold)
			require.NoError(t, err)
		}}
		n, err := read(id)
		f.Tables().Store = inner
		require.True(t, asked)
		require.Zero(t, f.rows(t, id))
		if err != nil {
			require.ErrorIs(t, err, tables.ErrArchived)
		} else {
			require.Equal(t, 1, n, "%s: some rows are missing", id)
		}
	}
}
