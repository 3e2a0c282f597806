package main

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// bar shows a person at a terminal how far a long command is. Elsewhere, and as its zero value, it shows nothing.
type bar struct{ mine *progressbar.ProgressBar }

func newBar(what string, total int64) bar {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return bar{}
	}
	return bar{progressbar.NewOptions64(total, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetPredictTime(false))}
}

func (b bar) set(n int64) {
	if b.mine != nil {
		_ = b.mine.Set64(n) // a bar that can't be drawn is no reason to stop
	}
}

func (b bar) end() {
	if b.mine != nil {
		_ = b.mine.Exit()
		fmt.Fprintln(os.Stderr)
	}
}
