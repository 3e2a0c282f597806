package test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A campaign is loaded, a crowd grabs, and every grant is settled once.
func TestCampaignToLedger(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	c := spec("smoke", 500, 10_000)
	ledger, settler := b.ledger(t, b.load(t, c))
	p := b.producer(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[hongbao.Outcome]int{}
	for i := range 64 {
		wg.Go(func() {
			for u := i; u < 1000; u += 64 {
				a, err := p.Grab(t.Context(), &hongbao.Grab{Campaign: "smoke", User: user(u)})
				mu.Lock()
				if err != nil {
					t.Error(err)
				}
				got[a.Outcome]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 500, hongbao.OutcomeSoldOut: 500}, got)

	w, stop := b.work(t, "balance", "w1", settler, func(*consumer.Config) {})
	testkit.Eventually(t, 30*time.Second, func() bool { return w.Stats().Done == 500 }, "all settled")
	stop()
	totals, found, err := books.Of(ledger.Tables()).Totals(t.Context(), "smoke")
	require.NoError(t, err)
	require.True(t, found)
	require.EqualValues(t, 10_000, totals.Granted)
}
