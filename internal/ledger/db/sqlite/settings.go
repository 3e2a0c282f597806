package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// settings are the settings that an SQLite connection reports.
type settings struct {
	journal                           string
	synchronous, foreignKeys, timeout int64
}

func (s *settings) problems() []*db.SettingError {
	var bad []*db.SettingError
	if s.journal != "wal" {
		bad = append(bad, &db.SettingError{Setting: "journal_mode", Value: s.journal,
			Fix: "WAL could not be set; put the file on a local disk that supports shared memory, not in memory or on a " +
				"network share"})
	}
	if s.synchronous < 2 {
		bad = append(bad, &db.SettingError{Setting: "synchronous", Value: fmt.Sprint(s.synchronous),
			Fix: "a power loss would lose transactions that were confirmed; PRAGMA synchronous must be 2 (FULL)"})
	}
	if s.foreignKeys != 1 {
		bad = append(bad, &db.SettingError{Setting: "foreign_keys", Value: fmt.Sprint(s.foreignKeys),
			Fix: "PRAGMA foreign_keys must be 1; this build of SQLite lacks them"})
	}
	if s.timeout <= 0 {
		bad = append(bad, &db.SettingError{Setting: "busy_timeout", Value: fmt.Sprint(s.timeout),
			Fix: "PRAGMA busy_timeout must be above 0, or writers fail instead of waiting"})
	}
	return bad
}

func readPragmas(ctx context.Context, conn *sql.Conn, s *settings) error {
	for _, p := range []struct {
		name string
		dest any
	}{
		{"journal_mode", &s.journal}, {"synchronous", &s.synchronous},
		{"foreign_keys", &s.foreignKeys}, {"busy_timeout", &s.timeout},
	} {
		if err := conn.QueryRowContext(ctx, "PRAGMA "+p.name).Scan(p.dest); err != nil {
			return fmt.Errorf("read PRAGMA %s: %w", p.name, err)
		}
	}
	return nil
}
