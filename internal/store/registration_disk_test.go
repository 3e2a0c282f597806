package store_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A process waits until its registration is on disk before its first answer. A server that can't say so, and a slow
// disk, delay the answer by a limited number of waits.
func TestRegistrationIsOnDisk(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replies []any
		waits   int
	}{
		"at once":                {[]any{1}, 1},
		"after two waits":        {[]any{0, 0, 1}, 3},
		"not in time":            {[]any{0, 0, 0, 0}, 4},
		"no WAITAOF":             {[]any{"ERR unknown command 'WAITAOF'"}, 1},
		"no append-only file":    {[]any{"ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."}, 1},
		"the user may not do it": {[]any{"NOPERM User x has no permissions to run the 'waitaof' command"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := &disk{replies: c.replies}
			b := setupOn(t, disk.client(t))
			b.load(t, spec("rain", 10))
			b.grab(t, "rain", "u1/r1")
			require.Equal(t, c.waits, disk.waits)
			b.grab(t, "rain", "u2/r2")
			require.Equal(t, c.waits, disk.waits, "the second answer does not wait")
		})
	}
}

// The watch of a process with a producer writes the registration before the first answer, so this answer need not wait
// for the disk.
func TestWatchRegistersBeforeTheFirstAnswer(t *testing.T) {
	t.Parallel()
	disk := &disk{replies: []any{0, 1}}
	b := setupOn(t, disk.client(t))
	b.load(t, spec("rain", 10))
	b.store.Enter()
	require.NoError(t, store.CheckOnce(t.Context(), b.k))
	require.EqualValues(t, 1, b.rdb.HLen(t.Context(), b.k.Keys.Witnesses()).Val())
	require.Equal(t, 2, disk.waits)
	b.grab(t, "rain", "u1/r1")
	require.Equal(t, 2, disk.waits)
}

// One WAITAOF is enough for all shards of a server.
func TestWatchWaitsOnceForTheDiskOfAServer(t *testing.T) {
	t.Parallel()
	disk := &disk{replies: []any{0, 1}}
	st := storetest.InitializedOn(t, disk.client(t), 16)
	st.Enter()
	ctx, stop := context.WithCancel(t.Context())
	disk.onDisk = stop
	require.NoError(t, (&store.Watch{Store: st}).Run(ctx))
	require.Equal(t, 2, disk.waits)
	for i := range st.Len() {
		k := st.Shard(i)
		require.EqualValues(t, 1, st.Redis().HLen(t.Context(), k.Keys.Witnesses()).Val())
		require.NoError(t, store.CheckOnce(t.Context(), k))
	}
	require.Equal(t, 2, disk.waits, "every shard has its copy")
}

// Redis comes back without the registration of a process. The process writes it again, and waits until it is on disk.
func TestLostRegistrationIsOnDiskAgain(t *testing.T) {
	t.Parallel()
	disk := &disk{replies: []any{1, 0, 1}}
	b := setupOn(t, disk.client(t))
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1/r1")
	require.NoError(t, store.CheckOnce(t.Context(), b.k))
	require.Equal(t, 1, disk.waits)
	require.NoError(t, b.rdb.Del(t.Context(), b.k.Keys.Witnesses()).Err())
	require.NoError(t, store.CheckOnce(t.Context(), b.k))
	require.Equal(t, 3, disk.waits)
}

// disk answers WAITAOF as servers and disks may: with a number of copies, or an error.
type disk struct {
	replies []any
	waits   int
	onDisk  func() // nil, or called before a reply of 1
}

func (d *disk) client(t *testing.T) *redis.Client {
	t.Helper()
	rdb := testkit.Redis(t).Client(t)
	rdb.AddHook(d)
	return rdb
}

// DialHook implements redis.Hook.
func (*disk) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (*disk) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (d *disk) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		last, is := cmds[len(cmds)-1].(*redis.Cmd)
		if !is || last.Name() != "waitaof" {
			return next(ctx, cmds)
		}
		if err := next(ctx, cmds[:len(cmds)-1]); err != nil {
			return err
		}
		reply := d.replies[d.waits]
		d.waits++
		if text, is := reply.(string); is {
			last.SetErr(refusal(text))
			return last.Err()
		}
		if reply == 1 && d.onDisk != nil {
			d.onDisk()
		}
		last.SetVal([]any{int64(reply.(int)), int64(0)})
		return nil
	}
}

// refusal is an error that a server answers.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError implements redis.Error.
func (refusal) RedisError() {}
