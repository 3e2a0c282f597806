package app

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/money"
)

// Progress is how far a long call has come.
type Progress struct {
	// What says what the call does.
	What string
	// Done is how many parts of the work are done, of Of parts. Of is 0 if the call does not count parts.
	Done, Of int64
	// PerSecond is the rate since the call began. Rest is the time that the remaining parts need at this rate. Both are
	// 0 if they are not known yet.
	PerSecond float64
	Rest      time.Duration
}

// String returns the progress in one line: "loading rain: 20,000 of 100,000 (20 %), 5,000 a second, 16s left".
func (p Progress) String() string {
	var b strings.Builder
	b.WriteString(p.What)
	if p.Of == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, ": %s of %s (%d %%)", money.Count(p.Done), money.Count(p.Of), 100*p.Done/p.Of)
	if p.PerSecond >= 1 {
		fmt.Fprintf(&b, ", %s a second", money.Count(int64(p.PerSecond)))
	}
	if p.Rest > 0 {
		fmt.Fprintf(&b, ", %s left", p.Rest)
	}
	return b.String()
}

const (
	// progressLogged and progressShown are how often the log and the hook get the progress of a long call.
	progressLogged = 5 * time.Second
	progressShown  = 200 * time.Millisecond
	// progressMeasured is how long a call counts before its rate is known.
	progressMeasured = 2 * time.Second
)

// LongCall counts the parts of a long call. Its methods may be called concurrently.
type LongCall struct {
	app  *App
	told func(Progress) // may be nil
	what string
	of   int64

	mu      sync.Mutex
	began   time.Time
	first   int64 // how many parts an earlier call had done
	done    int64
	started bool
	next    time.Time
}

type toldKey struct{}

// WithProgress returns a context whose long calls tell how far they have come. told may be called often, and must return
// at once.
func WithProgress(ctx context.Context, told func(Progress)) context.Context {
	return context.WithValue(ctx, toldKey{}, told)
}

// LongCall begins a long call of that many parts; 0 if they are not known.
func (a *App) LongCall(ctx context.Context, what string, of int64) *LongCall {
	now := time.Now()
	told, _ := ctx.Value(toldKey{}).(func(Progress))
	p := &LongCall{app: a, told: told, what: what, of: of, began: now, next: now.Add(progressLogged)}
	if a.hooks.Progress != nil {
		p.next = now.Add(progressShown)
	}
	return p
}

// Set says how many parts are done, those of an earlier call included.
func (p *LongCall) Set(done int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started { // the first number may include the parts of an earlier call
		p.started, p.first = true, done
	}
	p.done = done
	p.tell()
	if now := time.Now(); now.After(p.next) {
		p.show(now)
	}
}

// Step says which step of several begins. The log has only steps of calls that take long.
func (p *LongCall) Step(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what = what
	p.tell()
	if now := time.Now(); p.app.hooks.Progress != nil || now.After(p.next) {
		p.show(now)
	}
}

// tell passes the progress to the caller of the long call. The caller of tell holds mu.
func (p *LongCall) tell() {
	if p.told != nil {
		p.told(Progress{What: p.what, Done: p.done, Of: p.of})
	}
}

// End says that the call has ended.
func (p *LongCall) End() {
	if p.app.hooks.Progress != nil {
		p.app.hooks.Progress(Progress{})
	}
}

// show shows the progress. The caller holds mu.
func (p *LongCall) show(now time.Time) {
	at := Progress{What: p.what, Done: p.done, Of: p.of}
	if took := now.Sub(p.began); took >= progressMeasured && p.done > p.first {
		at.PerSecond = float64(p.done-p.first) / took.Seconds()
		at.Rest = time.Duration(math.Ceil(float64(p.of-p.done)/at.PerSecond)) * time.Second
	}
	if p.app.hooks.Progress != nil {
		p.next = now.Add(progressShown)
		p.app.hooks.Progress(at)
		return
	}
	p.next = now.Add(progressLogged)
	p.app.log.Info(at.What, zap.Int64("done", at.Done), zap.Int64("of", at.Of), zap.Int64("per_second", int64(at.PerSecond)),
		zap.Stringer("rest", at.Rest))
}

// stoppedError is the error of a call that its caller has stopped. Its text omits the error of the call, which only
// says that the context was canceled.
type stoppedError struct {
	text string
	err  error
}

func (e *stoppedError) Error() string { return e.text }
func (e *stoppedError) Unwrap() error { return e.err }

// IsStopped reports whether an error says how far a call came before its caller stopped it, and how to go on.
func IsStopped(err error) bool {
	var stopped *stoppedError
	return errors.As(err, &stopped)
}

// Stopped replaces the text of the error of a call that its caller has stopped. The new text says how far the call
// came, and how to go on.
func (p *LongCall) Stopped(ctx context.Context, err error, goOn string) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &stoppedError{fmt.Sprintf("%s was stopped after %s of %s; %s", p.what, money.Count(p.done), money.Count(p.of), goOn), err}
}
