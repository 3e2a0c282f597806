package cli

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// shownLine returns a progress line for a terminal of that width, and what returns its output since the last call.
func shownLine(width *int) (l *progressLine, written func() string) {
	var mu sync.Mutex
	var out bytes.Buffer
	l = newProgressLine(writerFunc(func(text []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(text)
	}))
	l.width = func() int { return *width }
	return l, func() string {
		mu.Lock()
		defer mu.Unlock()
		defer out.Reset()
		return out.String()
	}
}

type writerFunc func(text []byte) (int, error)

func (f writerFunc) Write(text []byte) (int, error) { return f(text) }

// The line of the progress fits into the terminal, replaces the one before, and is gone at the end. Without a terminal
// nothing is printed.
func TestProgressLine(t *testing.T) {
	t.Parallel()
	require.Nil(t, newProgressLine(&bytes.Buffer{}).hooks().Progress, "a buffer is no terminal")
	width := 80
	l, written := shownLine(&width)
	show := l.hooks().Progress
	show(app.Progress{})
	require.Empty(t, written(), "nothing was shown yet")
	show(app.Progress{What: "loading rain", Done: 20_000, Of: 100_000, PerSecond: 5_000, Rest: 16 * time.Second})
	require.Equal(t, "loading rain: 20,000 of 100,000 (20 %), 5,000 a second, 16s left\x1b[K\r", written())
	width = 14
	show(app.Progress{What: "loading rain", Done: 30_000, Of: 100_000})
	require.Equal(t, "loading rain…\x1b[K\r", written(), "the last column stays free, or the terminal would begin another line")
	show(app.Progress{What: "春雨红包大派送"})
	require.Equal(t, "春雨红包大派…\x1b[K\r", written(), "a Chinese character takes two columns")
	show(app.Progress{})
	show(app.Progress{})
	require.Equal(t, "\x1b[K", written())
	l.end()
}

// A call that counts nothing shows each second how long it has taken, and nothing after its end.
func TestProgressOfAnUncountedCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		width := 80
		l, written := shownLine(&width)
		l.show(app.Progress{What: "audit: read the streams, step 4 of 14"})
		retry.Pause(t.Context(), 2500*time.Millisecond)
		l.show(app.Progress{What: "audit: read the topic, step 8 of 14"})
		retry.Pause(t.Context(), 63*time.Second)
		lines := strings.Split(written(), "\x1b[K\r")
		require.Equal(t, []string{"audit: read the streams, step 4 of 14", "audit: read the streams, step 4 of 14, 1s",
			"audit: read the streams, step 4 of 14, 2s", "audit: read the topic, step 8 of 14, 2s"}, lines[:4])
		require.Equal(t, "audit: read the topic, step 8 of 14, 1m5s", lines[len(lines)-2])
		l.end()
		require.Equal(t, "\x1b[K", written())
		retry.Pause(t.Context(), time.Minute)
		require.Empty(t, written())
	})
}
