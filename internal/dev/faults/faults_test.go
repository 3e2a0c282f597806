package faults

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The worker with the most pending entries is killed, and the story says how many it had.
func TestWorkerThatHoldsMostIsKilled(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, sink := range []string{"balance", "kafka"} {
		_, err := f.shard.Group(sink).Create(t.Context())
		require.NoError(t, err)
	}
	f.grab(3)
	_, err := f.shard.Group("balance").ReadNew(t.Context(), "host-101-aa", 1, 0)
	require.NoError(t, err)
	_, err = f.shard.Group("kafka").ReadNew(t.Context(), "host-102-bb", 3, 0)
	require.NoError(t, err)
	require.NoError(t, f.Cause(t.Context(), KillWorker))
	require.Equal(t, []int{101, 0}, f.crew.pids())
	require.Contains(t, f.Log()[0].Sentence, "Worker 2 (process 102) is killed with SIGKILL. It held 3 entries")
	f.crew.set(1, 0)
	err = f.Cause(t.Context(), KillWorker)
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "there is no other worker to kill: %v", err)
}

// A worker is killed even if no worker has pending entries or no consumer group exists.
func TestIdleWorkerIsKilled(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.NoError(t, f.Cause(t.Context(), KillWorker))
	require.Contains(t, f.Log()[0].Sentence, "It held 0 entries")
	require.ErrorIs(t, f.Cause(t.Context(), "nothing"), model.ErrNotFound)
}

// If a server is cut off, its connections break and new ones are refused until it is restored.
func TestServersAreCutOff(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for i, c := range []struct {
		cut, restore, name string
		at                 int // of the buttons
	}{{CutRedis, RestoreRedis, "Redis", 1}, {CutKafka, RestoreKafka, "Kafka", 2}} {
		p := f.redis.proxy
		if c.cut == CutKafka {
			p = f.kafka.proxy
		}
		open, err := net.Dial("tcp", p.Addr)
		require.NoError(t, err)
		defer open.Close()
		testkit.Eventually(t, soon, func() bool { return exchange(open, c.name) == nil }, "the connection is there")
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(f.Cause(t.Context(), c.restore)), "it is whole")
		require.NoError(t, f.Cause(t.Context(), c.cut))
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(f.Cause(t.Context(), c.cut)), "it is cut off already")
		require.Equal(t, c.restore, f.Buttons()[c.at].Name)
		require.Error(t, exchange(open, c.name))
		require.Equal(t, 1, p.Fired().Cut)
		again, err := net.Dial("tcp", p.Addr)
		if err == nil {
			err = exchange(again, c.name)
			_ = again.Close()
		}
		require.Error(t, err)
		require.Equal(t, c.name+" is cut off: 1 connections closed, new ones are refused.", f.Log()[0].Sentence)
		require.NoError(t, f.Cause(t.Context(), c.restore))
		require.Equal(t, c.cut, f.Buttons()[c.at].Name)
		require.Regexp(t, c.name+` is back after \d+\.\d s\.`, f.Log()[0].Sentence)
		require.Len(t, f.Log(), 2*(i+1))
	}
	require.NoError(t, f.Cause(t.Context(), CutKafka))
	f.Close()
	c, err := net.Dial("tcp", f.kafka.proxy.Addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, exchange(c, "Kafka"), "Close restores a server that is cut off")
}

// exchange sends a request and waits for the echo, or for Redis' answer to PING.
func exchange(c net.Conn, name string) error {
	if name == "Redis" {
		return send(c, []byte("PING\r\n")) // the answer +PONG is one byte longer than the request
	}
	return send(c, []byte("hello, hello"))
}

func send(c net.Conn, text []byte) error {
	if err := c.SetDeadline(time.Now().Add(soon)); err != nil {
		return err
	}
	if _, err := c.Write(text); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, len(text)))
	return err
}

// A grab whose answer is lost is decided only once, although the client repeats it.
func TestAnswersAreLost(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var handled atomic.Int64
	f.work("balance", "host-101-aa", func(_ context.Context, grants []hongbao.Grant) error {
		handled.Add(int64(len(grants)))
		return nil
	})
	require.NoError(t, f.Cause(t.Context(), LoseAnswers))
	produce := []byte{0, 0, 0, 10, 0, 0, 0, 9, 0, 0, 0, 1, 255, 255}
	for range kafkaAnswers {
		c, err := net.Dial("tcp", f.kafka.proxy.Addr)
		require.NoError(t, err)
		require.Error(t, send(c, produce))
		require.NoError(t, c.Close())
	}
	require.Equal(t, kafkaAnswers, f.kafka.proxy.Fired().Swallowed)
	got := f.grab(40)
	testkit.Eventually(t, soon, func() bool { return f.redis.proxy.Fired().Swallowed == redisAnswers }, "all answers are lost")
	testkit.Eventually(t, soon, func() bool { return handled.Load() >= 40 }, "the worker goes on")
	require.Equal(t, kafkaAnswers+redisAnswers, f.Lost())
	for user, packets := range got {
		require.Equal(t, 1, packets, user)
	}
	fields, err := f.shard.Place("rain").CampaignFields(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 40, fields.Granted)
}

// The story of faults is bounded, so that a server that runs for days does not leak memory.
func TestStoryIsBounded(t *testing.T) {
	t.Parallel()
	f := &Faults{say: func(string, ...any) {}}
	for i := range 3 * maxLogged {
		f.tell("sentence %d", i)
	}
	story := f.Log()
	require.Len(t, story, maxLogged)
	require.Equal(t, "sentence 599", story[0].Sentence)
}

func TestProcessOfAWorker(t *testing.T) {
	t.Parallel()
	for name, pid := range map[string]int{"my-host-4711-0a1b2c3d": 4711, "host-x-y": 0, "a-b": 0, "": 0, "_retry/3": 0} {
		require.Equal(t, pid, processOf(name), name)
	}
}

// A rejected grant is a dead letter of sink balance. Requeued, it is delivered.
func TestGrantIsRejected(t *testing.T) {
	t.Parallel()
	f := setup(t)
	_, err := f.shard.Group("balance").Create(t.Context())
	require.NoError(t, err)
	f.grab(1)
	require.NoError(t, f.Cause(t.Context(), RejectGrant))
	require.Contains(t, f.Log()[0].Sentence, "The payment of event 0-1, user u0, is rejected: it is a dead letter.")
	letters, err := f.shard.Group("balance").Status(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, letters.Dead)
	require.Zero(t, letters.Waiting)
}

// Redis is emptied, and the story says what to do next.
func TestRedisIsEmptied(t *testing.T) {
	t.Parallel()
	f := setup(t)
	own := testkit.NewRedis(t, testkit.RedisOptions{}).Client(t)
	require.NoError(t, own.Set(t.Context(), "hb:0:meta", "x", 0).Err())
	f.direct = own
	require.NoError(t, f.Cause(t.Context(), EmptyRedis))
	require.Zero(t, own.DBSize(t.Context()).Val())
	require.Contains(t, f.Log()[0].Sentence, "Next: `hongbao recover`")
}
