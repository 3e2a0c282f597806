package settlement

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// What ended in quarantine is recorded for the very grant that did, and for no other of its packet.
func testRecordedAside(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	paid, other := grant("rain", 3), grant("rain", 3)
	other.User = "somebody"
	f.settles(t, paid, other)
	f.disown(t, "nowhere")
	f.settles(t, grantsOf("nowhere", 1, 3)...)
	require.Len(t, f.open(t), 4)
	_, err := f.ledger.Decide(t.Context(), Decision{ID: f.open(t)[1].ID, By: "ann", Why: "not paid"}, nil)
	require.NoError(t, err)
	altered := grant("nowhere", 2)
	altered.User = "somebody"
	got, err := f.Settler.Recorded(t.Context(), []hongbao.Grant{other, grant("rain", 4), grant("nowhere", 1), altered, grant("nowhere", 3)})
	require.NoError(t, err)
	want := []hongbao.Grant{paid, grant("nowhere", 1), grant("nowhere", 3)}
	for i := range want {
		want[i].EntryID = ""
	}
	require.ElementsMatch(t, want, got)
}

func testIntend(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	g := grant("rain", 3)
	begin := time.Now().Add(-time.Millisecond)
	by, since, err := f.Settler.Intend(t.Context(), &g, "h1")
	require.NoError(t, err)
	require.Equal(t, "h1", by)
	require.WithinRange(t, since, begin, time.Now())
	testkit.Eventually(t, 10*time.Second, func() bool { return time.Now().UnixMilli() > since.UnixMilli() }, "the clock goes on")
	_, again, err := f.Settler.Intend(t.Context(), &g, "h1")
	require.NoError(t, err)
	require.True(t, again.After(since), "nothing was sent under it before, so it counts from now on")
	by, at, err := f.Settler.Intend(t.Context(), &g, "h2")
	require.NoError(t, err)
	require.Equal(t, "h1", by, "the first note stands")
	require.Equal(t, again, at)
	require.NoError(t, f.Settler.Forget(t.Context(), &g, "h2"))
	by, _, err = f.Settler.Intend(t.Context(), &g, "h3")
	require.NoError(t, err)
	require.Equal(t, "h1", by, "another claim's note is not removed")
	for range 2 {
		require.NoError(t, f.Settler.Forget(t.Context(), &g, "h1"))
	}
	by, _, err = f.Settler.Intend(t.Context(), &g, "h3")
	require.NoError(t, err)
	require.Equal(t, "h3", by)
	f.settles(t, g)
	f.holds(t, "rain", grantsOf("rain", 3, 3))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = f.Settler.Intend(ctx, &g, "h4")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, f.Settler.Forget(ctx, &g, "h3"), context.Canceled)
}

// Of many that note one grant at once, some removing theirs again, just one at a time is told that it may go on.
func testIntendTogether(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	var inside, rounds atomic.Int64
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			g := grant("rain", 5)
			for i := range 20 {
				claim := fmt.Sprintf("h%d-%d", w, i)
				by, _, err := f.Settler.Intend(t.Context(), &g, claim)
				if err != nil {
					t.Errorf("intend: %v", err)
					return
				}
				if by != claim {
					continue
				}
				rounds.Add(1)
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d were told to go on at once", n)
				}
				inside.Add(-1)
				if err := f.Settler.Forget(t.Context(), &g, claim); err != nil {
					t.Errorf("forget: %v", err)
				}
			}
		})
	}
	wg.Wait()
	require.Positive(t, rounds.Load())
}
