package local

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Teller reports what happens: one sentence a line, with the time of day in front. It is safe for concurrent use.
type Teller struct {
	mu  sync.Mutex
	out io.Writer
}

// NewTeller returns a Teller that writes to out.
func NewTeller(out io.Writer) *Teller { return &Teller{out: out} }

// Say writes a sentence.
func (t *Teller) Say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}
