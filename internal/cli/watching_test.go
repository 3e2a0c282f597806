package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// count is a reading for tests.
type count struct {
	N     int `json:"n"`
	lines int
}

func (c count) screen(w io.Writer) error {
	t := newColumns(w)
	for i := range c.lines {
		fmt.Fprintf(t, "line\t%d\t%s\n", i, styled(good, fmt.Sprint(c.N)))
	}
	return t.Flush()
}
func (c count) line() string { return fmt.Sprintf("%d granted", c.N) }
func (c count) news() string {
	if c.lines == 0 {
		return "the same"
	}
	return c.line()
}
func (count) zone() *time.Location { return time.UTC }

// watched runs a watcher until the readings are used up, and returns its output. A reading is a number or an error.
func watched(t *testing.T, w *watcher, readings ...any) (string, error) {
	t.Helper()
	var out bytes.Buffer
	var err error
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		w.out, w.every, w.now = &out, time.Second, time.Now
		i := 0
		err = w.run(ctx, func(context.Context) (reading, error) {
			r := readings[i]
			if i++; i == len(readings) {
				time.AfterFunc(w.every/2, end)
			}
			if err, ok := r.(error); ok {
				return nil, err
			}
			n, _ := r.(int)
			lines := 3
			if n > 100 {
				lines = 0
			}
			return count{n % 100, lines}, nil
		})
	})
	return out.String(), err
}

// Into a pipe it prints one line for each change, goes on while a server is down, and ends with a last line.
func TestWatchIntoAPipe(t *testing.T) {
	t.Parallel()
	down := hongbao.Outagef(hongbao.ClassTransient, "redis is down")
	out, err := watched(t, &watcher{}, 1, 1, 1, 2, down, down, 2, 3)
	require.NoError(t, err)
	require.Equal(t, `2000-01-01T00:00:00Z 1 granted
2000-01-01T00:00:03Z 2 granted
2000-01-01T00:00:04Z no answer: redis is down
2000-01-01T00:00:06Z 2 granted
2000-01-01T00:00:07Z 3 granted
2000-01-01T00:00:07Z ended after 8s: 3 granted
`, out)
	require.NotContains(t, out, "\x1b")
	out, err = watched(t, &watcher{json: true}, 1, 1, down, 2)
	require.NoError(t, err)
	require.Equal(t, "{\"n\":1}\n{\"n\":2}\n", out)
}

// A change without news waits until ten seconds after the last line. News, such as an outage, do not wait.
func TestWatchWithoutNewsWaits(t *testing.T) {
	t.Parallel()
	down := hongbao.Outagef(hongbao.ClassTransient, "redis is down")
	out, err := watched(t, &watcher{}, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, down, 113)
	require.NoError(t, err)
	require.Equal(t, `2000-01-01T00:00:00Z 1 granted
2000-01-01T00:00:10Z 11 granted
2000-01-01T00:00:12Z no answer: redis is down
2000-01-01T00:00:13Z 13 granted
2000-01-01T00:00:13Z ended after 14s: 13 granted
`, out)
}

// An error that a retry does not help ends it, and so does any error before the first answer.
func TestWatchEndsWithAnError(t *testing.T) {
	t.Parallel()
	down, unknown := hongbao.Outagef(hongbao.ClassTransient, "redis is down"), errors.New("no such campaign")
	_, err := watched(t, &watcher{}, down)
	require.ErrorIs(t, err, down)
	_, err = watched(t, &watcher{}, 1, down, unknown)
	require.ErrorIs(t, err, unknown)
}

// On a terminal each answer replaces the last one. No line is longer than the terminal, and no text is taller.
func TestWatchOnATerminal(t *testing.T) {
	t.Parallel()
	size := func() (int, int) { return 40, 24 }
	out, err := watched(t, &watcher{size: size, colour: true}, 1, 2)
	require.NoError(t, err)
	frames := strings.Split(out, "\r\x1b[J")
	require.Len(t, frames, 4, "two answers and the end")
	require.Equal(t, "line  0  \x1b[32m1\x1b[0m\nline  1  \x1b[32m1\x1b[0m\nline  2  \x1b[32m1\x1b[0m\n"+
		"\x1b[2m2000-01-01 00:00:00 +00:00, every 1s, C\x1b[0m…\n\x1b[4A", frames[1])
	require.Contains(t, frames[2], "line  0  \x1b[32m2\x1b[0m\n")
	require.Equal(t, "2000-01-01T00:00:01Z ended after 2s: 2 granted\n", frames[3])

	low := func() (int, int) { return 40, 3 }
	out, err = watched(t, &watcher{size: low}, 1, 2)
	require.NoError(t, err)
	for _, frame := range strings.Split(out, "\r\x1b[J")[1:3] {
		require.LessOrEqual(t, strings.Count(frame, "\n"), 2)
	}
	require.NotContains(t, out, "\x1b[3", "no colour")
}
