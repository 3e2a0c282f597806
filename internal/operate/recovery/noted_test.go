package recovery_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// small is a margin that covers no grant, unless it was made just before the last write.
func small(c *recovery.Config) { c.Margin = time.Millisecond }

// Redis comes back from one file twice, and has lost no event: only the first of the two openings. A process that may
// have reported grants is silent. The seqs that the lost opening skipped are no events, so no packet is withheld.
func TestTwoQuietRestartsWithholdNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.fundBurst(t)
	p, _ := w.pair(t)
	w.looks(t, p)
	old := w.older(t)
	w.restart(t, old)
	w.restores(t, w.guarded(small))
	w.looks(t, p)
	last := w.seq(t)
	w.restart(t, old)
	testkit.Eventually(t, 10*time.Second, func() bool {
		z, err := w.shard().Freeze(t.Context())
		return err == nil && z.Frozen && seenOf(t, w) == last
	}, "a process has seen the end of the first opening")
	w.restores(t, w.guarded(small))
	require.Zero(t, w.withheldOf(t, burst))
	require.Zero(t, w.withheldOf(t, id))
	require.Len(t, p.wins(t, 5), 5)
	require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len())
}

// seenOf returns the highest seq that a process has reported to the frozen shard.
func seenOf(t *testing.T, w *world) int64 {
	t.Helper()
	reports, err := w.rec.Reports(t.Context())
	require.NoError(t, err)
	return reports[0].Seen
}

// Redis comes back from one file twice, and every process reports. A campaign over two shards goes on: no event is
// missing, so none of its users can have found the place empty.
func TestTwoQuietRestartsOfAPlace(t *testing.T) {
	t.Parallel()
	w := setupOf(t, 4)
	wide := w.idAt(0)
	w.fundOver(t, wide, 0, 2)
	places := w.store.Places(wide, 2)
	p := w.process(t)
	p.watch(t)
	for i, k := range places {
		_, err := w.over(p.rdb).Shard(k.Index()).Place(wide).Grab(t.Context(), storetest.Call(wide, fmt.Sprintf("p%d/r", i)), nil)
		require.NoError(t, err)
	}
	w.looks(t, p) // the last write is later than the grants by more than the margin
	old := w.older(t)
	r := w.guarded(long, small)
	for range 2 {
		w.looks(t, p)
		w.restart(t, old)
		for shard := range 4 {
			w.openedBy(t, r, shard)
		}
	}
	for _, k := range places {
		list, err := k.Withheld(t.Context())
		require.NoError(t, err)
		require.Empty(t, list, "shard %d", k.Index())
	}
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 3}, outcomes(w.grabIn(t, w.server.Client(t), wide, 3)))
}

// The ledger notes the first seq after an opening, and Redis restarts just before it. A grant or a sight of the epoch
// before has a higher seq. The noted seq ends no epoch: each unknown event up to there withholds a packet.
func TestNotedOpeningThatDidNotHappen(t *testing.T) {
	t.Parallel()
	const far = 70_000
	for name, evidence := range map[string]func(t *testing.T, w *world){
		"a grant": func(t *testing.T, w *world) {
			t.Helper()
			packet, err := w.rdb.LIndex(t.Context(), w.shard().Keys.Stock(burst), far).Result()
			require.NoError(t, err)
			g := hongbao.Grant{Campaign: burst, User: "far", RequestID: "r", Seq: far, Epoch: 1, Currency: "CNY",
				Time: time.Now()}
			_, err = fmt.Sscan(packet, &g.Packet, &g.Amount)
			require.NoError(t, err)
			w.topic.grants = []hongbao.Grant{g}
		},
		"a sight": func(t *testing.T, w *world) { t.Helper(); w.saw(t, far) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.fundBurst(t)
			w.pair(t)
			old := w.older(t)
			w.restart(t, "")
			dies := &changed{Ledger: w.ledger, note: sync.OnceFunc(func() { w.restart(t, old) })}
			_ = w.guarded(small, over(dies)).OpenFrozen(t.Context(), 0)
			require.NoError(t, w.rdb.Del(t.Context(), w.shard().Keys.Lock("recover")).Err()) // as if the lease had expired
			fences, err := w.ledger.Fences(t.Context(), 0)
			require.NoError(t, err)
			require.Contains(t, fences[0].Note, `"next_seq":65536`)
			require.EqualValues(t, 11, w.seq(t), "the opening did not happen")
			evidence(t, w)
			w.restores(t, w.guarded(small))
			require.GreaterOrEqual(t, w.withheldOf(t, burst), far-12)
			require.Less(t, w.withheldOf(t, burst), far+12)
		})
	}
}

// Redis has every event that a source knows. The log says that nothing was lost only if every process has reported.
func TestLogOfAnOpeningWithoutAKnownLoss(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reports bool
		says    string
	}{
		"every process has reported": {true, "nothing was lost"},
		"a process is silent":        {false, "no loss is known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			p := w.process(t)
			if c.reports {
				p.watch(t)
			}
			p.wins(t, 5)
			w.restart(t, "")
			w.restores(t, w.guarded(long))
			opened := w.logs.FilterMessageSnippet("a frozen shard is open again").All()
			require.Len(t, opened, 1)
			require.Contains(t, opened[0].Message, c.says)
			require.Equal(t, c.reports, opened[0].ContextMap()["every process has reported"])
		})
	}
}
