package testkit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// MariaDBOptions configure a MariaDB.
type MariaDBOptions struct {
	// Settings are settings in my.cnf; they override the defaults below.
	Settings map[string]string
}

// onMySQLEnv, if not empty, makes StartMariaDB start the MySQL of scripts/setup.sh mysql instead. make test-mysql sets
// it.
const onMySQLEnv = "HONGBAO_TEST_ON_MYSQL"

// OnMySQL reports whether the tests of MariaDB run on MySQL.
func OnMySQL() bool { return os.Getenv(onMySQLEnv) != "" }

// mariadbDefaults returns settings for speed. They turn off the protection against torn pages, which only a
// power failure causes. A commit is still answered only after it was written to the log and flushed.
func mariadbDefaults() map[string]string {
	return map[string]string{
		"bind_address":                   "127.0.0.1",
		"skip_name_resolve":              "on",
		"max_connections":                "300",
		"innodb_buffer_pool_size":        "64M",
		"innodb_log_file_size":           "64M",
		"innodb_flush_log_at_trx_commit": "1",
		"sync_binlog":                    "1",
		"innodb_doublewrite":             "off",
		"innodb_fast_shutdown":           "2",
		"performance_schema":             "off",
		"max_allowed_packet":             "16M",
	}
}

// MariaDBServer is a running MariaDB or MySQL.
type MariaDBServer struct {
	// Addr is host:port. A restart keeps it.
	Addr string
	server
	mysql string        // the folder of MySQL's files; empty for MariaDB
	admin *mysql.Config // the address of a server that the user runs; nil for one that testkit started
}

// mariadbUser is a user with all rights on the databases from CreateDatabase, but none on the server.
const mariadbUser = "hongbao"

