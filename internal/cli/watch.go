package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/answers"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// The limits of --interval, the time of one reading, and the time between lines without news.
const (
	minInterval = 200 * time.Millisecond
	maxInterval = time.Hour
	readingTime = 10 * time.Second
	slowNews    = 10 * time.Second
)

// reading is one answer of a command that watches.
type reading interface {
	// screen writes the answer for a terminal, which shows only the last one.
	screen(w io.Writer) error
	// line is the answer in one line, for pipes and files.
	line() string
	// news is the part of the line whose changes are printed at once. Other changes wait for slowNews.
	news() string
	// zone is the time zone of the line's time.
	zone() *time.Location
}

func addInterval(cmd *cobra.Command, every *time.Duration) {
	cmd.Flags().DurationVar(every, "interval", time.Second, "time between two readings, 200ms to 1h")
}

func checkInterval(every time.Duration) error {
	if every < minInterval || every > maxInterval {
		return app.Usage("--interval %s: want %s to %s", every, minInterval, maxInterval)
	}
	return nil
}

// watcher shows readings: in place on a terminal, else a line for each change.
type watcher struct {
	out    io.Writer
	colour bool
	json   bool
	// size returns the width and the height of the terminal; nil if out is not a terminal.
	size  func() (width, height int)
	every time.Duration
	now   func() time.Time

	drawn int    // lines that are on the terminal
	last  string // the last line
	news  string // its part whose changes are printed at once
	at    time.Time
}

func newWatcher(cmd *cobra.Command, every time.Duration) *watcher {
	out := cmd.OutOrStdout()
	w := &watcher{out: out, json: wantsJSON(cmd), every: every, now: time.Now}
	if f, ok := out.(*os.File); ok && isTerminal(out) && !w.json && os.Getenv("TERM") != "dumb" {
		w.colour = wantsColour(true, os.Getenv)
		w.size = func() (int, int) {
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil || width < 1 || height < 1 {
				return 80, 24
			}
			return width, height
		}
	}
	return w
}

// run reads and shows until ctx ends, and then prints a last line. It goes on while a server is down. An error of the
// first reading ends it.
func (w *watcher) run(ctx context.Context, read func(ctx context.Context) (reading, error)) error {
	begin := w.now()
	var last reading
	for {
		now, err := readWithin(ctx, read)
		switch {
		case ctx.Err() != nil:
		case err != nil && (last == nil || !hongbao.IsOutage(err)):
			return err
		case err != nil:
			err = w.show(last, "no answer: "+err.Error())
		default:
			last = now
			err = w.show(last, "")
		}
		if err != nil && ctx.Err() == nil {
			return wrap("print the answer", err)
		}
		if !retry.Pause(ctx, w.every) {
			return wrap("print the answer", w.end(last, begin))
		}
	}
}

func readWithin(ctx context.Context, read func(ctx context.Context) (reading, error)) (reading, error) {
	short, cancel := context.WithTimeout(ctx, readingTime)
	defer cancel()
	now, err := read(short)
	if errors.Is(err, context.DeadlineExceeded) {
		err = hongbao.Outagef(hongbao.ClassTransient, "%w after %s", err, readingTime)
	}
	return now, err
}

// show shows a reading, and what is wrong with the newest one.
func (w *watcher) show(r reading, wrong string) error {
	switch {
	case w.size != nil:
		return w.draw(r, wrong)
	case wrong != "":
		return w.print(r, wrong, wrong)
	case w.json:
		line := r.line()
		if line == w.last {
			return nil
		}
		w.last = line
		return answers.Write(w.out, r, "")
	}
	return w.print(r, r.line(), r.news())
}

// print prints a line unless it repeats the last one, or has no news and the last one is not old enough.
func (w *watcher) print(r reading, line, news string) error {
	if line == w.last || w.json || news == w.news && w.now().Sub(w.at) < slowNews {
		return nil
	}
	w.last, w.news, w.at = line, news, w.now()
	_, err := fmt.Fprintf(plain{w: w.out}, "%s %s\n", w.now().In(r.zone()).Format(time.RFC3339), line)
	return err
}

// draw replaces what is on the terminal.
func (w *watcher) draw(r reading, wrong string) error {
	var text bytes.Buffer
	to := plain{w: &text, colour: w.colour}
	if err := r.screen(to); err != nil {
		return err
	}
	foot := newColumns(to)
	fmt.Fprintln(foot, styled(faint, fmt.Sprintf("%s, every %s, Ctrl-C ends", w.now().In(r.zone()).Format(time.DateTime+" -07:00"),
		w.every)))
	if wrong != "" {
		fmt.Fprintln(foot, styled(bad, wrong))
	}
	if err := foot.Flush(); err != nil {
		return err
	}
	width, height := w.size()
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	if most := height - 1; len(lines) > most { // a longer text would scroll, and then could not be replaced
		lines = append(lines[:max(most-2, 0)], lines[len(lines)-1])
	}
	var out strings.Builder
	if w.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", w.drawn)
	}
	out.WriteString("\r\x1b[J")
	for _, line := range lines {
		out.WriteString(cutLine(line, width) + "\n")
	}
	w.drawn = len(lines)
	_, err := io.WriteString(w.out, out.String())
	return err
}

// end prints the last line.
func (w *watcher) end(r reading, begin time.Time) error {
	if r == nil || w.json {
		return nil
	}
	if w.size != nil {
		if _, err := io.WriteString(w.out, "\r\x1b[J"); err != nil { // the terminal has shown ^C
			return err
		}
	}
	line := fmt.Sprintf("ended after %s: %s", w.now().Sub(begin).Round(time.Second), r.line())
	return w.print(r, line, line)
}
