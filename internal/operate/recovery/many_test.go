package recovery_test

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

var restores = flag.Int("restores", 20, "TestManyRestores: how often Redis restarts from one file")

// Redis restarts from one file again and again. No sink finishes an event, and each opening skips seqs, so grabs would be
// `busy` if skipped seqs counted. Nothing grows with the number of openings, and no two users see one packet.
func TestManyRestores(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.rec = w.guarded(func(c *recovery.Config) { c.Gather = 200 * time.Millisecond })
	p := w.process(t)
	p.wins(t, 5)
	w.settle(t)
	old, first := w.older(t), w.seq(t)
	p.watch(t)
	t.Cleanup(func() {
		if all := w.logs.All(); t.Failed() && len(all) > 0 {
			t.Logf("the last log line: %+v", all[len(all)-1])
		}
	})
	seen := map[int64]bool{}
	var took []time.Duration
	for i := range *restores {
		w.restart(t, old)
		began := time.Now()
		testkit.EventuallyOK(t, 20*time.Second, func() error { // a process may report meanwhile
			if err := w.rec.OpenFrozen(t.Context(), 0); err != nil {
				return err
			}
			_, err := w.shard().OpenHead(t.Context())
			return err
		}, "the shard is open")
		took = append(took, time.Since(began))
		if i%10 != 9 {
			continue
		}
		w.user++
		call := storetest.Call(id, "u"+time.Now().Format("150405.000000")+"/r")
		call.MaxBacklog = 1000
		answers, err := w.shard().Place(id).Grab(t.Context(), call, nil)
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeGranted, answers[0].Outcome, "after %d openings", i+1)
		packet := answers[0].Receipts[0].Packet
		require.False(t, seen[packet], "two users saw packet %d", packet)
		seen[packet] = true
		w.settle(t)
	}
	last := w.seq(t)
	require.LessOrEqual(t, last-first, int64(*restores)*5*store.ChunkEvents/2, "far below 2^53")
	meta, err := w.rdb.MemoryUsage(t.Context(), w.shard().Keys.Meta()).Result()
	require.NoError(t, err)
	require.Less(t, meta, int64(4096), "bytes of meta")
	began := time.Now()
	audited := struct {
		*ledger.Ledger
		books.Books
	}{w.ledger, books.Of(w.ledger.Tables())}
	report, err := audit.Run(t.Context(), audit.Config{Store: w.store, Ledger: audited, LedgerGroup: "balance", MaxListed: 10},
		audit.Options{})
	require.NoError(t, err)
	lasted := time.Since(began)
	require.EqualValues(t, 5+len(seen), report.Total.Settled)
	require.Less(t, lasted, time.Minute)
	tenth := max(len(took)/10, 1)
	t.Logf("%d restores: seq %d, meta %d bytes, withheld %d, the first ones took %s, the last ones %s, the audit %s", *restores,
		last, meta, w.withheldOf(t, id), mean(took[:tenth]), mean(took[len(took)-tenth:]), lasted.Round(time.Millisecond))
}

func mean(list []time.Duration) (d time.Duration) {
	for _, one := range list {
		d += one
	}
	return (d / time.Duration(len(list))).Round(time.Millisecond)
}
