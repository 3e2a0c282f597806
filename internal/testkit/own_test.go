package testkit

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A server that the user runs gives each test a prefix, a database or a topic, as a server that testkit starts does.
func TestOwnServersServeTests(t *testing.T) {
	needsServer(t)
	t.Run("redis", func(t *testing.T) {
		r, err := connectRedis(t.Context(), Redis(t).Addr)
		require.NoError(t, err)
		require.NoError(t, r.Client(t).Set(t.Context(), Prefix(t), 1, 0).Err())
	})
	t.Run("postgres", func(t *testing.T) {
		p, err := connectPostgres(t.Context(), must(t, sharedPostgres.get).DSN("postgres"))
		require.NoError(t, err)
		name, err := p.CreateDatabase(t.Context())
		require.NoError(t, err)
		_, err = connect(t, p.DSN(name)).Exec(t.Context(), "CREATE TABLE x (n int)")
		require.NoError(t, err)
		require.NoError(t, p.DropDatabase(t.Context(), name))
	})
	t.Run("mysql", func(t *testing.T) {
		m, err := connectMariaDB(t.Context(), must(t, sharedMariaDB.get).AdminDSN(""))
		require.NoError(t, err)
		_, err = openMariaDB(t, m.DSN(m.Database(t))).ExecContext(t.Context(), "CREATE TABLE x (n int)")
		require.NoError(t, err)
	})
	t.Run("kafka", func(t *testing.T) {
		b, err := connectKafka(t.Context(), Kafka(t).Addr)
		require.NoError(t, err)
		topic := b.Topic(t, 1, nil)
		require.NoError(t, produce(t.Context(), transport(t, nil), b.Addr, topic))
		require.EqualValues(t, 1, lastOffset(t, b, topic))
	})
}

func TestOwnServersThatTestsCannotUse(t *testing.T) {
	needsServer(t)
	forgetful := NewRedis(t, RedisOptions{Args: map[string]string{"appendonly": "no"}})
	for _, c := range []struct {
		name, address, want string
		connect             func(context.Context, string) error
	}{
		{"redis without an append-only file", forgetful.Addr, "has appendonly no: start it with --appendonly yes", onRedis},
		{"redis that is down", FreeAddr(t), "connection refused", onRedis},
		{"postgres without a URL", "host=127.0.0.1", "want a URL such as postgres://", onPostgres},
		{"postgres that is down", "postgres://postgres@" + FreeAddr(t) + "/postgres", "connection refused", onPostgres},
		{"mysql with a URL", "mysql://root@127.0.0.1", "want an address such as root:PASSWORD@tcp", onMariaDB},
		{"mysql that is down", "root@tcp(" + FreeAddr(t) + ")/", "connection refused", onMariaDB},
		{"kafka that is down", FreeAddr(t), "connection refused", onKafka},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.ErrorContains(t, c.connect(t.Context(), c.address), c.want)
		})
	}
}

func onRedis(ctx context.Context, address string) error {
	_, err := connectRedis(ctx, address)
	return err
}
func onPostgres(ctx context.Context, address string) error {
	_, err := connectPostgres(ctx, address)
	return err
}
func onMariaDB(ctx context.Context, address string) error {
	_, err := connectMariaDB(ctx, address)
	return err
}
func onKafka(ctx context.Context, address string) error {
	_, err := connectKafka(ctx, address)
	return err
}

// A variable chooses the server. An address that does not work fails every test that needs it; no other server starts.
func TestOwnServerByVariable(t *testing.T) {
	needs := shared(ownRedisEnv, connectRedis, func(context.Context) (*RedisServer, error) {
		t.Error("a Redis starts although a variable names one")
		return nil, nil
	})
	t.Setenv(ownRedisEnv, "127.0.0.1:1")
	_, err := needs.get()
	require.ErrorContains(t, err, "HONGBAO_TEST_REDIS: ")
	require.True(t, ownServers())
}
