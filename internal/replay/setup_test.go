package replay_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/deadletter"
	"github.com/hongbao-project/hongbao/internal/delivery"
	"github.com/hongbao-project/hongbao/internal/replay"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/stream"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// world is a deployment of two shards with grants in its streams and its ledger.
type world struct {
	rdb    *redis.Client
	space  *shards.Layout
	prefix string
	ledger memLedger
	target *target
	seq    [shardCount]int64
}

const (
	shardCount = 2
	began      = 1_700_000_000_000 // unix ms of seq 0; each seq is a second later
)

func setup(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	w := &world{rdb: testkit.Redis(t).Client(t), prefix: testkit.Prefix(t), target: &target{copies: map[string]int{}}}
	var err error
	w.space, err = shards.NewLayout(hongbao.Space{Prefix: w.prefix, Shards: shardCount})
	require.NoError(t, err)
	require.NoError(t, shards.Found(t.Context(), w.rdb, w.space, shards.FoundCall{Deployment: "test"}))
	return w
}

// grant is what stands under a seq of a shard, always the same.
func grant(shard int, seq int64) hongbao.Grant {
	return hongbao.Grant{
		Shard: shard, Seq: seq, Epoch: 1, Campaign: []string{"rain", "snow"}[seq%2], Packet: seq*shardCount + int64(shard) +
			1, Amount: hongbao.Amount(100 + seq%7),
		User: fmt.Sprintf("u%d", seq%10), RequestID: fmt.Sprintf("r%d", seq), Time: time.UnixMilli(began + seq*1000).UTC(),
	}
}

// add writes n grants to each shard's stream, one or two an entry, and to the ledger.
func (w *world) add(t *testing.T, n int) {
	t.Helper()
	for shard := range shardCount {
		k := w.space.Shard(shard)
		_, err := w.rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range n {
				w.seq[shard]++
				g := grant(shard, w.seq[shard])
				w.ledger.add(g)
				p.XAdd(t.Context(), &redis.XAddArgs{Stream: k.Events(), ID: fmt.Sprintf("%d-%d", began+g.Seq/5, g.Seq),
					Values: []any{
						"v", 1, "k", "grant", "c", g.Campaign, "q", g.Seq, "e", 1, "t", g.Time.UnixMilli(), "g", shards.GrantLine(&g),
					}})
			}
			p.HSet(t.Context(), k.Meta(), "seq", w.seq[shard])
			return nil
		})
		require.NoError(t, err)
	}
}

// trim removes the entries before a seq from a shard's stream.
func (w *world) trim(t *testing.T, shard int, seq int64) {
	t.Helper()
	require.NoError(t, w.rdb.XTrimMinID(t.Context(), w.space.Shard(shard).Events(),
		fmt.Sprintf("%d-%d", began+seq/5, seq)).Err())
}

// dump is every key of the deployment with its exact content.
func (w *world) dump(t *testing.T) map[string]string {
	t.Helper()
	keys, err := w.rdb.Keys(t.Context(), w.prefix+":*").Result()
	require.NoError(t, err)
	out := map[string]string{}
	for _, key := range keys {
		out[key], err = w.rdb.Dump(t.Context(), key).Result()
		require.NoError(t, err)
	}
	return out
}

func (w *world) config(name string) replay.Config {
	return replay.Config{
		Redis: w.rdb, Space: w.space, Ledger: &w.ledger, Name: name, Target: "test",
		DoneSink: replay.DoneSink(name), Parallel: 2,
		Options: delivery.Options{Handler: w.target, BatchGrants: 20, Patience: 10 * time.Second},
	}
}

func (w *world) run(t *testing.T, cfg replay.Config, opts replay.Options) *replay.Report {
	t.Helper()
	r, err := replay.New(cfg)
	require.NoError(t, err)
	report, err := r.Run(t.Context(), opts)
	require.NoError(t, err)
	return report
}

// memLedger is a ledger in memory.
type memLedger struct {
	mu     sync.Mutex
	grants [shardCount][]hongbao.Grant
}

