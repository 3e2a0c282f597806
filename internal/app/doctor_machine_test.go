package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/configs/configstest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// span is the validity of a certificate, in days from now.
type span struct{ from, until int }

// certificates writes a file with a certificate for each span. The common key is beside it, in key.pem.
func certificates(t *testing.T, spans ...span) (path string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	var text []byte
	for _, s := range spans {
		template := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().AddDate(0, 0, s.from),
			NotAfter: time.Now().AddDate(0, 0, s.until)}
		der, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
		require.NoError(t, err)
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	path = filepath.Join(t.TempDir(), "cert.pem")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	key, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "key.pem"), key, 0o600))
	return path
}

// A chain is judged by its certificate that expires first. A list of authorities is judged by the last one that
// expires.
func TestCertificates(t *testing.T) {
	t.Parallel()
	good, soon, ended, later := span{-1, 90}, span{-1, 10}, span{-9, -1}, span{1, 90}
	for name, c := range map[string]struct {
		spans              []span
		chain, authorities string
	}{
		"good":           {[]span{good}, LevelOK, LevelOK},
		"soon":           {[]span{soon}, LevelWarning, LevelWarning},
		"ended":          {[]span{ended}, LevelProblem, LevelProblem},
		"later":          {[]span{later}, LevelProblem, LevelProblem},
		"one has ended":  {[]span{good, ended, good}, LevelProblem, LevelOK},
		"one ends soon":  {[]span{soon, good}, LevelWarning, LevelOK},
		"one comes":      {[]span{good, later}, LevelProblem, LevelOK},
		"all have ended": {[]span{ended, ended}, LevelProblem, LevelProblem},
	} {
		path := certificates(t, c.spans...)
		for authority, level := range map[bool]string{false: c.chain, true: c.authorities} {
			p := &part{}
			p.certificates("serve.tls_cert", path, authority)
			require.Len(t, p.list, 1)
			require.Equal(t, level, p.list[0].Level, "%s, authority %v: %s", name, authority, p.list[0].About)
			require.Contains(t, p.list[0].About, "serve.tls_cert")
		}
	}
	for path, about := range map[string]string{filepath.Join(t.TempDir(), "none"): "no such file",
		certificates(t): "contains no certificate"} {
		p := &part{}
		p.certificates("serve.tls_cert", path, false)
		require.True(t, p.finds(LevelProblem, about), "%v", p.list)
	}
}

// finds reports whether there is a finding of the level that contains all the words.
func (p *part) finds(level string, words ...string) bool {
	return slices.ContainsFunc(p.list, func(f Finding) bool {
		return f.Level == level && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(f.About, w) })
	})
}

// Doctor checks every certificate file that the configuration names, including those in a PostgreSQL DSN.
func TestCertificatesOfTheConfiguration(t *testing.T) {
	t.Parallel()
	ended, soon := certificates(t, span{-9, -1}), certificates(t, span{-1, 10})
	a := &App{Config: configstest.Config(t, "HONGBAO_DEPLOYMENT_ID=test", "HONGBAO_SERVE_TLS_CERT="+ended,
		"HONGBAO_SERVE_TLS_KEY="+filepath.Join(filepath.Dir(ended), "key.pem"),
		"HONGBAO_CONTROL_TLS_CLIENT_CA="+soon, "HONGBAO_LEDGER_DRIVER=postgres",
		"HONGBAO_LEDGER_DSN=postgres://u@127.0.0.1/db?sslmode=verify-full&sslrootcert="+ended)}
	p := &part{}
	a.examineConfig(t.Context(), p)
	require.True(t, p.finds(LevelProblem, "serve.tls_cert", ended, "replace it"), "%v", p.list)
	require.True(t, p.finds(LevelProblem, "ledger.dsn sslrootcert", ended), "%v", p.list)
	require.True(t, p.finds(LevelWarning, "control.tls_client_ca", soon), "%v", p.list)
	require.Len(t, p.list, 3)
}

func TestDiskLevels(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for level, disks := range map[string][][2]uint64{
		LevelOK:      {{100 * gib, 500 * gib}, {gib, 5 * gib}},
		LevelWarning: {{40 * gib, 500 * gib}, {gib - 1, 5 * gib}, {64 << 20, gib}},
		LevelProblem: {{0, 500 * gib}, {64<<20 - 1, gib}},
	} {
		for _, d := range disks {
			got, mend := diskLevel(d[0], d[1])
			require.Equal(t, level, got, d)
			require.Equal(t, level == LevelOK, mend == "", d)
		}
	}
	p := &part{}
	p.disk("ledger.dsn", filepath.Join(t.TempDir(), "none"))
	require.Empty(t, p.list, "no finding about a disk that this machine can't see")
	p.disk("ledger.dsn", t.TempDir())
	require.Len(t, p.list, 1)
	require.Contains(t, p.list[0].About, "free")
}

// An SQLite ledger that every user of the machine may read, for example after a restore from a backup, gets a warning.
func TestDoctorFindsAnOpenLedgerFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	for _, name := range []string{path, path + "-wal"} {
		require.NoError(t, os.WriteFile(name, nil, 0o600))
	}
	p := &part{}
	p.privateFiles(path)
	require.Empty(t, p.list)
	require.NoError(t, os.Chmod(path+"-wal", 0o644))
	p.privateFiles(path)
	require.Len(t, p.list, 1)
	require.True(t, p.finds(LevelWarning, path+"-wal", "chmod 600"), "%v", p.list)
}

