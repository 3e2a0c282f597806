package sqlite

import (
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// classify classifies an error of SQLite. sent says that it is the result of a COMMIT.
func classify(err error, sent bool) error {
	class := hongbao.ClassTransient
	if sent {
		class = hongbao.ClassUnknown
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return hongbao.Outagef(class, "SQLite: %w", err)
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED: // if COMMIT meets a lock, nothing is committed
		return hongbao.Outagef(hongbao.ClassTransient, "SQLite, another process holds the file's lock: %w: %w", db.ErrAgain,
			err)
	case sqlite3.SQLITE_CONSTRAINT:
		return constraint(e.Code(), err)
	case sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
		return hongbao.Errorf(hongbao.ClassPermanent, "SQLite: %w", err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return hongbao.Errorf(hongbao.ClassBroken, "SQLite, the file is damaged: %w", err)
	}
	return hongbao.Outagef(class, "SQLite: %w", err) // full, I/O, read-only, interrupted
}

func constraint(code int, err error) error {
	switch code {
	case sqlite3.SQLITE_CONSTRAINT_CHECK:
		return hongbao.Errorf(hongbao.ClassPermanent, "SQLite: %w: %w", db.ErrOverdraw, err)
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE: // duplicate key
		return hongbao.Errorf(hongbao.ClassTransient, "SQLite: %w: %w", db.ErrAgain, err)
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		return hongbao.Errorf(hongbao.ClassBroken, "SQLite, a row was deleted by hand: %w", err)
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "SQLite: %w", err)
}
