package stream

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The age is the greater one of two clocks.
func TestAge(t *testing.T) {
	t.Parallel()
	then := time.Now()
	require.Equal(t, time.Minute, Age(then.Add(time.Minute), then))
	require.Equal(t, time.Hour, Age(then, then.Round(0).Add(-time.Hour)), "without a monotonic reading, the wall clock counts")
}

// A stored time that may come from a clock that was ahead counts as less, never as more.
func TestLastWrite(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time {
		return time.UnixMilli(0).Add(time.Hour + time.Duration(seconds)*time.Second)
	}
	unknown := time.UnixMilli(0)
	for _, c := range []struct{ watched, newest, until, want time.Time }{
		{at(10), at(11), at(12), at(11)},
		{at(10), at(9), at(12), at(10)},
		{at(10), at(15), at(60), at(15)},
		{at(10), at(16), at(60), at(10)}, // no process had a young line then
		{at(10), at(13), at(12), at(10)},
		{at(10), time.Time{}, at(12), at(10)}, // the entry was trimmed
		{at(12), at(5), at(12), at(12)},
		{at(13), at(5), at(12), unknown},
		{unknown, at(5), at(12), unknown},
	} {
		require.Equal(t, c.want, LastWrite(c.watched, c.newest, c.until), "%+v", c)
	}
}
