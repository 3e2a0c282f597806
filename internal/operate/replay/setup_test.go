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
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter/deadlettertest"
	"github.com/hongbao-project/hongbao/internal/operate/delivery"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// world is a deployment of two shards. Its streams and its ledger have the same grants.
type world struct {
	*deadlettertest.World
	ledger memLedger
}

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{World: deadlettertest.Setup(t)}
	w.OnGrant = w.ledger.add
	return w
}

func (w *world) trim(t *testing.T, shard int, seq int64) {
	t.Helper()
	require.NoError(t, w.Redis.XTrimMinID(t.Context(), w.Store.Shard(shard).Keys.Events(),
		fmt.Sprintf("%d-%d", deadlettertest.Began+seq/5, seq)).Err())
}

func (w *world) config(name string) replay.Config {
	return replay.Config{
		Store: w.Store, Ledger: &w.ledger, Name: name, Target: "test",
		DoneSink: replay.DoneSink(name), Parallel: 2,
		Options: delivery.Options{Handler: w.Target, BatchGrants: 20, Patience: 10 * time.Second},
	}
}

func (w *world) run(t *testing.T, cfg replay.Config, opts replay.Options) *model.ReplayReport {
	t.Helper()
	r, err := replay.New(cfg)
	require.NoError(t, err)
	report, err := r.Run(t.Context(), opts)
	require.NoError(t, err)
	return report
}

type memLedger struct {
	mu     sync.Mutex
	grants [deadlettertest.Shards][]hongbao.Grant
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

// events returns the event IDs of the grants that pick selects, each with count 1.
func (w *world) events(pick func(g *hongbao.Grant) bool) map[string]int {
	out := map[string]int{}
	for shard := range deadlettertest.Shards {
		for seq := int64(1); seq <= w.Seq[shard]; seq++ {
			if g := deadlettertest.Grant(shard, seq); pick(&g) {
				out[g.EventID()] = 1
			}
		}
	}
	return out
}

func all(*hongbao.Grant) bool { return true }

func newEntry(k *store.Shard, values ...any) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: k.Keys.Events(), Values: values}
}
