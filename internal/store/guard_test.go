package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// A shard was opened again after a worker read its batch. No script that the worker calls for the batch changes
// anything, although the server has the script and was not restarted.
func TestScriptsOfAnEarlierEpoch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range scriptCases() {
		if !slices.Contains(store.Guarded(), name) || name == "leave" { // a process leaves in any epoch
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, b.rdb)
			c.setup(t, b)
			require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "epoch", 2).Err())
			before := b.dump(t)
			require.ErrorIs(t, c.call(t.Context(), b.at(1)), store.ErrStale)
			require.Empty(t, differ(before, b.dump(t)))
			require.NoError(t, c.call(t.Context(), b.at(2)))
		})
	}
}

// at returns the bundle with the shard in an epoch.
func (b *bundle) at(epoch int64) *bundle {
	at := *b
	at.k = b.k.At(epoch)
	return &at
}

// Redis came back from a copy that was opened for another server, and the process still has the scripts' names for
// this one. No script changes anything, and no user gets a packet.
func TestScriptsOfAnotherServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range scriptCases() {
		if name != "grab" && !slices.Contains(store.Guarded(), name) || name == "leave" { // a process leaves once
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, b.rdb)
			c.setup(t, b)
			begun := b.dump(t)
			require.NoError(t, c.call(t.Context(), b)) // from now on the server has the script
			b.restore(t, begun)
			require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "opened", "another").Err())
			before := b.content(t, fmt.Sprint)
			var answers []hongbao.Answer
			var err error
			switch name {
			case "grab":
				answers, err = b.k.Place("rain").Grab(t.Context(), call("rain", "u8"), nil)
			case "receipts":
				answers, err = b.k.Place("rain").Receipts(t.Context(), call("rain", "u1").Grabs, nil)
			default:
				require.ErrorIs(t, c.call(t.Context(), b), store.ErrFrozen)
			}
			require.NoError(t, err)
			for i := range answers {
				require.Equal(t, hongbao.OutcomeFrozen, answers[i].Outcome)
			}
			after := b.content(t, fmt.Sprint)
			delete(before, b.k.Keys.Meta()) // the shard is frozen
			delete(after, b.k.Keys.Meta())
			require.Equal(t, before, after)
		})
	}
}