func (l *memLedger) add(g hongbao.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants[g.Shard] = append(l.grants[g.Shard], g)
}

func (l *memLedger) EachGrantBySeq(_ context.Context, shard int, seqs stream.SeqRange,
	fn func(hongbao.Grant) error) error {
	l.mu.Lock()
	list := l.grants[shard]
	l.mu.Unlock()
	for _, g := range list {
		if g.Seq < seqs.First || g.Seq > seqs.Last {
			continue
		}
		if err := fn(g); err != nil {
			return err
		}
	}
	return nil
}

// target is a handler that counts how often each event arrives.
type target struct {
	mu     sync.Mutex
	copies map[string]int
	calls  int
	got    []hongbao.Grant
	// before is asked before each call; its errors are the call's answer, and nothing is taken then.
	before func(calls int, grants []hongbao.Grant) []error
}

func (t *target) Handle(_ context.Context, grants []hongbao.Grant) []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls++
	if t.before != nil {
		if errs := t.before(t.calls, grants); errs != nil {
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

func (t *target) take(g hongbao.Grant) {
	t.copies[g.EventID()]++
	g.EntryID = ""
	t.got = append(t.got, g)
}

// events are the names of the seqs of a shard that pick picks.
func (w *world) events(pick func(g *hongbao.Grant) bool) map[string]int {
	out := map[string]int{}
	for shard := range shardCount {
		for seq := int64(1); seq <= w.seq[shard]; seq++ {
			if g := grant(shard, seq); pick(&g) {
				out[g.EventID()] = 1
			}
		}
	}
	return out
}

func all(*hongbao.Grant) bool { return true }

// bury makes the event of a seq a dead letter of sink kafka.
func (w *world) bury(t *testing.T, shard int, seq int64, class hongbao.Class) {
	t.Helper()
	k, g := w.space.Shard(shard), grant(shard, seq)
	_, err := shards.Of(w.rdb, k).CreateGroup(t.Context(), "kafka")
	require.NoError(t, err)
	_, err = shards.Of(w.rdb, k).ReadNew(t.Context(), "kafka", "w1", 10_000, 0)
	require.NoError(t, err)
	g.EntryID = fmt.Sprintf("%d-%d", began+seq/5, seq)
	written, err := shards.Of(w.rdb, k).DeadLetter(t.Context(), shards.Letter{
		Group: "kafka", Consumer: "w1", EntryID: g.EntryID, Grant: &g, Last: true, Class: class,
		Reason: "no, \"never\"\nagain", Attempts: 3,
	})
	require.NoError(t, err)
	require.True(t, written)
}

// buryEntry makes an entry that can't be read a dead letter of sink kafka.
func (w *world) buryEntry(t *testing.T, fields ...string) {
	t.Helper()
	k := w.space.Shard(0)
	_, err := shards.Of(w.rdb, k).CreateGroup(t.Context(), "kafka")
	require.NoError(t, err)
	id, err := w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: k.Events(), Values: fields}).Result()
	require.NoError(t, err)
	_, err = shards.Of(w.rdb, k).ReadNew(t.Context(), "kafka", "w1", 10_000, 0)
	require.NoError(t, err)
	_, err = shards.Of(w.rdb, k).DeadLetter(t.Context(), shards.Letter{
		Group: "kafka", Consumer: "w1", EntryID: id, Last: true, Class: hongbao.ClassPermanent, Reason: "can't be read",
		Attempts: 1,
	})
	require.NoError(t, err)
	require.NoError(t, w.rdb.XDel(t.Context(), k.Events(), id).Err())
}

func (w *world) letters() *deadletter.Letters { return deadletter.New(w.rdb, w.space) }

func list(t *testing.T, l *deadletter.Letters, f deadletter.Filter) []deadletter.Letter {
	t.Helper()
	f.Sinks = []string{"balance", "kafka"}
	page, next, err := l.List(t.Context(), f, "", 1000)
	require.NoError(t, err)
	require.Empty(t, next)
	return page
}

func newEntry(k shards.Keys, values ...string) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: k.Events(), Values: values}
}
