package consumer

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The users that docs/operations.md makes are enough for a worker and its trimmer, and stop who may only look.
func TestUsersOfTheDocs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	b := setupOn(t, server, 1)
	text, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	users := regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindAllString(string(text), -1)
	require.Len(t, users, 2)
	for _, line := range users {
		line = strings.NewReplacer("hb:*", b.name+":*", "PASSWORD", "secret").Replace(line)
		var args []any
		for _, word := range strings.Fields(line) {
			args = append(args, word)
		}
		require.NoError(t, b.rdb.Do(t.Context(), args...).Err(), line)
	}
	as := func(user string) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: server.Addr, Username: user, Password: "secret", PoolSize: 4})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	worker := b.rdb
	b.rdb = as("hongbao")
	b.add(t, 0, 2, 3)
	s := newSink(nil)
	cfg := b.config(t, "w", s)
	cfg.Redis, cfg.Reads = as("hongbao"), as("hongbao")
	w := start(t, cfg)
	b.idle(t, 0)
	tr, _ := b.trimmer(t, group)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.NoError(t, w.stop())
	s.onceEach(t, 5)
	b.rdb = worker
	reader := as("reader")
	require.NoError(t, reader.XRange(t.Context(), b.keys().Events(), "-", "+").Err())
	err = reader.XAdd(t.Context(), &redis.XAddArgs{Stream: b.keys().Events(), Values: forged(1, 1)}).Err()
	require.True(t, redis.HasErrorPrefix(err, "NOPERM"), "%v", err)
	err = reader.HSet(t.Context(), b.keys().Meta(), "seq", 1).Err()
	require.True(t, redis.HasErrorPrefix(err, "NOPERM"), "%v", err)
}