// StartMariaDB starts a MariaDB without databases. It returns when the server answers. The caller closes it.
func StartMariaDB(ctx context.Context, opts MariaDBOptions) (*MariaDBServer, error) {
	m := &MariaDBServer{}
	daemon, create, err := m.programs()
	if err != nil {
		return nil, err
	}
	cred, err := unprivileged()
	if m.mysql != "" { // runs as root, too: another user may not be able to read the cache
		cred, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	k, err := openKit()
	if err != nil {
		return nil, err
	}
	m.server = server{name: "mariadb", cred: cred, ready: m.answers, ports: 1}
	if m.dir, err = k.folder("mariadb", cred); err != nil {
		return nil, err
	}
	if err := errors.Join(m.writeInit(), m.initialize(ctx, k, create())); err != nil {
		return nil, errors.Join(err, m.remove())
	}
	m.prepare = func(ports []int) (command, error) {
		m.Addr = loopback(ports[0])
		return m.command(daemon, "--defaults-file="+m.conf()), m.writeConf(ports[0], opts.Settings)
	}
	if err := m.launch(ctx); err != nil {
		return nil, err
	}
	if err := m.createUser(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// programs returns the server's program, and the command that creates its data folder.
func (m *MariaDBServer) programs() (daemon string, create func() command, err error) {
	if OnMySQL() {
		return m.mysqlPrograms()
	}
	if daemon, err = program("mariadbd", "/usr/local/sbin", "/usr/local/mysql/bin", "/usr/sbin"); err != nil {
		return "", nil, err
	}
	install, err := program("mariadb-install-db", "/usr/local/mysql/scripts", "/usr/bin")
	// The temporary tables must be in the server's folder. In /tmp, concurrent installations would delete each
	// other's tables.
	return daemon, func() command {
		return m.command(install, "--no-defaults", "--datadir="+m.data(), "--tmpdir="+m.dir,
			"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
	}, err
}

func (m *MariaDBServer) createUser(ctx context.Context) error {
	return m.exec(ctx, "CREATE USER IF NOT EXISTS "+mariadbUser+"@'%'",
		"GRANT ALL PRIVILEGES ON `t%`.* TO "+mariadbUser+"@'%'")
}

func (m *MariaDBServer) data() string { return filepath.Join(m.dir, "data") }
func (m *MariaDBServer) conf() string { return filepath.Join(m.dir, "my.cnf") }

func (m *MariaDBServer) command(path string, args ...string) command {
	c := command{
		path: path, args: args, dir: m.dir, cred: m.cred,
		env: []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin", "HOME=" + m.dir, "LC_ALL=C", "TZ=UTC"},
	}
	if m.mysql != "" {
		m.byLoader(&c)
	}
	return c
}

func (m *MariaDBServer) writeConf(port int, settings map[string]string) error {
	defaults := mariadbDefaults()
	if m.mysql != "" {
		m.mysqlSettings(defaults)
	}
	return m.writeSettings(m.conf(), "[mysqld]\n", defaults, settings, map[string]string{
		"port": fmt.Sprint(port), "datadir": m.data(), "tmpdir": m.dir,
		"socket": filepath.Join(m.dir, "mariadb.sock"), "pid_file": filepath.Join(m.dir, "mariadb.pid"),
	})
}

// DSN returns the address of a database for go-sql-driver/mysql, with a user who has no rights on the server.
func (m *MariaDBServer) DSN(database string) string {
	return mariadbUser + "@tcp(" + m.Addr + ")/" + database
}

// AdminDSN returns the address of a database with a user who has all rights.
func (m *MariaDBServer) AdminDSN(database string) string {
	if m.admin != nil {
		config := m.admin.Clone()
		config.DBName = database
		return config.FormatDSN()
	}
	return "root@tcp(" + m.Addr + ")/" + database
}

// CreateDatabase creates an empty database and returns its name.
func (m *MariaDBServer) CreateDatabase(ctx context.Context) (string, error) {
	name := fmt.Sprintf("t%s%d", processName, names.Add(1))
	return name, m.exec(ctx, "CREATE DATABASE "+name)
}

// DropDatabase drops a database that nobody uses.
func (m *MariaDBServer) DropDatabase(ctx context.Context, name string) error {
	return m.exec(ctx, "DROP DATABASE `"+strings.ReplaceAll(name, "`", "``")+"`")
}

// with runs fn on a connection with all rights.
func (m *MariaDBServer) with(ctx context.Context, fn func(*sql.Conn) error) error {
	config, err := mysql.ParseDSN(m.AdminDSN(""))
	if err != nil {
		return err
	}
	config.Logger = &mysql.NopLogger{} // while the server starts, it refuses connections; the returned error shows that
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to mariadb at %s: %w", m.Addr, err)
	}
	defer conn.Close()
	return fn(conn)
}

func (m *MariaDBServer) exec(ctx context.Context, statements ...string) error {
	return m.with(ctx, func(c *sql.Conn) error {
		for _, statement := range statements {
			if _, err := c.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s on mariadb at %s: %w", statement, m.Addr, err)
			}
		}
		return nil
	})
}

// answers returns an error unless this server answers. Another server on the same port is an error.
func (m *MariaDBServer) answers(ctx context.Context) error {
	return m.with(ctx, func(c *sql.Conn) error {
		var dir string
		if err := c.QueryRowContext(ctx, "SELECT @@datadir").Scan(&dir); err != nil {
			return fmt.Errorf("ask mariadb at %s who it is: %w", m.Addr, err)
		}
		if filepath.Clean(dir) != m.data() {
			return fmt.Errorf("mariadb at %s has its data in %s, want %s: %w", m.Addr, dir, m.data(), errStranger)
		}
		return nil
	})
}

// MySQLAnswered reports whether the server has answered all statements of a request, or refused one. It is for
// SwallowWholeAnswers. The statements must not return rows.
func MySQLAnswered(answer []byte) bool {
	const moreResults = 0x08
	for len(answer) > 4 {
		// length int24, sequence int8; payload OK: byte 0, affected rows and insert id (of variable length),
		// status int16
		size := int(answer[0]) | int(answer[1])<<8 | int(answer[2])<<16
		if len(answer) < 4+size || size < 5 {
			return false
		}
		payload := answer[4 : 4+size]
		answer = answer[4+size:]
		if payload[0] == 0xff {
			return true
		}
		at := 1
		for range 2 {
			at += 1 + map[byte]int{0xfc: 2, 0xfd: 3, 0xfe: 8}[payload[min(at, size-1)]]
		}
		if payload[min(at, size-1)]&moreResults == 0 {
			return true
		}
	}
	return false
}
