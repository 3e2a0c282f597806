package simulation

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// Watchdog notices that virtual time stands: then a goroutine of the bubble waits for a sync.Mutex that is held during a
// call to a server, or runs forever.
type Watchdog struct {
	beats atomic.Int64 // of all histories, so two histories that take equally long never look like one that stands
	runs  atomic.Bool  // a history runs
	stop  chan struct{}
}

// How long virtual time may stand: in time of the processor, and in real time. On a busy machine a process may get no
// processor for many seconds. A virtual machine that was stopped for a while charges that time to the process which ran,
// all at once. So time stands only if the Watchdog has looked standingLooks times meanwhile.
const (
	standingWorks = 5 * time.Second
	standingWaits = time.Minute
	standingLooks = 5
)

// look is what the Watchdog sees, once a second: the beats so far, whether a history runs, the real time, and the time
// of the processor.
type look struct {
	beats  int64
	runs   bool
	at     time.Time
	worked time.Duration
}

// standing decides whether virtual time stands.
type standing struct {
	first look // the first one at which there were as many beats as now
	looks int  // since then
}

// stands adds a look, and reports whether virtual time stands.
func (s *standing) stands(now look) bool {
	if now.beats != s.first.beats || !now.runs {
		s.first, s.looks = now, 0
		return false
	}
	s.looks++
	return s.looks >= standingLooks && (now.at.Sub(s.first.at) > standingWaits || now.worked-s.first.worked > standingWorks)
}

// Watch starts a Watchdog. Call it outside of a bubble. When time stands, it writes the stacks of all goroutines to w,
// and calls fail.
func Watch(w io.Writer, fail func()) *Watchdog {
	d := &Watchdog{stop: make(chan struct{})}
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for s := (standing{}); ; {
			select {
			case <-d.stop:
				return
			case <-tick.C:
			}
			now := d.look()
			if !s.stands(now) {
				continue
			}
			fmt.Fprintf(w, "virtual time has stood for %s, of which this process worked %s; all stacks, three times:\n",
				now.at.Sub(s.first.at), now.worked-s.first.worked)
			buf := make([]byte, 64<<20)
			for range 3 { // what runs forever is in each of them
				fmt.Fprintf(w, "%s\n\n\n", buf[:runtime.Stack(buf, true)])
				<-tick.C
			}
			fail()
			return
		}
	}()
	return d
}

func (d *Watchdog) look() look { return look{d.beats.Load(), d.runs.Load(), time.Now(), processor()} }

// processor returns the time of the processor that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Beat makes the bubble's time visible to the Watchdog, until ctx ends. Call it in the bubble.
func (d *Watchdog) Beat(ctx context.Context) {
	_ = virtual.Sleep(ctx, time.Until(virtual.Epoch)) // years
	d.runs.Store(true)
	for d.beats.Add(1); virtual.Sleep(ctx, time.Second) == nil; {
		d.beats.Add(1)
	}
	d.runs.Store(false)
}

// Stop ends the Watchdog.
func (d *Watchdog) Stop() { close(d.stop) }