// The database's clock is wrong, and too many journal entries wait in Redis. Doctor warns of both.
func TestDoctorFindsClocksAndJournal(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	dsn := testkit.Postgres(t)
	a := onServers(t, "postgres", dsn, "fsync,full_page_writes")
	look := func() map[string]*part {
		t.Helper()
		by := map[string]*part{}
		for _, f := range a.Doctor(t.Context()).Findings {
			if by[f.Server] == nil {
				by[f.Server] = &part{}
			}
			by[f.Server].list = append(by[f.Server].list, f)
		}
		return by
	}
	all := look()
	require.True(t, all["ledger"].finds(LevelOK, "postgres 1", "isolation"), "%v", all["ledger"].list)
	require.False(t, all["ledger"].finds(LevelWarning, "clock"), "%v", all["ledger"].list)
	require.False(t, all["redis"].finds(LevelWarning, "journal"), "%v", all["redis"].list)

	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `CREATE SCHEMA wrong; CREATE FUNCTION wrong.statement_timestamp() RETURNS timestamptz
		LANGUAGE sql AS $$ SELECT pg_catalog.statement_timestamp() - interval '1 hour' $$`)
	require.NoError(t, err)
	join := "?"
	if strings.Contains(dsn, "?") {
		join = "&"
	}
	a.Config.Ledger.DSN = configs.Secret(dsn + join + "search_path=wrong,pg_catalog,public")
	require.NoError(t, a.redis.LPush(t.Context(), a.store.Journal(), slices.Repeat([]any{"{}"}, journalLate+1)...).Err())
	all = look()
	require.True(t, all["ledger"].finds(LevelWarning, "the clocks of this machine and of the database are", "NTP"),
		"%v", all["ledger"].list)
	require.True(t, all["redis"].finds(LevelWarning, "the clock of Redis is", "ahead of the clock of the database"), "%v",
		all["redis"].list)
	require.True(t, all["redis"].finds(LevelWarning, "1001 of at most "), "%v", all["redis"].list)
}

// Doctor lists the rights on the ledger's tables that the PostgreSQL user lacks. It ignores tables that are not
// Hongbao's.
func TestDoctorLooksAtTheRightsInTheDatabase(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	dsn := testkit.Postgres(t)
	a := onServers(t, "postgres", dsn, "fsync,full_page_writes")
	look := func() *part {
		p := &part{}
		a.examineLedger(t.Context(), p)
		require.True(t, p.finds(LevelOK, "tables and settings"), "%v", p.list)
		return p
	}
	require.False(t, look().finds(LevelWarning, "may not"))
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	role := conn.Config().Database + "_few"
	_, err = conn.Exec(t.Context(), fmt.Sprintf(`CREATE ROLE %[1]s LOGIN;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO %[1]s; CREATE TABLE other (id bigint);
		REVOKE INSERT ON archive, grants FROM %[1]s; REVOKE SELECT ON grants FROM %[1]s`, role))
	require.NoError(t, err)
	defer func() {
		_, err := conn.Exec(context.Background(), fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", role))
		require.NoError(t, err)
	}()
	at, err := url.Parse(dsn)
	require.NoError(t, err)
	at.User = url.User(role)
	a.Config.Ledger.DSN = configs.Secret(at.String())
	p := look()
	require.True(t, p.finds(LevelWarning, "may not INSERT on archive, grants; SELECT on grants. ",
		"deploy/rights/postgres.sql"), "%v", p.list)
}

// Doctor says how many processes the database's connections are enough for.
func TestDoctorCountsTheConnectionsOfTheDatabase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		accepted, each int64
		level, says    string
	}{
		{97, 10, LevelOK, "97 connections, enough for 9 processes with ledger.conns 10"},
		{40, 10, LevelOK, "enough for 4 processes"},
		{39, 10, LevelWarning, "enough for 3 processes with ledger.conns 10: raise max_connections"},
		{97, 200, LevelWarning, "enough for 0 processes"},
	} {
		p := &part{}
		p.connections(c.accepted, c.each)
		require.True(t, p.finds(c.level, c.says), "%v", p.list)
	}
	sqlite := &part{}
	sqlite.connections(0, 10)
	require.Empty(t, sqlite.list)
	if testing.Short() {
		t.Skip("needs a server")
	}
	for driver, dsn := range map[string]string{"postgres": testkit.Postgres(t), "mysql": testkit.MariaDB(t)} {
		a, p := onServers(t, driver, dsn, "fsync,full_page_writes,innodb_flush_log_at_trx_commit,innodb_doublewrite,sync_binlog"), &part{}
		a.examineLedger(t.Context(), p)
		require.True(t, p.finds(LevelOK, "the database accepts ", " connections, enough for "), "%s: %v", driver, p.list)
	}
}

func TestErrOfOneProblem(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, (&Examination{Problems: 1, Warnings: 2}).Err(), "1 problem and 2 warnings")
}
