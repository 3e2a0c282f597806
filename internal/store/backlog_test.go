package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// A bound above a thousand is checked once in a thousandth of it. No shard has more events above the bound than that,
// however the calls come. Grabs continue when the sinks have finished some.
func TestBacklogIsLookedAtSeldom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 300))
	const bound = 20_000 // it is checked before each seq that is a multiple of 20
	b.reached(t, bound-7)
	users := 0
	grab := func(n int) (granted int) {
		c := call("rain")
		c.MaxBacklog = bound
		for range n {
			users++
			c.Grabs = append(c.Grabs, &hongbao.Grab{Campaign: "rain", User: fmt.Sprint("u", users)})
		}
		answers, err := b.k.Grab(t.Context(), c, nil)
		require.NoError(t, err)
		for _, a := range answers {
			if a.Outcome == hongbao.OutcomeGranted {
				granted++
			} else {
				require.Equal(t, hongbao.OutcomeBusy, a.Outcome)
			}
		}
		return granted
	}
	require.Equal(t, 7, grab(30), "it checked: there is room for 7")
	require.Zero(t, grab(20), "it checked: there is no room")
	for i := range 19 {
		require.Equal(t, 1, grab(1), "call %d did not check", i)
	}
	for range 3 {
		require.Zero(t, grab(1), "this one would come to a multiple of 20")
	}
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "finished", 21).Err())
	require.Equal(t, 2, grab(5), "of 19 above the bound 21 are finished")
}
