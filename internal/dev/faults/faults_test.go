package faults

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// TestKilledWorker lets a worker die with ten grants in hand, of which one is done: the story has the figures of the
// nine others, names who takes them, and the handler gets just these.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	f := setup(t)
	_, err := f.shard.CreateGroup(t.Context(), "balance")
	require.NoError(t, err)
	f.grab(10)
	const first = "host-101-aa"
	entries, err := f.shard.ReadNew(t.Context(), "balance", first, 100, 0)
	require.NoError(t, err)
	require.Len(t, entries, 10)
	require.NoError(t, f.rdb.SetBit(t.Context(), f.shard.Keys.Done("balance", 0), 3, 1).Err())
	alive, die := context.WithCancel(t.Context())
	f.crew.onKill = die
	running(t, func(context.Context) error { // as a worker does that is busy
		ids := make([]string, len(entries))
		for i := range entries {
			ids[i] = entries[i].ID
		}
		for retry.Pause(alive, 100*time.Millisecond) {
			if _, err := f.shard.Renew(alive, "balance", first, ids); err != nil && alive.Err() == nil {
				return err
			}
		}
		return nil
	})
	var handled atomic.Int64
	f.work("balance", "host-102-bb", func(_ context.Context, grants []hongbao.Grant) error {
		handled.Add(int64(len(grants)))
		return nil
	})
	require.NoError(t, f.Cause(t.Context(), KillWorker))
	require.Equal(t, "Worker 1 is killed with SIGKILL (process 101).", f.told("Worker 1 is killed"))
	require.Regexp(t, `^Worker 1 held 9 grants in 10 entries for sink balance; its lease ends in [0-3]\.\d s\.$`,
		f.told("Worker 1 held"))
	require.Regexp(t, `^Worker 2 takes 9 grants of worker 1 for sink balance, \d+\.\d s after the kill\.$`, f.told("Worker 2 takes"))
	f.told("Everything that worker 1 held is done")
	require.EqualValues(t, 9, handled.Load())
	f.crew.set(1, 103)
	require.Equal(t, "Worker 1 is back (process 103).", f.told("Worker 1 is back"))
	f.told("The audit agrees.")
}

// TestLeaseEndsNoLaterThanItDoes: a Redis that answers slowly does not move the end of a lease.
func TestLeaseEndsNoLaterThanItDoes(t *testing.T) {
	t.Parallel()
	f := setup(t)
	_, err := f.shard.CreateGroup(t.Context(), "balance")
	require.NoError(t, err)
	f.grab(3)
	entries, err := f.shard.ReadNew(t.Context(), "balance", "host-101-aa", 100, 0)
	require.NoError(t, err)
	require.Len(t, entries, 3)
	latest := time.Now().Add(lease + 10*time.Millisecond) // Redis counts in milliseconds
	f.redis.Delay(200 * time.Millisecond)
	slow := f.store.Over(f.client()).Shard(0)
	h, err := f.read(t.Context(), &held{sink: "balance", shard: slow, consumer: "host-101-aa"})
	require.NoError(t, err)
	require.Len(t, h.entries, 3)
	require.False(t, h.ends.After(latest), "%s too late", h.ends.Sub(latest))
}

// TestVictimHoldsForKafka: while Kafka is cut off a worker that holds for Kafka is killed, though another holds more.
func TestVictimHoldsForKafka(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, sink := range []string{"balance", "kafka"} {
		_, err := f.shard.CreateGroup(t.Context(), sink)
		require.NoError(t, err)
	}
	f.grab(3)
	_, err := f.shard.ReadNew(t.Context(), "balance", "host-101-aa", 3, 0)
	require.NoError(t, err)
	_, err = f.shard.ReadNew(t.Context(), "kafka", "host-102-bb", 1, 0)
	require.NoError(t, err)
	w, err := f.victim(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, w.Number, "it holds most")
	require.NoError(t, f.Cause(t.Context(), CutKafka))
	w, err = f.victim(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, w.Number, "it holds for Kafka")
	require.NoError(t, f.Cause(t.Context(), MendKafka))
}

func TestKilledWorkerThatHeldNothing(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.crew.set(2, 0) // away
	require.NoError(t, f.Cause(t.Context(), KillWorker))
	f.told("Worker 1 held nothing")
	err := f.Cause(t.Context(), KillWorker)
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "nobody is left to kill: %v", err)
	f.crew.set(1, 103)
	f.told("Worker 1 is back")
	f.told("The audit agrees.")
	require.ErrorIs(t, f.Cause(t.Context(), "nothing"), model.ErrNotFound)
}

