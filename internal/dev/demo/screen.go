package demo

import (
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// screen is the demo's output: lines, and below them on a terminal one line that changes. Elsewhere that line is
// written when it has news, and once a second, so that the demo does not seem to have stopped. It is safe for
// concurrent use.
type screen struct {
	out      io.Writer
	terminal bool

	mu     sync.Mutex
	status string    // the line that changes; on a terminal only
	mark   int64     // the mark of the last status line
	at     time.Time // of that line
}

func newScreen(out io.Writer) *screen {
	f, ok := out.(*os.File)
	return &screen{out: out, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// eraseLine goes to the beginning of a terminal's line and empties it.
const eraseLine = "\r\x1b[K"

// Write writes whole lines above the changing line.
func (s *screen) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = time.Now()
	if s.status == "" {
		return s.out.Write(lines)
	}
	_, err := io.WriteString(s.out, eraseLine+string(lines)+s.status)
	return len(lines), err
}

// show changes the line. mark is different if the line has news.
func (s *screen) show(line string, mark int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal {
		s.status = line
		_, _ = io.WriteString(s.out, eraseLine+line) // a lost line of progress does not matter
		return
	}
	if mark == s.mark && time.Since(s.at) < time.Second {
		return
	}
	s.mark, s.at = mark, time.Now()
	_, _ = io.WriteString(s.out, line+"\n")
}

// leave keeps the changing line as it is.
func (s *screen) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status != "" {
		s.status = ""
		_, _ = io.WriteString(s.out, "\n")
	}
}

// barWidth is the width of a full bar.
const barWidth = 12

// bar draws n of all.
func bar(n, all int64) string {
	full := int(min(max(n, 0), all) * barWidth / max(all, 1))
	return strings.Repeat("#", full) + strings.Repeat(".", barWidth-full)
}
