package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/app"
)

// The line of the progress fits into the terminal, replaces the one before, and is gone at the end. Without a terminal
// nothing is printed.
func TestProgressLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := newProgressLine(&out)
	require.Nil(t, l.hooks().Progress, "a buffer is no terminal")
	width := 80
	l.width = func() int { return width }
	show := l.hooks().Progress
	show(app.Progress{})
	require.Empty(t, out.String(), "nothing was shown yet")
	show(app.Progress{What: "loading rain", Done: 20_000, Of: 100_000, PerSecond: 5_000, Rest: 16 * time.Second})
	require.Equal(t, "loading rain: 20,000 of 100,000 (20 %), 5,000 a second, 16s left\x1b[K\r", out.String())
	out.Reset()
	width = 13
	show(app.Progress{What: "loading rain", Done: 30_000, Of: 100_000})
	require.Equal(t, "loading rain\x1b[K\r", out.String(), "the last column stays free, or the terminal would begin another line")
	out.Reset()
	show(app.Progress{})
	show(app.Progress{})
	require.Equal(t, "\x1b[K", out.String())
}
