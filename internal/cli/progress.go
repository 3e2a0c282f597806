package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/hongbao-project/hongbao/internal/app"
)

// progressLine shows the progress of a long command in the last line of a terminal.
type progressLine struct {
	out io.Writer
	// width returns the number of columns; nil if out is no terminal. Then the log shows the progress.
	width func() int

	mu    sync.Mutex
	at    app.Progress
	began time.Time
	stop  chan struct{} // ends the redrawing; nil if nothing is shown
	draws sync.WaitGroup
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

// show writes the line over the one before, and again each second, with the time that an uncounted call has taken. No
// text ends it.
func (l *progressLine) show(p app.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case p.What == "" && l.stop != nil:
		close(l.stop)
		l.stop = nil
		fmt.Fprint(l.out, eraseLine)
	case p.What != "":
		l.at = p
		if l.stop == nil {
			stop := make(chan struct{})
			l.began, l.stop = time.Now(), stop
			l.draws.Go(func() { l.redraw(stop) })
		}
		l.draw()
	}
}

// end ends the line, and waits until nothing more is written.
func (l *progressLine) end() {
	l.show(app.Progress{})
	l.draws.Wait()
}

func (l *progressLine) redraw(stop chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			l.mu.Lock()
			if l.stop == stop {
				l.draw()
			}
			l.mu.Unlock()
		}
	}
}

const eraseLine = "\x1b[K"

// draw writes the line. The cursor stays at its begin, so that a line of the log replaces it. The caller holds mu.
func (l *progressLine) draw() {
	text := l.at.String()
	if took := time.Since(l.began).Truncate(time.Second); l.at.Of == 0 && took > 0 {
		text += ", " + took.String()
	}
	fmt.Fprint(l.out, cutLine(text, l.width()-1)+eraseLine+"\r")
}
