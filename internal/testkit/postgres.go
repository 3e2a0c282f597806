package testkit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions configure a PostgreSQL.
type PostgresOptions struct {
	// Settings are settings in postgresql.conf, with the values as in that file. They override the defaults
	// below. Benchmarks turn fsync on.
	Settings map[string]string
	standby  bool
}

// postgresDefaults returns settings for speed. fsync is off, which can lose data only if the machine fails, not if
// the process is killed. A commit is still answered only after it was written to the log (synchronous_commit).
func postgresDefaults() map[string]string {
	return map[string]string{
		"listen_addresses":        "'127.0.0.1'",
		"unix_socket_directories": "''",
		"max_connections":         "200",
		"shared_buffers":          "'64MB'",
		"fsync":                   "off",
		"full_page_writes":        "off",
		"synchronous_commit":      "on",
		"autovacuum_naptime":      "'10min'",
	}
}

// PostgresServer is a running PostgreSQL.
type PostgresServer struct {
	// Addr is host:port. A restart keeps it.
	Addr string
	server
	admin *url.URL // the address of a server that the user runs; nil for one that testkit started
}

// StartPostgres starts a PostgreSQL without databases. It returns when the server answers. The caller closes
// it.
func StartPostgres(ctx context.Context, opts PostgresOptions) (*PostgresServer, error) {
	return startPostgres(ctx, "initdb", opts, func(c *command) {
		c.args = append(c.args, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	})
}

// StartStandby starts a hot standby of the server, which streams from it under the name
// standby. The caller closes it.
func (p *PostgresServer) StartStandby(ctx context.Context, opts PostgresOptions) (*PostgresServer, error) {
	host, port, err := net.SplitHostPort(p.Addr)
	if err != nil {
		return nil, err
	}
	opts.Settings = maps.Clone(opts.Settings)
	if opts.Settings == nil {
		opts.Settings = map[string]string{}
	}
	opts.Settings["primary_conninfo"] = fmt.Sprintf("'host=%s port=%s user=postgres application_name=standby'", host, port)
	opts.standby = true
	return startPostgres(ctx, "pg_basebackup", opts, func(c *command) {
		c.args = append(c.args, "-h", host, "-p", port, "-U", "postgres", "-c", "fast", "--no-sync")
	})
}

// startPostgres creates the data folder with a program of PostgreSQL, and starts the server on it.
func startPostgres(ctx context.Context, create string, opts PostgresOptions, args func(*command)) (*PostgresServer,
	error) {
	initdb, err := program("initdb", "/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin")
	if err != nil {
		return nil, err
	}
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil { // the other programs are next to the real initdb
		return nil, fmt.Errorf("find initdb: %w", err)
	}
	bin := filepath.Dir(initdb)
	cred, err := unprivileged()
	if err != nil {
		return nil, err
	}
	k, err := openKit()
	if err != nil {
		return nil, err
	}
	p := &PostgresServer{}
	p.server = server{name: "postgres", cred: cred, ready: p.answers, ports: 1}
	if p.dir, err = k.folder("postgres", cred); err != nil {
		return nil, err
	}
	c := postgresCommand(filepath.Join(bin, create), p.dir, cred)
	args(&c)
	if err := p.initialize(ctx, k, c); err != nil {
		return nil, errors.Join(err, p.remove())
	}
	if opts.standby {
		if err := os.WriteFile(filepath.Join(p.data(), "standby.signal"), nil, 0o600); err != nil {
			return nil, errors.Join(err, p.remove())
		}
	}
	p.prepare = func(ports []int) (command, error) {
		p.Addr = loopback(ports[0])
		c := postgresCommand(filepath.Join(bin, "postgres"), p.dir, cred)
		c.args = append(c.args, "-p", fmt.Sprint(ports[0]))
		return c, p.writeSettings(filepath.Join(p.data(), "postgresql.auto.conf"), "", postgresDefaults(), opts.Settings)
	}
	if err := p.launch(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *PostgresServer) data() string { return filepath.Join(p.dir, "data") }

func postgresCommand(path, dir string, cred *syscall.Credential) command {
	return command{
		path: path,
		args: []string{"-D", filepath.Join(dir, "data")},
		env:  []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C", "TZ=UTC"},
		dir:  dir,
		cred: cred,
	}
}

// DSN returns the address of a database for pgx.
func (p *PostgresServer) DSN(database string) string {
	if p.admin != nil {
		address := *p.admin
		address.Path = "/" + database
		return address.String()
	}
	return "postgres://postgres@" + p.Addr + "/" + database + "?sslmode=disable"
}

// adminDSN returns the address of an existing database, for a user who may create others.
func (p *PostgresServer) adminDSN() string {
	if p.admin != nil {
		return p.admin.String()
	}
	return p.DSN("postgres")
}

// CreateDatabase creates an empty database and returns its name.
func (p *PostgresServer) CreateDatabase(ctx context.Context) (string, error) {
	name := fmt.Sprintf("t%s%d", processName, names.Add(1))
	return name, p.exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0")
}

// DropDatabase drops a database and closes the connections to it.
func (p *PostgresServer) DropDatabase(ctx context.Context, name string) error {
	return p.exec(ctx, "DROP DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
}

func (p *PostgresServer) exec(ctx context.Context, sql string) error {
	c, err := pgx.Connect(ctx, p.adminDSN())
	if err != nil {
		return fmt.Errorf("connect to postgres at %s: %w", p.Addr, err)
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s on postgres at %s: %w", sql, p.Addr, err)
	}
	return nil
}

// answers returns an error unless this server answers. Another server on the same port is an error.
func (p *PostgresServer) answers(ctx context.Context) error {
	c, err := pgx.Connect(ctx, p.DSN("postgres"))
	if err != nil {
		return fmt.Errorf("connect to postgres at %s: %w", p.Addr, err)
	}
	defer c.Close(ctx)
	var dir string
	if err := c.QueryRow(ctx, "SELECT current_setting('data_directory')").Scan(&dir); err != nil {
		return fmt.Errorf("ask postgres at %s who it is: %w", p.Addr, err)
	}
	if dir != p.data() {
		return fmt.Errorf("postgres at %s has its data in %s, want %s: %w", p.Addr, dir, p.data(), errStranger)
	}
	return nil
}
