package virtual

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
)

// Proc is a simulated process: the owner of connections, and of a gate to the ledger's file.
type Proc struct {
	net    *Net
	Name   string
	dead   bool
	paused time.Time // until then nothing arrives or leaves
	apart  map[string]bool
	// listens are the addresses on which others reach the process.
	listens []string
}

// NewProc starts a process.
func (n *Net) NewProc(name string) *Proc {
	return &Proc{net: n, Name: name, apart: map[string]bool{}}
}

// Kill ends the process without a goodbye: what it has written still arrives, and nothing else.
func (p *Proc) Kill() {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	p.dead = true
	for c := range p.net.conns {
		switch {
		case c.proc == p:
			c.reset(false)
		case slices.Contains(p.listens, c.addr):
			c.reset(true)
		}
	}
	for _, addr := range p.listens {
		p.net.servers[addr].Down = true
	}
}

// IsDead reports whether the process was killed.
func (p *Proc) IsDead() bool {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	return p.dead
}

// Pause stops the process's requests and transactions for a while.
func (p *Proc) Pause(d time.Duration) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	p.paused = time.Now().Add(d)
	time.AfterFunc(d, func() {
		p.net.mu.Lock()
		defer p.net.mu.Unlock()
		for c := range p.net.conns {
			if c.proc == p {
				c.cond.Broadcast()
			}
		}
	})
}

// Part separates the process from a server, or joins them again.
func (p *Proc) Part(addr string, apart bool) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	p.apart[addr] = apart
}

// Dial is for configs.Seams.
func (p *Proc) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	return p.net.dial(ctx, p, addr)
}

// ErrDead is what a killed process gets from the gate to its ledger.
var ErrDead = errors.New("the process is dead")

// moments has the names of the ledger's moments in points.
var moments = map[sqlite.Moment]string{
	sqlite.GateBegin: "begin", sqlite.GateCommit: "commit", sqlite.GateAnswer: "committed"}

// Gate is for configs.Seams. A paused process waits in it, and a dead one gets no further.
func (p *Proc) Gate(ctx context.Context, at sqlite.Moment) error {
	return p.Reach(ctx, "ledger", moments[at])
}

// Reach stands before or after a request to a database.
func (p *Proc) Reach(ctx context.Context, server, op string) error {
	p.net.mu.Lock()
	f, is := p.net.faultAt(p, server, op)
	p.net.mu.Unlock()
	if is && f.Kind == Delay {
		if err := Sleep(ctx, f.Delay); err != nil {
			return err
		}
	}
	for {
		p.net.mu.Lock()
		wait, dead := time.Until(p.paused), p.dead
		p.net.mu.Unlock()
		switch {
		case dead:
			return ErrDead
		case wait > 0:
			if err := Sleep(ctx, wait); err != nil {
				return err
			}
			continue
		case is && f.Kind != Delay:
			return fmt.Errorf("simulated: %s at %s", f.Kind, f.Op)
		}
		return nil
	}
}

// Sleep waits for a while, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
