package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Redis' clock was ahead by an hour, so all later ids are ahead. The grants of a time are counted by their own times.
func TestGrantedInGoesByTheGrantsTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 1000))
	b.grab(t, "rain", "first")
	now, err := b.rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	id := fmt.Sprintf("%d-0", now.Add(time.Hour).UnixMilli())
	require.NoError(t, b.rdb.Do(t.Context(), "XSETID", b.k.Keys.Events(), id).Err())
	const early, late = 250, 120
	for i := range early - 1 {
		b.grab(t, "rain", fmt.Sprint("early", i))
	}
	entries, err := b.k.Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	between := entries[len(entries)-1].Time
	for time.Now().UnixMilli() <= between.UnixMilli()+1 { // the next grant has a later time
	}
	for i := range late {
		b.grab(t, "rain", fmt.Sprint("late", i))
	}
	count := func(since, until time.Time) int64 {
		n, err := b.k.GrantedIn(t.Context(), since, until)
		require.NoError(t, err)
		return n
	}
	require.EqualValues(t, late, count(between, now.Add(time.Minute)))
	require.EqualValues(t, early+late, count(now.Add(-time.Minute), now.Add(time.Minute)), "more than one page")
	require.Zero(t, count(now.Add(time.Minute), now.Add(2*time.Hour)))
	require.Zero(t, count(now.Add(-time.Hour), now.Add(-time.Minute)), "all are later")
}
