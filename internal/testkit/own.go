package testkit

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/go-sql-driver/mysql"
	"github.com/segmentio/kafka-go"
)

// Variables that name servers for all tests to share. Without one, each process of tests starts a server.
const (
	ownRedisEnv    = "HONGBAO_TEST_REDIS"
	ownPostgresEnv = "HONGBAO_TEST_POSTGRES"
	ownMySQLEnv    = "HONGBAO_TEST_MYSQL"
	ownKafkaEnv    = "HONGBAO_TEST_KAFKA"
)

// errNoProgram reports that a server cannot be started because its program is not installed.
var errNoProgram = errors.New("run scripts/setup.sh")

// ownServers reports whether the user runs servers for the tests. Tests that start one more server, because they kill
// it or configure it, are then skipped if its program is not installed.
func ownServers() bool {
	for _, name := range []string{ownRedisEnv, ownPostgresEnv, ownMySQLEnv, ownKafkaEnv} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// shared returns the server that a variable names, or starts one if the variable is empty.
func shared[S any](env string, connect func(context.Context, string) (S, error),
	start func(context.Context) (S, error)) lazy[S] {
	return lazy[S]{start: func() (S, error) {
		address := os.Getenv(env)
		if address == "" {
			return start(context.Background())
		}
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		s, err := connect(ctx, address)
		if err != nil {
			err = fmt.Errorf("%s: %w", env, err)
		}
		return s, err
	}}
}

// connectRedis returns the Redis at host:port. It refuses a server that evicts keys or has no append-only file.
func connectRedis(ctx context.Context, address string) (*RedisServer, error) {
	r := &RedisServer{Addr: address}
	for name, want := range map[string]string{"maxmemory-policy": "noeviction", "appendonly": "yes"} {
		got, err := r.setting(ctx, name)
		if err != nil {
			return nil, err
		}
		if got != want {
			return nil, fmt.Errorf("redis at %s has %s %s: start it with --%s %s", address, name, got, name, want)
		}
	}
	return r, nil
}

// connectPostgres returns the PostgreSQL at a URL whose user may create databases.
func connectPostgres(ctx context.Context, address string) (*PostgresServer, error) {
	admin, err := url.Parse(address)
	if err != nil || admin.Scheme != "postgres" && admin.Scheme != "postgresql" {
		return nil, errors.New("want a URL such as postgres://postgres:PASSWORD@127.0.0.1:5432/postgres")
	}
	p := &PostgresServer{Addr: admin.Host, admin: admin}
	return p, p.exec(ctx, "SELECT 1")
}

// connectMariaDB returns the MariaDB or MySQL at an address of go-sql-driver/mysql, whose user may create users.
func connectMariaDB(ctx context.Context, address string) (*MariaDBServer, error) {
	admin, err := mysql.ParseDSN(address)
	if err != nil {
		return nil, fmt.Errorf("want an address such as root:PASSWORD@tcp(127.0.0.1:3306)/: %w", err)
	}
	m := &MariaDBServer{Addr: admin.Addr, admin: admin}
	return m, m.createUser(ctx)
}

// connectKafka returns the Apache Kafka at host:port.
func connectKafka(ctx context.Context, address string) (*KafkaBroker, error) {
	b := &KafkaBroker{Addr: address, Version: KafkaVersion}
	c, done := b.client()
	defer done()
	if _, err := c.Metadata(ctx, &kafka.MetadataRequest{}); err != nil {
		return nil, fmt.Errorf("ask kafka at %s for its metadata: %w", address, err)
	}
	return b, nil
}
