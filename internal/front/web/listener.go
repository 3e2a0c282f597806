// Package web has the common parts of this project's HTTP servers: a listener with limits and a graceful stop, the
// description of an API and its error codes, and a strict parser for the bodies of requests.
package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Limits are the timeouts of a listener's connections.
type Limits struct {
	ReadHeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout time.Duration
}

// headerBytes is the maximum size of a request's header. SingleBody is the maximum size of the body of one grab or one
// credit. It is far larger than any valid body.
const (
	headerBytes = 16 << 10
	SingleBody  = 4 << 10
)

// Listen opens an address. knob is the configuration key of the address.
func Listen(ctx context.Context, address, knob string) (net.Listener, error) {
	return Opener(nil).Listen(ctx, address, knob)
}

// Opener opens a listener at an address. A nil Opener uses this machine's network.
type Opener func(ctx context.Context, address string) (net.Listener, error)

// Listen opens a listener as the function Listen does.
func (o Opener) Listen(ctx context.Context, address, knob string) (l net.Listener, err error) {
	if o != nil {
		l, err = o(ctx, address)
	} else {
		var lc net.ListenConfig
		l, err = lc.Listen(ctx, "tcp", address)
	}
	if err != nil {
		return nil, &ListenError{Address: address, Knob: knob, Cause: err}
	}
	return l, nil
}

// ListenError says that an address could not be opened.
type ListenError struct {
	Address, Knob string
	Cause         error
}

func (e *ListenError) Error() string {
	return fmt.Sprintf("listen on %s: %v; check that no other process uses it, or change %s", e.Address, e.Cause, e.Knob)
}

func (e *ListenError) Unwrap() error { return e.Cause }

// Server is a running HTTP/1.1 server.
type Server struct {
	// Ended receives the server's error unless the server was stopped. It is closed when the server has ended.
	Ended  chan error
	server *http.Server
	at     net.Addr
	open   sync.Map // net.Conn to *requestTimer
}

// Start starts a server on l that runs until Stop. The contexts of requests derive from ctx. The messages of
// net/http go to logger, sampled, because anyone may cause them.
func Start(ctx context.Context, l net.Listener, h http.Handler, limits Limits, logger *zap.Logger) *Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	s := &Server{at: l.Addr(), Ended: make(chan error, 1), server: &http.Server{
		Handler: closeChunked(h), ReadHeaderTimeout: limits.ReadHeaderTimeout, ReadTimeout: limits.ReadTimeout,
		WriteTimeout: limits.WriteTimeout, IdleTimeout: limits.IdleTimeout, MaxHeaderBytes: headerBytes,
		Protocols: protocols, ErrorLog: log.New(httpLog{Sampled(logger)}, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}}
	s.server.ConnContext, s.server.ConnState = s.opened, s.changed
	go s.serve(l)
	return s
}

// httpLog is the target of the log messages of net/http. Its own message is constant, so that the sampling logger limits
// the number of lines.
type httpLog struct{ *zap.Logger }

// Write implements io.Writer.
func (l httpLog) Write(text []byte) (int, error) {
	l.Info("net/http on a connection", zap.ByteString("text", bytes.TrimSpace(text)))
	return len(text), nil
}

func (s *Server) serve(l net.Listener) {
	if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		s.Ended <- fmt.Errorf("serve on %s: %w", s.at, err)
	}
	close(s.Ended)
}

// closeChunked closes the connection after a request with Transfer-Encoding. If the request also has a
// Content-Length, net/http hides that header from handlers. A proxy in front that obeys the Content-Length would take
// the rest of the body for another request (request smuggling).
func closeChunked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header()["Connection"] = closeIt
		}
		h.ServeHTTP(w, r)
	})
}

// Stop accepts no more requests and waits up to most for the running ones. If it interrupts requests, its error
// contains remedy, the advice to their callers.
func (s *Server) Stop(most time.Duration, remedy string) error {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests on %s were cut off after %s; %s: %w", s.at, most, remedy, err),
			s.server.Close())
	}
	for failed := range s.Ended {
		err = errors.Join(err, failed)
	}
	return err
}

// requestTimer cancels the context of a connection when the connection's request takes too long. A connection has one
// request at a time, so one timer per connection is enough. The timer is not reset for each request. When it fires,
// it checks when the running request is due. A context with its own deadline would cost each grab two more
// microseconds.
type requestTimer struct {
	ctx    context.Context // the connection's
	cancel context.CancelCauseFunc
	opened time.Time
	// due is when the running request is due, as the time since opened. It is none between requests, and missed
	// after an overdue request.
	due   atomic.Int64
	timer *time.Timer
	most  time.Duration // the time limit of a request; 0 before the first request, while the timer is stopped
}

const none, missed = 0, -1

type requestTimerKey struct{}

// errOverdue is the cause of a context that was canceled by a requestTimer.
var errOverdue = errors.New("the request takes too long")

func requestTimerOf(r *http.Request) *requestTimer {
	p, _ := r.Context().Value(requestTimerKey{}).(*requestTimer)
	return p
}

// begin sets when a request is due. most must be the same for all requests.
func (p *requestTimer) begin(most time.Duration) {
	p.due.Store(int64(time.Since(p.opened) + most))
	if p.most == 0 {
		p.most = most
		p.timer.Reset(most)
	}
}

func (p *requestTimer) end() {
	if due := p.due.Load(); due != missed {
		p.due.CompareAndSwap(due, none)
	}
}

// checkDue runs when the timer fires. It cancels the context if the running request is overdue. Otherwise it resets
// the timer to the time when that request is due. Without a running request it uses the time when a request that
// begins now would be due.
func (p *requestTimer) checkDue() {
	if p.ctx.Err() != nil {
		return
	}
	due, next := p.due.Load(), p.most
	if due != none {
		next = time.Duration(due) - time.Since(p.opened)
	}
	if next <= 0 && p.due.CompareAndSwap(due, missed) {
		p.cancel(errOverdue)
		return
	}
	p.timer.Reset(max(next, 0))
}

// over reports whether an earlier request of the connection was overdue. If so, the connection's context is
// canceled, and the connection serves at most one more request.
func (p *requestTimer) over() bool { return p.due.Load() == missed }

// overdue reports whether a requestTimer has canceled the request's context.
func overdue(r *http.Request) bool { return errors.Is(context.Cause(r.Context()), errOverdue) }

// opened adds a requestTimer to the context of a new connection.
func (s *Server) opened(ctx context.Context, c net.Conn) context.Context {
	p := &requestTimer{opened: time.Now()}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.timer = time.AfterFunc(time.Hour, p.checkDue)
	p.timer.Stop()
	s.open.Store(c, p)
	return context.WithValue(p.ctx, requestTimerKey{}, p)
}

// changed releases the requestTimer of a connection that was closed or hijacked.
func (s *Server) changed(c net.Conn, now http.ConnState) {
	if now != http.StateClosed && now != http.StateHijacked {
		return
	}
	if open, ok := s.open.LoadAndDelete(c); ok {
		p := open.(*requestTimer) //nolint:forcetypeassert // the map has only values of this type
		p.cancel(nil)
		p.timer.Stop()
	}
}

// CleanPaths sends requests whose path is not clean to unknown. Otherwise http.ServeMux would redirect them before
// the credentials are checked.
func CleanPaths(mux *http.ServeMux, unknown http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.EscapedPath(); p != path.Clean(p) {
			unknown.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
