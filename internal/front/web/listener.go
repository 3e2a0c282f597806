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

// errOverdue is the cause of the end of a request's context after API.AnswerTime.
var errOverdue = errors.New("the request takes too long")

// overdue reports whether a request has taken too long.
func overdue(r *http.Request) bool { return errors.Is(context.Cause(r.Context()), errOverdue) }

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
