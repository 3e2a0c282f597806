// Package deadlettertest helps tests of redelivery. It has a deployment with grants and dead letters, and a handler
// that counts the grants it gets.
package deadlettertest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// World is a deployment of two shards with grants in its streams.
type World struct {
	Redis  redis.UniversalClient
	Store  *store.Store
	Target *Target
	Seq    [Shards]int64 // last seq of each shard
	// OnGrant, if not nil, is called for every grant that Add writes.
	OnGrant func(hongbao.Grant)
}

// These constants, with shard and seq, determine every grant of a world.
const (
	Shards = 2
	Began  = 1_700_000_000_000 // Unix ms of seq 0; each seq is a second later than the previous one
)

// Setup creates an empty deployment on a real Redis server.
func Setup(t *testing.T) *World {
	t.Helper()
	st := storetest.Initialized(t, Shards)
	return &World{Redis: st.Redis(), Store: st, Target: &Target{Copies: map[string]int{}}}
}

// Grant returns the grant that has this seq on this shard. It depends on nothing else.
func Grant(shard int, seq int64) hongbao.Grant {
	return hongbao.Grant{
		Shard: shard, Seq: seq, Epoch: 1, Campaign: []string{"rain", "snow"}[seq%2], Packet: seq*Shards + int64(shard) +
			1, Amount: hongbao.Amount(100 + seq%7),
		User: fmt.Sprintf("u%d", seq%10), RequestID: fmt.Sprintf("r%d", seq), Time: time.UnixMilli(Began + seq*1000).UTC(),
	}
}

// Add appends n grants to each shard's stream, one grant in an entry.
func (w *World) Add(t *testing.T, n int) {
	t.Helper()
	for shard := range Shards {
		k := w.Store.Shard(shard)
		_, err := w.Redis.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range n {
				w.Seq[shard]++
				g := Grant(shard, w.Seq[shard])
				if w.OnGrant != nil {
					w.OnGrant(g)
				}
				p.XAdd(t.Context(), &redis.XAddArgs{Stream: k.Keys.Events(), ID: fmt.Sprintf("%d-%d", Began+g.Seq/5, g.Seq),
					Values: testkit.Entry("grant", g.Campaign, g.Seq, 1, g.Time.UnixMilli(), store.GrantLine(&g))})
			}
			p.HSet(t.Context(), k.Keys.Meta(), "seq", w.Seq[shard])
			return nil
		})
		require.NoError(t, err)
	}
}

// Target is a handler that counts how often it gets each event.
type Target struct {
	mu sync.Mutex
	// Copies counts how often each event arrived. Calls counts the calls of Handle. Got has all grants in the order of
	// arrival.
	Copies map[string]int
	Calls  int
	Got    []hongbao.Grant
	// Before is called at the start of each Handle. If it returns errors, Handle returns them and takes only the grants
	// without an error.
	Before func(calls int, grants []hongbao.Grant) []error
}

// Handle implements hongbao.Handler.
func (t *Target) Handle(_ context.Context, batch hongbao.Batch) []error {
	grants := batch.Grants
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Calls++
	if t.Before != nil {
		if errs := t.Before(t.Calls, grants); errs != nil {
			for i := range grants {
				if errs[i] == nil {
					t.take(grants[i])
				}
			}
			return errs
		}
	}
	for _, g := range grants {
		t.take(g)
	}
	return nil
}

func (t *Target) take(g hongbao.Grant) {
	t.Copies[g.EventID()]++
	g.EntryID = ""
	t.Got = append(t.Got, g)
}

// Bury makes the grant with this seq a dead letter of sink kafka.
func (w *World) Bury(t *testing.T, shard int, seq int64, class hongbao.Class) {
	t.Helper()
	k, g := w.Store.Shard(shard), Grant(shard, seq)
	_, err := k.Group("kafka").Create(t.Context())
	require.NoError(t, err)
	_, err = k.Group("kafka").ReadNew(t.Context(), "w1", 10_000, 0)
	require.NoError(t, err)
	g.EntryID = fmt.Sprintf("%d-%d", Began+seq/5, seq)
	written, err := k.DeadLetter(t.Context(), store.Letter{
		Group: "kafka", Consumer: "w1", EntryID: g.EntryID, Grant: &g, Last: true, Class: class,
		Reason: "no, \"never\"\nagain", Attempts: 3,
	})
	require.NoError(t, err)
	require.True(t, written)
}

// BuryEntry appends an unreadable entry to shard 0 and makes it a dead letter of sink kafka.
func (w *World) BuryEntry(t *testing.T, fields ...string) {
	t.Helper()
	w.BuryEntryAs(t, hongbao.ClassPermanent, fields...)
}

// BuryEntryAs is BuryEntry with the class of the letter: a forged entry has ClassConflict.
func (w *World) BuryEntryAs(t *testing.T, class hongbao.Class, fields ...string) {
	t.Helper()
	k := w.Store.Shard(0)
	_, err := k.Group("kafka").Create(t.Context())
	require.NoError(t, err)
	id, err := w.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: k.Keys.Events(), Values: fields}).Result()
	require.NoError(t, err)
	_, err = k.Group("kafka").ReadNew(t.Context(), "w1", 10_000, 0)
	require.NoError(t, err)
	_, err = k.DeadLetter(t.Context(), store.Letter{
		Group: "kafka", Consumer: "w1", EntryID: id, Last: true, Class: class, Reason: "can't be read",
		Attempts: 1,
	})
	require.NoError(t, err)
	require.NoError(t, w.Redis.XDel(t.Context(), k.Keys.Events(), id).Err())
}

// Letters returns the deployment's dead letters.
func (w *World) Letters() *deadletter.Letters { return deadletter.New(w.Store) }

// List returns the letters of both sinks that the filter selects. It fails the test if there are more than 1,000.
func List(t *testing.T, l *deadletter.Letters, f deadletter.Filter) []model.Letter {
	t.Helper()
	f.Sinks = []string{"balance", "kafka"}
	page, next, err := l.List(t.Context(), f, "", 1000)
	require.NoError(t, err)
	require.Empty(t, next)
	return page
}
