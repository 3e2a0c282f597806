package publish

import (
	"context"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
)

// history is a random sequence of actions and faults of some workers, on two shards of one partition.
type history struct {
	b       *bench
	shards  [2]int
	workers []*Publisher
	wires   []*wire
	grants  [][]hongbao.Grant
	met     map[string]int // counts of faults and of the ways in which claims were settled, over all histories
}

func (h *history) hire(t *testing.T) {
	p, w := h.b.worker(t)
	h.workers, h.wires = append(h.workers, p), append(h.wires, w)
}

// step decides new grants. Then one worker handles some of the new or old grants, with random faults.
func (h *history) step(t *testing.T, r *rapid.T) {
	fresh := h.b.store.grants(h.shards[rapid.IntRange(0, 1).Draw(r, "shard")], rapid.IntRange(1, 4).Draw(r, "n"), decided)
	h.grants = append(h.grants, fresh)
	i := rapid.IntRange(0, len(h.workers)-1).Draw(r, "worker")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h.troubleWire(r, h.wires[i], cancel)
	h.troubleRedis(r)
	remembers := time.Duration(0)
	if rapid.Bool().Draw(r, "the broker remembers") {
		remembers = 24 * time.Hour
	}
	h.workers[i].expiration.Store(int64(remembers))
	h.workers[i].Handle(ctx, testkit.Batch(h.grants[rapid.IntRange(0, len(h.grants)-1).Draw(r, "grants")]))
	if rapid.Bool().Draw(r, "late copies come") {
		h.wires[i].flushQuietly()
	}
	if rapid.IntRange(0, 3).Draw(r, "worker dies") == 0 {
		h.hire(t)
	}
}

// troubleWire draws the fates of the next requests, and the request at which the lease ends.
func (h *history) troubleWire(r *rapid.T, w *wire, loseLease func()) {
	next := fates(rapid.SliceOfN(rapid.SampledFrom([]fate{pass, lost, swallow, deferred}), 0, 3).Draw(r, "wire")...)
	dies, n := rapid.IntRange(0, 4).Draw(r, "lease ends at send"), 0
	w.fate = func() fate {
		if n++; n == dies {
			loseLease()
		}
		return next()
	}
}

// troubleRedis draws one call that fails once, either before or after its effect.
func (h *history) troubleRedis(r *rapid.T) {
	op := rapid.SampledFrom([]string{"", "", "claim", "complete", "release", "entries"}).Draw(r, "redis fails at")
	after := rapid.Bool().Draw(r, "after its effect")
	down := hongbao.Errorf(hongbao.ClassUnknown, "redis is down")
	h.b.store.fault = func(o string) (error, error) {
		if o != op {
			return nil, nil
		}
		op = ""
		h.met[o]++
		if after {
			return nil, down
		}
		return down, nil
	}
}

// end lets a new worker handle all grants without faults. Then it sends the deferred copies.
func (h *history) end(t *testing.T, r *rapid.T) {
	h.b.store.fault = nil
	last, _ := h.b.worker(t)
	for _, g := range h.grants {
		require.Nil(r, last.Handle(context.Background(), testkit.Batch(g)))
	}
	for _, w := range h.wires {
		h.met["late"] += w.flushQuietly()
		h.met["wire"] += w.fired
	}
	for _, p := range append(h.workers, last) {
		s := p.Stats()
		h.met["taken over"] += int(s.TakenOver)
		h.met["sent again"] += int(s.SentAgain)
		h.met["found in log"] += int(s.FoundInLog)
		h.met["let go"] += int(s.LetGo)
	}
}

// Random histories: requests and responses are lost, copies arrive late, claims and completes fail before or after
// their effect, leases end, and workers die. After the faults have stopped, each event must be in the topic exactly
// once.
func TestOneCopyWhateverHappens(t *testing.T) {
	t.Parallel()
	b := setup(t)
	shard := 0
	met := map[string]int{}
	var all [][]hongbao.Grant
	rapid.Check(t, func(r *rapid.T) {
		h := &history{b: b, shards: [2]int{shard, shard + 2}, met: met} // new shards, but the same partition
		shard += 4
		h.hire(t)
		h.hire(t)
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			h.step(t, r)
		}
		h.end(t, r)
		all = append(all, h.grants...)
	})
	requireOneCopy(t, &b.cfg, all...)
	for _, what := range []string{"claim", "wire", "taken over", "sent again"} { // other tests cover the rarer cases
		require.Positive(t, met[what], "the histories never met: %s (%v)", what, met)
	}
	t.Log(met)
}
