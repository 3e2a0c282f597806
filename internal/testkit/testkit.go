package testkit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/dev/proxy"
)

// lazy is a server that all tests of the process share. It starts when it is first used. It keeps the error of a
// failed start, so that every later test fails at once.
type lazy[T any] struct {
	once  func() (T, error)
	mu    sync.Mutex
	start func() (T, error)
}

func (l *lazy[T]) get() (T, error) {
	l.mu.Lock()
	if l.once == nil {
		l.once = sync.OnceValues(l.start)
	}
	once := l.once
	l.mu.Unlock()
	return once()
}

func (l *lazy[T]) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.once = nil
}

var (
	sharedRedis = shared(ownRedisEnv, connectRedis, func(ctx context.Context) (*RedisServer, error) {
		return StartRedis(ctx, RedisOptions{})
	})
	sharedPostgres = shared(ownPostgresEnv, connectPostgres, func(ctx context.Context) (*PostgresServer, error) {
		return StartPostgres(ctx, PostgresOptions{})
	})
	sharedMariaDB = shared(ownMySQLEnv, connectMariaDB, func(ctx context.Context) (*MariaDBServer, error) {
		return StartMariaDB(ctx, MariaDBOptions{})
	})
	sharedKafka = shared(ownKafkaEnv, connectKafka, func(ctx context.Context) (*KafkaBroker, error) {
		return StartKafka(ctx, KafkaOptions{})
	})
	// processName distinguishes the names of this process from those of others that use the same servers.
	processName = strings.ToLower(rand.Text()[:6])
	names       atomic.Int64
	errNotYet   = errors.New("still false")
)

func forgetShared() {
	sharedRedis.forget()
	sharedPostgres.forget()
	sharedMariaDB.forget()
	sharedKafka.forget()
}

