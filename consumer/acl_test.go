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

// The users in deploy/rights/redis.acl have all rights that a worker and its trimmer need. The reader user can't
// write.
func TestUsersOfTheRights(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	b := setupOn(t, server, 1)
	text, err := os.ReadFile("../deploy/rights/redis.acl")
	require.NoError(t, err)
	users := regexp.MustCompile(`(?m)^user .*$`).FindAllString(strings.ReplaceAll(string(text), "hb:*", b.name+":*"), -1)
	require.Len(t, users, 5)
	for _, line := range users {
		args := []any{"ACL", "SETUSER"}
		for _, word := range strings.Fields(line)[1:] {
			args = append(args, word)
		}
		args = append(args, "on", ">secret")
		require.NoError(t, b.rdb.Do(t.Context(), args...).Err(), line)
	}
	as := func(user string) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: server.Addr, Username: user, Password: "secret", PoolSize: 4})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	worker := b.rdb
	b.rdb = as("hongbao-worker")
	b.add(t, 0, 2, 3)
	s := newSink(nil)
	cfg := b.config(t, "w", s)
	cfg.Deployment = b.over(t, as("hongbao-worker"), as("hongbao-worker"))
	w := start(t, cfg)
	b.idle(t, 0)
	tr, _ := b.trimmer(t, group)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.NoError(t, w.stop())
	s.onceEach(t, 5)
	b.rdb = worker
	reader := as("hongbao-reader")
	require.NoError(t, reader.XRange(t.Context(), b.keys().Keys.Events(), "-", "+").Err())
	err = reader.XAdd(t.Context(), &redis.XAddArgs{Stream: b.keys().Keys.Events(), Values: forged(1, 1)}).Err()
	require.True(t, redis.HasErrorPrefix(err, "NOPERM"), "%v", err)
	err = reader.HSet(t.Context(), b.keys().Keys.Meta(), "seq", 1).Err()
	require.True(t, redis.HasErrorPrefix(err, "NOPERM"), "%v", err)
}
