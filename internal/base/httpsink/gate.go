// Package httpsink has what sinks that call a server over HTTP share. A Gate decides whether a request may be sent now.
// NewTransport sets the client's limits.
package httpsink

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/hongbao-project/hongbao"
)

// ErrLate is the error of a request for which no slot was free in time, or whose context has ended. Nothing was sent,
// and the server is not at fault.
var ErrLate = errors.New("the request was not sent: the lease or the time for it is over")

// Seen is what a request has shown about the server.
type Seen int

const (
	// Nothing is known: this process ended the request, or refused to send it.
	Nothing Seen = iota
	// Works means that the server answered.
	Works
	// Fails means that the server did not answer, or not as a working server does. The circuit breaker counts it.
	Fails
)

var (
	errNothing = errors.New("the request says nothing about the server")
	errFails   = errors.New("the server fails")
)

// Limits configures a Gate.
type Limits struct {
	// Server names the server in errors, for example "the remote".
	Server string
	// Concurrency is the maximum number of concurrent requests.
	Concurrency int
	// After BreakerFailures failures in a row, no request is sent for BreakerOpen, and then one request.
	BreakerFailures int
	BreakerOpen     time.Duration
	// Now is the clock for Silence.
	Now func() time.Time
}

// Gate bounds the concurrent requests to a server. It stops them for a pause that the server asked for, and by a
// circuit breaker while the server fails. It is safe for concurrent use.
type Gate struct {
	limits  Limits
	slots   chan struct{}
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	silent  atomic.Int64 // time until which no requests are sent, in Unix ns
}

// NewGate returns an open Gate. The caller has checked the limits.
func NewGate(l Limits) *Gate {
	return &Gate{limits: l, slots: make(chan struct{}, l.Concurrency),
		breaker: gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
			Name: l.Server, MaxRequests: 1, Interval: 0, Timeout: l.BreakerOpen,
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= uint32(l.BreakerFailures) },
			IsExcluded:  func(err error) bool { return errors.Is(err, errNothing) },
		}),
	}
}

// Do waits until a slot is free, and calls send, which sends one request. If it does not call send, it returns the
// reason: ErrLate, or an outage.
func (g *Gate) Do(ctx context.Context, send func() Seen) error {
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-ctx.Done():
		return ErrLate
	}
	if err := g.Closed(); err != nil {
		return err
	}
	// The process may have been stopped, so that its timers have not fired yet. The monotonic clock does not count the
	// time that the machine slept.
	if end, ok := ctx.Deadline(); ctx.Err() != nil || ok && time.Now().Round(0).After(end.Round(0)) {
		return ErrLate
	}
	report, err := g.breaker.Allow()
	if err != nil {
		return hongbao.Outagef(hongbao.ClassTransient, "the breaker lets one request through at a time: %w", err)
	}
	seen := Nothing
	defer func() { report(seen.asError()) }() // also after a panic, or the breaker would wait for it forever
	seen = send()
	return nil
}

// asError returns what the breaker is told.
func (s Seen) asError() error {
	switch s {
	case Works:
		return nil
	case Fails:
		return errFails
	case Nothing:
	}
	return errNothing
}

// Closed returns an outage if no request may be sent now.
func (g *Gate) Closed() error {
	if until := time.Unix(0, g.silent.Load()); g.limits.Now().Before(until) {
		return hongbao.Outagef(hongbao.ClassTransient, "requests to %s are stopped until %s, because it asked for a pause or "+
			"refuses every request; nothing was sent", g.limits.Server, until.UTC().Format(time.RFC3339))
	}
	if g.breaker.State() == gobreaker.StateOpen {
		return hongbao.Outagef(hongbao.ClassTransient, "the breaker is open after %d consecutive failures of %s; nothing was "+
			"sent, and the next try is within %s", g.limits.BreakerFailures, g.limits.Server, g.limits.BreakerOpen)
	}
	return nil
}

// Silence stops all requests for the time d.
func (g *Gate) Silence(d time.Duration) {
	until := g.limits.Now().Add(d).UnixNano()
	for {
		has := g.silent.Load()
		if has >= until || g.silent.CompareAndSwap(has, until) {
			return
		}
	}
}

// BreakerOpen reports whether the circuit breaker is not closed. It closes after one successful request.
func (g *Gate) BreakerOpen() bool { return g.breaker.State() != gobreaker.StateClosed }
