package virtual

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// The sides of a pair.
const (
	clientSide = iota
	serverSide
)

// pair is a connection. Index clientSide is what the client receives, serverSide what the server receives. net.mu
// guards it.
type pair struct {
	net    *Net
	proc   *Proc
	addr   string
	server string
	wire   Wire
	rng    *rand.Rand
	cond   *sync.Cond

	in     [2][]chunk
	last   [2]time.Time
	eof    [2]bool // the peer has closed, and in is all that comes
	broken [2]bool
	read   [2]time.Time // deadlines
	write  [2]time.Time
	timer  [2]*time.Timer // of read
	mute   bool           // the server's answers are dropped
	fuse   bool           // the next answer breaks the connection
}

type chunk struct {
	data []byte
	at   time.Time
}

// reset breaks the connection. With both, the server loses what has not arrived yet.
func (c *pair) reset(both bool) {
	c.broken[clientSide] = true
	if both {
		c.broken[serverSide] = true
	} else {
		c.eof[serverSide] = true
	}
	delete(c.net.conns, c)
	c.cond.Broadcast()
}

// wake wakes the readers at a time.
func (c *pair) wake(at time.Time) *time.Timer {
	d := time.Until(at)
	if d <= 0 {
		return nil
	}
	return time.AfterFunc(d, func() {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		c.cond.Broadcast()
	})
}

// End is one end of a pair.
type end struct {
	c    *pair
	side int
}

// Read implements net.Conn.
func (e *end) Read(b []byte) (int, error) {
	c := e.c
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for {
		now := time.Now()
		in := &c.in[e.side]
		switch d := c.read[e.side]; {
		case c.broken[e.side]:
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
		case !d.IsZero() && !now.Before(d):
			return 0, os.ErrDeadlineExceeded
		case len(*in) > 0 && !now.Before((*in)[0].at) && (e.side == serverSide || !now.Before(c.proc.paused)):
			n := copy(b, (*in)[0].data)
			if (*in)[0].data = (*in)[0].data[n:]; len((*in)[0].data) == 0 {
				*in = (*in)[1:]
			}
			return n, nil
		case len(*in) == 0 && c.eof[e.side]:
			return 0, io.EOF
		}
		c.cond.Wait()
	}
}

// Write implements net.Conn.
func (e *end) Write(b []byte) (int, error) {
	c, to := e.c, 1-e.side
	n := c.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.broken[e.side] || c.eof[to] {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
	}
	if d := c.write[e.side]; !d.IsZero() && !time.Now().Before(d) {
		return 0, os.ErrDeadlineExceeded
	}
	delay := time.Duration(float64(Latency) * (0.5 + c.rng.Float64()))
	data := slices.Clone(b)
	if e.side == clientSide {
		late, gone := c.request(data)
		if gone {
			return len(b), nil // the kernel took it
		}
		delay += late
	} else {
		if c.fuse {
			n.tracef("%s < %s CUT", c.proc.Name, c.server)
			c.reset(true)
			return len(b), nil
		}
		data = c.wire.answer(data, func(op, word, line string) {
			if n.scripts.named(op) || word[0] == '-' { // not the data that other commands return
				n.note("answer", op+" "+word)
			}
			if n.scripts.named(op) && word == "-ERR" { // scripts name each error that they know
				n.failed = append(n.failed, fmt.Errorf("script %s: %s", op, line))
			}
			n.tracef("%s < %s %s %s", c.proc.Name, c.server, op, word)
		})
	}
	if c.proc.apart[c.addr] || e.side == serverSide && c.mute {
		return len(b), nil // lost on the way
	}
	c.deliver(to, data, delay)
	return len(b), nil
}

// request looks at what the client sends, and applies the faults of its requests. gone means that the connection broke.
func (c *pair) request(b []byte) (late time.Duration, gone bool) {
	for _, op := range c.wire.request(b) {
		c.net.tracef("%s > %s %s", c.proc.Name, c.server, op)
		if op == "Produce" && c.net.cut != nil {
			c.fuse = true
			c.net.cut()
			c.net.cut = nil
		}
		f, is := c.net.faultAt(c.proc, c.server, op)
		if !is {
			continue
		}
		switch f.Kind {
		case CutBefore:
			c.reset(true)
			return 0, true
		case CutAfter:
			c.fuse = true
		case Swallow:
			c.mute = true
		case Delay:
			late += f.Delay
		}
	}
	return late, false
}

func (c *pair) deliver(to int, data []byte, delay time.Duration) {
	at := time.Now().Add(delay)
	if to == serverSide && at.Before(c.proc.paused) {
		at = c.proc.paused.Add(delay)
	}
	if at.Before(c.last[to]) {
		at = c.last[to]
	}
	c.last[to] = at
	c.in[to] = append(c.in[to], chunk{data, at})
	c.wake(at)
	c.cond.Broadcast()
}

// Close implements net.Conn.
func (e *end) Close() error {
	c := e.c
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.broken[e.side] = true
	c.eof[1-e.side] = true
	if c.broken[1-e.side] || e.side == serverSide {
		delete(c.net.conns, c)
	}
	c.cond.Broadcast()
	return nil
}

// SetDeadline implements net.Conn.
func (e *end) SetDeadline(t time.Time) error {
	_ = e.SetWriteDeadline(t)
	return e.SetReadDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (e *end) SetReadDeadline(t time.Time) error {
	c := e.c
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.read[e.side] = t
	if old := c.timer[e.side]; old != nil {
		old.Stop()
		c.timer[e.side] = nil
	}
	if !t.IsZero() {
		c.timer[e.side] = c.wake(t)
	}
	c.cond.Broadcast()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (e *end) SetWriteDeadline(t time.Time) error {
	e.c.net.mu.Lock()
	defer e.c.net.mu.Unlock()
	e.c.write[e.side] = t
	return nil
}

// LocalAddr implements net.Conn.
func (e *end) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// RemoteAddr implements net.Conn.
func (e *end) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2} }
