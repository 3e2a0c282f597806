package local

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Say prints one sentence a line, with the time of day in front. It is safe for concurrent use.
type Say func(format string, args ...any)

// SayTo returns a Say that writes to out.
func SayTo(out io.Writer) Say {
	var mu sync.Mutex
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
	}
}
