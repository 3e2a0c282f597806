package cli

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"

	"github.com/hongbao-project/hongbao/internal/app"
)

// progressLine shows the progress of a long command in the last line of a terminal.
type progressLine struct {
	out io.Writer
	// width returns the number of columns; nil if out is no terminal. Then the log shows the progress.
	width func() int

	mu    sync.Mutex
	shown bool
}

func newProgressLine(out io.Writer) *progressLine {
	l := &progressLine{out: out}
	if f, ok := out.(*os.File); ok && isTerminal(out) && os.Getenv("TERM") != "dumb" {
		l.width = func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil || width < 1 {
				return 80
			}
			return width
		}
	}
	return l
}

func (l *progressLine) hooks() app.Hooks {
	if l.width == nil {
		return app.Hooks{}
	}
	return app.Hooks{Progress: l.show}
}

// show writes the line over the one before. The cursor stays at its begin, so that a line of the log replaces it.
func (l *progressLine) show(p app.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const rest, begin = "\x1b[K", "\r"
	if p.What == "" {
		if l.shown {
			fmt.Fprint(l.out, rest)
		}
		l.shown = false
		return
	}
	text := []rune(p.String())
	if most := l.width() - 1; len(text) > most {
		text = text[:max(0, most)]
	}
	l.shown = true
	fmt.Fprint(l.out, string(text)+rest+begin)
}
