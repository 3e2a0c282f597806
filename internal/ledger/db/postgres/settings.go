package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// settings are the settings that a PostgreSQL server reports.
type settings struct {
	version                                     int
	recovery                                    bool
	readOnly, commit, fsync, fullPage, standbys string
	// These timeouts are in milliseconds; 0 is none.
	lockWait, statement, idle int64
}

// minVersion is the oldest accepted server version, in the format of server_version_num.
const minVersion = 130_000

func (s *settings) problems() []*db.SettingError {
	var bad []*db.SettingError
	add := func(is bool, setting, value, fix string) {
		if is {
			bad = append(bad, &db.SettingError{Setting: setting, Value: value, Fix: fix})
		}
	}
	add(s.version < minVersion, "server_version_num", fmt.Sprint(s.version),
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
func (s *settings) forgotten(limits *db.Limits) (bad []*db.SettingError) {
	for _, t := range []struct {
		setting string
		has     int64
		want    time.Duration
	}{{"lock_timeout", s.lockWait, limits.LockTimeout}, {"statement_timeout", s.statement, limits.Timeout},
		{"idle_in_transaction_session_timeout", s.idle, limits.Timeout}} {
		if has := time.Duration(t.has) * time.Millisecond; has <= 0 || has > t.want {
			bad = append(bad, &db.SettingError{Setting: t.setting, Value: has.String(),
				Fix: fmt.Sprintf("Hongbao asks for it when it connects, but the server did not get it: behind a pooler run ALTER "+
					"ROLE ... SET %s = '%dms' for the ledger's user (docs/ledger.md)", t.setting, t.want.Milliseconds())})
		}
	}
	return bad
}

const ask = `SELECT current_setting('server_version_num')::integer, pg_is_in_recovery(),
	current_setting('default_transaction_read_only'), current_setting('synchronous_commit'),
	current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
	` + timeoutSetting + `'lock_timeout'), ` + timeoutSetting + `'statement_timeout'),
	` + timeoutSetting + `'idle_in_transaction_session_timeout')`

// timeoutSetting begins a call that returns a timeout in milliseconds. It is closed by the setting's name.
const timeoutSetting = `(SELECT CAST(setting AS bigint) FROM pg_settings WHERE name = `

func (s *settings) scan(row db.Scan) error {
	return row(&s.version, &s.recovery, &s.readOnly, &s.commit, &s.fsync, &s.fullPage, &s.standbys,
		&s.lockWait, &s.statement, &s.idle)
}

// gate checks every new connection, because a failover may lead to a standby, or to a server with unsafe settings.
func (d Database) gate(ctx context.Context, conn *pgx.Conn, limits *db.Limits) error {
	var s settings
	if err := s.scan(conn.QueryRow(ctx, ask).Scan); err != nil {
		return fmt.Errorf("ask for the server's settings: %w", err)
	}
	return db.Refuse(append(s.problems(), s.forgotten(limits)...), d.UnsafeAllow)
}
