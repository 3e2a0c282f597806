package simulation

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// Virtual time stands if a process works or waits for long at one instant. It does not if the machine was stopped, which
// charges its time to the process at once, if the process gets no processor, or between two histories.
func TestStanding(t *testing.T) {
	t.Parallel()
	const second, history, none = time.Second, true, false
	for name, c := range map[string]struct {
		runs         bool
		real, worked time.Duration // between two looks
		looks        int
		want         bool
	}{
		"works for 6 s":                     {history, second, second, 6, true},
		"works for 4 s":                     {history, second, second, 4, false},
		"the machine was stopped for 10 s":  {history, 10 * second, 10 * second, 1, false},
		"and then it works for 2 s":         {history, 4 * second, 4 * second, 3, false},
		"gets half a second of a processor": {history, 10 * second, second / 10, 5, false},
		"waits for more than a minute":      {history, second, 0, 62, true},
		"no history runs":                   {none, second, second, 100, false},
	} {
		var s standing
		at, worked := time.Now(), time.Duration(0)
		stands := s.stands(look{100, c.runs, at, worked})
		for range c.looks {
			at, worked = at.Add(c.real), worked+c.worked
			stands = stands || s.stands(look{100, c.runs, at, worked})
		}
		require.Equal(t, c.want, stands, name)
	}
	var s standing
	for i := range int64(100) {
		require.False(t, s.stands(look{i, true, time.Now(), time.Duration(i) * time.Minute}), "virtual time goes on")
	}
}

// Time goes on from one history to the next. Shrinking runs many histories that take equally long; a look at each of
// them must not find the same beats.
func TestHistoriesAreNotOneThatStands(t *testing.T) {
	t.Parallel()
	d := &Watchdog{}
	var s standing
	for i := range 100 {
		synctest.Test(t, func(*testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			go d.Beat(ctx)
			_ = virtual.Sleep(ctx, time.Until(virtual.Epoch)+10*time.Second+time.Second/2)
			now := d.look()
			require.True(t, now.runs)
			now.worked = time.Duration(i) * time.Second
			require.False(t, s.stands(now), "history %d", i)
			cancel()
			synctest.Wait()
		})
		require.False(t, d.look().runs)
	}
}
