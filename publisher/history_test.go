package publisher

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
)

// Random histories: two workers on two shards that share a partition; requests and answers are lost, copies come late, claims and
// completes fail before or after their effect, leases end, workers die. In the end, with the faults gone, each event is
// in the topic once.
func TestOneCopyWhateverHappens(t *testing.T) {
	t.Parallel()
	b := setup(t)
	shard := 0
	total := map[string]int{}
	var pending [][]hongbao.Grant
	rapid.Check(t, func(r *rapid.T) {
		shards := [2]int{shard, shard + 2} // fresh ones, same partition
		shard += 4
		var workers []*Publisher
		var wires []*wire
		hire := func() {
			p, w := b.worker(t)
			workers, wires = append(workers, p), append(wires, w)
		}
		hire()
		hire()
		down := hongbao.Errorf(hongbao.Unknown, "redis is away")
		steps := rapid.IntRange(1, 8).Draw(r, "steps")
		var mine [][]hongbao.Grant
		for range steps {
			mine = append(mine, b.store.grants(shards[rapid.IntRange(0, 1).Draw(r, "shard")], rapid.IntRange(1, 4).Draw(r, "n"), decided))
			i := rapid.IntRange(0, len(workers)-1).Draw(r, "worker")
			ctx, cancel := context.WithCancel(context.Background())
			trouble := rapid.SliceOfN(rapid.SampledFrom([]fate{pass, lost, swallow, deferred}), 0, 3).Draw(r, "wire")
			dies := rapid.IntRange(0, 4).Draw(r, "lease ends at send")
			next, n := fates(trouble...), 0
			wires[i].fate = func() fate {
				if n++; n == dies {
					cancel()
				}
				return next()
			}
			op := rapid.SampledFrom([]string{"", "", "claim", "complete", "release", "entries"}).Draw(r, "redis fails at")
			after := rapid.Bool().Draw(r, "after its effect")
			b.store.fault = func(o string) (error, error) {
				if o != op {
					return nil, nil
				}
				op = ""
				total[o]++
				if after {
					return nil, down
				}
				return down, nil
			}
			young := rapid.Bool().Draw(r, "the broker remembers")
			if !young {
				workers[i].expiration.Store(0)
			} else {
				workers[i].expiration.Store(int64(24 * time.Hour))
			}
			group := mine[rapid.IntRange(0, len(mine)-1).Draw(r, "grants")]
			workers[i].Handle(ctx, group)
			cancel()
			if rapid.Bool().Draw(r, "late copies come") {
				wires[i].flushQuietly()
			}
			if rapid.IntRange(0, 3).Draw(r, "worker dies") == 0 {
				hire()
			}
		}
		b.store.fault = nil
		last, _ := b.worker(t)
		for _, g := range mine {
			require.Nil(r, last.Handle(context.Background(), g))
		}
		for _, w := range wires {
			total["late"] += w.flushQuietly()
			total["wire"] += w.fired
		}
		for _, p := range append(workers, last) {
			s := p.Stats()
			total["taken over"] += int(s.TakenOver)
			total["sent again"] += int(s.SentAgain)
			total["found in log"] += int(s.FoundInLog)
			total["let go"] += int(s.LetGo)
		}
		pending = append(pending, mine...)
	})
	requireOneCopy(t, &b.cfg, pending...)
	for _, what := range []string{"claim", "wire", "taken over", "sent again"} { // the rest has tests of its own
		require.Positive(t, total[what], "the histories never met: %s (%v)", what, total)
	}
	t.Log(total)
}