// TestKafkaIsCut has a sink whose handler needs a connection by the proxy.
func TestKafkaIsCut(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.work("kafka", "host-101-aa", func(ctx context.Context, _ []hongbao.Grant) error {
		if err := answers(ctx, f.kafka); err != nil {
			return hongbao.Outagef(hongbao.ClassTransient, "kafka: %w", err)
		}
		return nil
	})
	f.work("balance", "host-101-aa", func(context.Context, []hongbao.Grant) error { return nil })
	open, err := net.Dial("tcp", f.kafka.Addr)
	require.NoError(t, err)
	defer open.Close()
	require.NoError(t, exchange(open))
	require.Error(t, f.Cause(t.Context(), MendKafka), "it is whole")
	require.NoError(t, f.Cause(t.Context(), CutKafka))
	require.Error(t, f.Cause(t.Context(), CutKafka), "it is cut off already")
	require.Error(t, exchange(open))
	require.Equal(t, 1, f.kafka.Fired().Cut)
	require.False(t, f.Quiet())
	require.Contains(t, f.told("Kafka is cut off: 1 connection closed"), "new ones are refused")
	f.grab(20)
	f.tells(`^Kafka is cut off for \d+\.\d s: 20 grants wait, the oldest for \d+\.\d s for sink kafka, ` +
		`nothing waits for sink balance; [1-9]\d* connections? to Kafka refused so far\.$`)
	require.Positive(t, f.kafka.Fired().Refused)
	require.Equal(t, MendKafka, f.Buttons()[1].Name)
	require.NoError(t, f.Cause(t.Context(), MendKafka))
	require.Regexp(t, `^Kafka is back after \d+\.\d s: 20 grants wait, the oldest for \d+\.\d s for sink kafka\.$`, f.told("Kafka is back"))
	require.Regexp(t, `: 20 grants that waited are in the topic\. Dead letters: 0\.$`, f.told("Sink kafka has caught up"))
	f.told("The audit agrees.")
	require.Equal(t, CutKafka, f.Buttons()[1].Name)
	testkit.Eventually(t, soon, f.Quiet, "both stories are told")
}

// TestKafkaIsCutBeforeAnybodyConnected: nothing is in the topic before the sink's workers have made their group.
func TestKafkaIsCutBeforeAnybodyConnected(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.grab(20)
	require.NoError(t, f.Cause(t.Context(), CutKafka))
	f.told("Kafka is cut off: 0 connections closed")
	require.NoError(t, f.Cause(t.Context(), MendKafka))
	require.Regexp(t, `: 20 grants wait, the oldest for`, f.told("Kafka is back"))
	retry.Pause(t.Context(), 4*lookEvery)
	require.NotContains(t, fmt.Sprint(f.Story()), "caught up")
	f.work("kafka", "host-101-aa", func(context.Context, []hongbao.Grant) error { return nil })
	require.Regexp(t, `: 20 grants that waited are in the topic\.`, f.told("Sink kafka has caught up"))
}

func answers(ctx context.Context, p *proxy.Proxy) error {
	c, err := p.Dial(ctx, "", "")
	if err != nil {
		return err
	}
	defer c.Close()
	return exchange(c)
}

// exchange waits for an echo.
func exchange(c net.Conn) error { return send(c, []byte("hello, hello")) }

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

// TestAnswersAreLost: grabs whose answers are lost are decided once, and the story counts the losses.
func TestAnswersAreLost(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var handled atomic.Int64
	f.work("balance", "host-101-aa", func(_ context.Context, grants []hongbao.Grant) error {
		handled.Add(int64(len(grants)))
		return nil
	})
	require.NoError(t, f.Cause(t.Context(), LoseAnswers))
	require.Error(t, f.Cause(t.Context(), LoseAnswers), "it is under way")
	produce := []byte{0, 0, 0, 10, 0, 0, 0, 9, 0, 0, 0, 1, 255, 255}
	for range kafkaAnswers {
		c, err := net.Dial("tcp", f.kafka.Addr)
		require.NoError(t, err)
		require.Error(t, send(c, produce))
		require.NoError(t, c.Close())
	}
	got := f.grab(40)
	require.Contains(t, f.told("22 answers were lost (ack 10, grab 10, produce 2)."), "asks again")
	f.told("The audit agrees.")
	require.Equal(t, redisAnswers, f.redis.Fired().Swallowed)
	testkit.Eventually(t, soon, func() bool { return handled.Load() >= 40 }, "the worker goes on")
	for user, packets := range got {
		require.Equal(t, 1, packets, user)
	}
	fields, err := f.shard.CampaignFields(t.Context(), "rain")
	require.NoError(t, err)
	require.Equal(t, "40", fields["granted"])
	require.NoError(t, f.Cause(t.Context(), LoseAnswers), "it can be had again")
}

// TestStoryIsBounded: a server that stays up for days does not grow by its story.
func TestStoryIsBounded(t *testing.T) {
	t.Parallel()
	f := &Faults{cfg: Config{Say: func(string) {}}}
	for i := range 3 * keptTold {
		f.Tell("sentence %d", i)
	}
	story := f.Story()
	require.Len(t, story, keptTold)
	require.Equal(t, "sentence 599", story[0].Sentence)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := New(Config{})
	require.Error(t, err)
}

func TestProcessOfAWorker(t *testing.T) {
	t.Parallel()
	for name, pid := range map[string]int{"my-host-4711-0a1b2c3d": 4711, "host-x-y": 0, "a-b": 0, "": 0, "_retry/3": 0} {
		require.Equal(t, pid, processOf(name), name)
	}
}
