package ledger

import (
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// postgresSettings are the settings that a PostgreSQL server reports.
type postgresSettings struct {
	version                                     int
	recovery                                    bool
	readOnly, commit, fsync, fullPage, standbys string
	// These timeouts are in milliseconds; 0 is none.
	lockWait, statement, idle int64
}

// minPostgres is the oldest accepted server version, in the format of server_version_num.
const minPostgres = 130_000

func (s *postgresSettings) problems() []*db.SettingError {
	var bad []*db.SettingError
	add := func(is bool, setting, value, fix string) {
		if is {
			bad = append(bad, &db.SettingError{Setting: setting, Value: value, Fix: fix})
		}
	}
	add(s.version < minPostgres, "server_version_num", fmt.Sprint(s.version),
		"upgrade the server to PostgreSQL 13 or newer")
	add(s.recovery, "pg_is_in_recovery", "true",
		"this is a standby; connect to the primary (target_session_attrs=read-write chooses it among several hosts)")
	add(s.readOnly != "off" && !s.recovery, "default_transaction_read_only", s.readOnly,
		"SET it to off for this user and database")
	add(s.commit == "off", "synchronous_commit", s.commit,
		"a crash would lose transactions that were confirmed; ALTER SYSTEM SET synchronous_commit = on, and check "+
			"that neither ALTER ROLE nor the DSN turns it off")
	add(s.commit == "local" && s.standbys != "", "synchronous_commit", s.commit,
		"a failover would lose transactions that were confirmed: they do not wait for synchronous_standby_names = "+
			s.standbys+"; set it to on, and check that neither ALTER ROLE nor the DSN sets it")
	add(s.fsync != "on", "fsync", s.fsync, "a power loss would destroy the database; ALTER SYSTEM SET fsync = on")
	add(s.fullPage != "on", "full_page_writes", s.fullPage,
		"a power loss could tear pages; ALTER SYSTEM SET full_page_writes = on")
	return bad
}

// forgotten returns the timeouts that the session does not have, although Hongbao asks for them when it connects.
// Without them a worker that is stopped in a transaction keeps its locks.
func (s *postgresSettings) forgotten(config *Config) (bad []*db.SettingError) {
	for _, t := range []struct {
		setting string
		has     int64
		want    time.Duration
	}{{"lock_timeout", s.lockWait, config.LockTimeout}, {"statement_timeout", s.statement, config.Timeout},
		{"idle_in_transaction_session_timeout", s.idle, config.Timeout}} {
		if has := time.Duration(t.has) * time.Millisecond; has <= 0 || has > t.want {
			bad = append(bad, &db.SettingError{Setting: t.setting, Value: has.String(),
				Fix: fmt.Sprintf("Hongbao asks for it when it connects, but the server did not get it: behind a pooler run ALTER "+
					"ROLE ... SET %s = '%dms' for the ledger's user (docs/ledger.md)", t.setting, t.want.Milliseconds())})
		}
	}
	return bad
}

// sqliteSettings are the settings that an SQLite connection reports.
type sqliteSettings struct {
	journal                           string
	synchronous, foreignKeys, timeout int64
}

func (s *sqliteSettings) problems() []*db.SettingError {
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
