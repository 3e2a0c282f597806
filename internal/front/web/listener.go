// Package web has the common parts of this project's HTTP servers: a listener with limits and a graceful stop, the
// description of an API and its problems, and strict reading of a request's body.
package web

import (
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
)

// Limits are the limits of one listener's connections.
type Limits struct {
	ReadHeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout time.Duration
}

// headerBytes bounds a request's head. SingleBody bounds the body of one grab or one credit: ids and facts have bounds of
// their own that are far below it.
const (
	headerBytes = 16 << 10
	SingleBody  = 4 << 10
)

// Listen opens an address. knob is the knob that named it.
func Listen(ctx context.Context, address, knob string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; check that no other process uses it, or change %s", address, err, knob)
	}
	return l, nil
}

// Server is a running HTTP/1.1 server.
type Server struct {
	// Ended gets the server's error unless it was stopped, and is closed when it has ended.
	Ended  chan error
	server *http.Server
	at     net.Addr
	open   sync.Map // net.Conn to *patience
}

// Start serves on l until Stop. Requests have ctx; errors gets the messages of net/http.
func Start(ctx context.Context, l net.Listener, h http.Handler, limits Limits, errors *log.Logger) *Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	s := &Server{at: l.Addr(), Ended: make(chan error, 1), server: &http.Server{
		Handler: closeChunked(h), ReadHeaderTimeout: limits.ReadHeaderTimeout, ReadTimeout: limits.ReadTimeout,
		WriteTimeout: limits.WriteTimeout, IdleTimeout: limits.IdleTimeout, MaxHeaderBytes: headerBytes,
		Protocols: protocols, ErrorLog: errors,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}}
	s.server.ConnContext, s.server.ConnState = s.opened, s.changed
	go s.serve(l)
	return s
}

func (s *Server) serve(l net.Listener) {
	if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		s.Ended <- fmt.Errorf("serve on %s: %w", s.at, err)
	}
	close(s.Ended)
}

// closeChunked makes a request with Transfer-Encoding the last one of its connection. If the request also has a
// Content-Length, net/http removes it before a handler sees it. A proxy in front that uses that length would take the
// rest of the body for another request.
func closeChunked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header()["Connection"] = closeIt
		}
		h.ServeHTTP(w, r)
	})
}

// Stop accepts no more requests and waits up to most for the running ones. If it cuts off requests, its error has
// remedy, which says what their callers can do.
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

// patience ends the context of a connection whose request takes too long. A connection has one request at a time, so
// one timer is enough for all of them. The timer is not reset for each request: when it fires, it checks when the
// present request is due. A context with a deadline for each request would cost a grab two microseconds more.
type patience struct {
	ctx    context.Context // the connection's
	cancel context.CancelCauseFunc
	opened time.Time
	// due is when the present request is due, counted from opened; none between requests, missed once a request was
	// overdue.
	due   atomic.Int64
	timer *time.Timer
	most  time.Duration // time for a request; 0 before the first one, and the timer is stopped
}

const none, missed = 0, -1

type patienceKey struct{}

// errOverdue is the cause of a context that a patience has ended.
var errOverdue = errors.New("the request takes too long")

func patienceOf(r *http.Request) *patience {
	p, _ := r.Context().Value(patienceKey{}).(*patience)
	return p
}

// begin starts the time of a request. most is the same for all requests.
func (p *patience) begin(most time.Duration) {
	p.due.Store(int64(time.Since(p.opened) + most))
	if p.most == 0 {
		p.most = most
		p.timer.Reset(most)
	}
}

func (p *patience) end() {
	if due := p.due.Load(); due != missed {
		p.due.CompareAndSwap(due, none)
	}
}

// look cancels the context if the request is overdue. Otherwise it resets the timer to the time when the present
// request is due; between requests, to the time when a request that begins now would be due.
func (p *patience) look() {
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

// over reports whether a request of the connection was overdue. Then the connection's context has ended or ends now,
// and the connection serves one more request at most.
func (p *patience) over() bool { return p.due.Load() == missed }

// overdue reports whether a patience has ended the context of the request.
func overdue(r *http.Request) bool { return errors.Is(context.Cause(r.Context()), errOverdue) }

// opened adds a patience to a connection's context.
func (s *Server) opened(ctx context.Context, c net.Conn) context.Context {
	p := &patience{opened: time.Now()}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.timer = time.AfterFunc(time.Hour, p.look)
	p.timer.Stop()
	s.open.Store(c, p)
	return context.WithValue(p.ctx, patienceKey{}, p)
}

// changed releases the patience of a connection that was closed, or taken over by its handler.
func (s *Server) changed(c net.Conn, now http.ConnState) {
	if now != http.StateClosed && now != http.StateHijacked {
		return
	}
	if open, ok := s.open.LoadAndDelete(c); ok {
		p := open.(*patience) //nolint:forcetypeassert // the map has only this type
		p.cancel(nil)
		p.timer.Stop()
	}
}

// CleanPaths passes odd paths to unknown. http.ServeMux would redirect them to the clean path, before the token is
// checked.
func CleanPaths(mux *http.ServeMux, unknown http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.EscapedPath(); p != path.Clean(p) {
			unknown.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