// Main runs a package's tests, stops every server and exits the process. The log of go-redis, which reports the servers
// that tests kill, is discarded: it would hide which test failed.
func Main(m *testing.M) {
	redis.SetLogger(quiet{})
	code := m.Run()
	if err := CloseAll(); err != nil {
		fmt.Fprintln(os.Stderr, "testkit:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

type quiet struct{}

// Printf implements the logger of go-redis.
func (quiet) Printf(context.Context, string, ...any) {}

// Redis returns a Redis that the tests of this process share. Use only keys under Prefix, and do not stop or
// reconfigure the server.
func Redis(t testing.TB) *RedisServer {
	t.Helper()
	return running(t, sharedRedis.get)
}

// Prefix returns a key prefix that no other test of this process uses. It is valid for hongbao.Space: at most 32
// bytes of a-z, 0-9 and -.
func Prefix(t testing.TB) string {
	t.Helper()
	return unique(t)
}

// NewRedis returns a Redis for this test alone. It is closed when the test ends.
func NewRedis(t testing.TB, opts RedisOptions) *RedisServer {
	t.Helper()
	return closing(t, running(t, func() (*RedisServer, error) { return StartRedis(t.Context(), opts) }))
}

// Postgres returns the address, for pgx, of an empty database in a PostgreSQL that the tests of this process share.
// The database is dropped when the test ends.
func Postgres(t testing.TB) string {
	t.Helper()
	p := running(t, sharedPostgres.get)
	name, err := p.CreateDatabase(t.Context())
	if err != nil {
		t.Fatalf("testkit: %v", err)
	}
	t.Cleanup(func() {
		if err := p.DropDatabase(context.Background(), name); err != nil {
			t.Errorf("testkit: %v", err)
		}
	})
	return p.DSN(name)
}

// NewPostgres returns a PostgreSQL for this test alone. It is closed when the test ends.
func NewPostgres(t testing.TB, opts PostgresOptions) *PostgresServer {
	t.Helper()
	return closing(t, running(t, func() (*PostgresServer, error) { return StartPostgres(t.Context(), opts) }))
}

// NewStandby returns a hot standby of the server, for this test alone. It is closed when the test ends.
func (p *PostgresServer) NewStandby(t testing.TB, opts PostgresOptions) *PostgresServer {
	t.Helper()
	return closing(t, running(t, func() (*PostgresServer, error) { return p.StartStandby(t.Context(), opts) }))
}

// MariaDB returns the address, for go-sql-driver/mysql, of an empty database in a MariaDB that the tests of this
// process share. The database is dropped when the test ends.
func MariaDB(t testing.TB) string {
	t.Helper()
	m := running(t, sharedMariaDB.get)
	return m.DSN(m.Database(t))
}

// Database creates an empty database and returns its name. The database is dropped when the test ends.
func (m *MariaDBServer) Database(t testing.TB) string {
	t.Helper()
	name, err := m.CreateDatabase(t.Context())
	if err != nil {
		t.Fatalf("testkit: %v", err)
	}
	t.Cleanup(func() {
		if err := m.DropDatabase(context.Background(), name); err != nil {
			t.Errorf("testkit: %v", err)
		}
	})
	return name
}

// NewMariaDB returns a MariaDB for this test alone. It is closed when the test ends.
func NewMariaDB(t testing.TB, opts MariaDBOptions) *MariaDBServer {
	t.Helper()
	return closing(t, running(t, func() (*MariaDBServer, error) { return StartMariaDB(t.Context(), opts) }))
}

// NewMySQL is NewMariaDB for a test of what only MySQL has. It skips the test where the tests run on MariaDB.
func NewMySQL(t testing.TB, opts MariaDBOptions) *MariaDBServer {
	t.Helper()
	if !OnMySQL() {
		t.Skip("needs MySQL: make test-mysql") //nolint:forbidigo // MariaDB lacks what the test is about
	}
	return NewMariaDB(t, opts)
}

// SharedRedis returns the Redis of function Redis, for examples, which have no testing.TB. skip reports that Redis would
// skip the test.
func SharedRedis() (r *RedisServer, skip bool, err error) { return unlessSkipped(sharedRedis.get) }

// SharedKafka returns the broker of function Kafka, for examples. skip reports that Kafka would skip the test.
func SharedKafka() (b *KafkaBroker, skip bool, err error) { return unlessSkipped(sharedKafka.get) }

// Kafka returns a broker that the tests of this process share. Use only topics from Topic, and do not stop or
// reconfigure the broker.
func Kafka(t testing.TB) *KafkaBroker {
	t.Helper()
	return running(t, sharedKafka.get)
}

// NewKafka returns a broker for this test alone. It is closed when the test ends.
func NewKafka(t testing.TB, opts KafkaOptions) *KafkaBroker {
	t.Helper()
	return closing(t, running(t, func() (*KafkaBroker, error) { return StartKafka(t.Context(), opts) }))
}

// Topic creates a topic that no other test of this process uses. It returns when the topic's partitions accept
// messages.
func (b *KafkaBroker) Topic(t testing.TB, partitions int, config map[string]string) string {
	t.Helper()
	name := unique(t)
	if err := b.CreateTopic(t.Context(), name, partitions, config); err != nil {
		t.Fatalf("testkit: %v", err)
	}
	return name
}

// Eventually waits until cond is true. It fails the test if that does not happen within timeout.
func Eventually(t testing.TB, timeout time.Duration, cond func() bool, msg string, args ...any) {
	t.Helper()
	EventuallyOK(t, timeout, func() error {
		if !cond() {
			return errNotYet
		}
		return nil
	}, msg, args...)
}

// EventuallyOK waits until f returns nil. If that does not happen within timeout, it fails the test with f's last
// error.
func EventuallyOK(t testing.TB, timeout time.Duration, f func() error, msg string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := poll(ctx, nil, func(context.Context) error { return f() }); err != nil {
		t.Fatalf("not within %v: %s: %v", timeout, fmt.Sprintf(msg, args...), err)
	}
}

// Go runs a function in the background until stop is called or the test ends. The test fails if the function
// returns an error.
func Go(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("testkit: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// unique returns a name that consists of the test's name and a number.
func unique(t testing.TB) string {
	short := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(strings.TrimPrefix(t.Name(), "Test")))
	return fmt.Sprintf("t%.16s-%s-%d", short, processName, names.Add(1))
}

// running starts a server for a test. It skips the test under -short, and if only the own servers of the user exist.
func running[S any](t testing.TB, start func() (S, error)) S {
	t.Helper()
	s, skip, err := unlessSkipped(start)
	switch {
	case skip:
		t.Log("why the test is skipped:", err)
		t.Skip("needs a server")
	case err != nil:
		t.Fatalf("testkit: %v", err)
	}
	return s
}

// errShort is why unlessSkipped starts nothing under -short.
var errShort = errors.New("go test -short starts no server")

// unlessSkipped starts a server. skip reports that a test without the server is skipped; err then says why.
func unlessSkipped[S any](start func() (S, error)) (s S, skip bool, err error) {
	if testing.Short() {
		return s, true, errShort
	}
	s, err = start()
	return s, errors.Is(err, errNoProgram) && ownServers(), err
}

// must returns the result of start, and fails the test on an error.
func must[S any](t testing.TB, start func() (S, error)) S {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatalf("testkit: %v", err)
	}
	return s
}

func closing[S interface{ Close() error }](t testing.TB, s S) S {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("testkit: %v", err)
		}
	})
	return s
}

// NewProxy returns a fault proxy in front of target (host:port). It is closed when the test ends.
func NewProxy(t testing.TB, target string) *proxy.Proxy {
	t.Helper()
	return closing(t, must(t, func() (*proxy.Proxy, error) { return proxy.Start(target) }))
}

// ErrOf returns the error of a call whose other result the test does not need.
func ErrOf[T any](_ T, err error) error { return err }
