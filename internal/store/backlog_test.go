package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// The script checks a bound above 1,000 once every bound/1,000 events. So no shard exceeds the bound by more than
// that, whatever the sizes of the calls. Grabs are granted again after the sinks have finished some events.
func TestBacklogIsLookedAtSeldom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 300))
	const bound = 20_000 // the script checks it before each seq that is a multiple of 20
	b.reached(t, bound-7)
	users := 0
	grab := func(n int) (granted int) {
		c := call("rain")
		c.MaxBacklog = bound
		for range n {
			users++
			c.Grabs = append(c.Grabs, &hongbao.Grab{Campaign: "rain", User: fmt.Sprint("u", users)})
		}
		answers, err := b.k.Place("rain").Grab(t.Context(), c, nil)
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
	require.Equal(t, 7, grab(30), "the script checks and finds room for 7")
	require.Zero(t, grab(20), "the script checks and finds no room")
	for i := range 19 {
		require.Equal(t, 1, grab(1), "call %d did not check", i)
	}
	for range 3 {
		require.Zero(t, grab(1), "the seq would be a multiple of 20, so the script checks")
	}
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "finished", 21).Err())
	require.Equal(t, 2, grab(5), "21 finished events make room for 2: 19 were above the bound")
}
