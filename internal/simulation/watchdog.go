package simulation

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"time"
)

// Watchdog notices in real time that virtual time stands: then a goroutine of the bubble waits for a sync.Mutex that is
// held during a call to a server, or runs forever.
type Watchdog struct {
	beats atomic.Int64
	stop  chan struct{}
}

// standing is how long virtual time may stand, in real time.
const standing = 10 * time.Second

// Watch starts a Watchdog. Call it outside of a bubble. When time stands, it writes the stacks of all goroutines to w,
// and calls fail.
func Watch(w io.Writer, fail func()) *Watchdog {
	d := &Watchdog{stop: make(chan struct{})}
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for last, since := int64(-1), time.Now(); ; {
			select {
			case <-d.stop:
				return
			case <-tick.C:
			}
			now := d.beats.Load()
			if now != last || now == 0 {
				last, since = now, time.Now()
				continue
			}
			if time.Since(since) > standing {
				buf := make([]byte, 64<<20)
				fmt.Fprintf(w, "virtual time has stood for %s; all stacks:\n%s\n", standing, buf[:runtime.Stack(buf, true)])
				fail()
				return
			}
		}
	}()
	return d
}

// Beat makes the bubble's time visible to the Watchdog, until ctx ends. Call it in the bubble.
func (d *Watchdog) Beat(ctx context.Context) {
	_ = sleep(ctx, time.Until(epoch)) // years
	for d.beats.Add(1); sleep(ctx, time.Second) == nil; {
		d.beats.Add(1)
	}
	d.beats.Store(0) // no history runs
}

// Stop ends the Watchdog.
func (d *Watchdog) Stop() { close(d.stop) }
