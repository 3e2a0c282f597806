package web

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// Ops is the listener for the machines that run a process: /livez, /readyz, /metrics, and /debug/pprof if it was asked
// for. None of its answers waits for another server but that of /metrics, which has a bound.
type Ops struct {
	// Listen is the address; empty for no listener. Knob is what set it.
	Listen, Knob string
	// Ready says why the process takes no work; nil if it does.
	Ready   func() error
	Metrics http.Handler
	Pprof   bool
	Log     *log.Logger
	// Opened, if not nil, is told the address.
	Opened func(net.Addr)
}

// Run serves until ctx ends. Without an address it only waits.
func (o *Ops) Run(ctx context.Context) error {
	if o.Listen == "" {
		<-ctx.Done()
		return nil
	}
	l, err := Listen(ctx, o.Listen, o.Knob)
	if err != nil {
		return err
	}
	if o.Opened != nil {
		o.Opened(l.Addr())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { health(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { health(w, o.Ready()) })
	OpsPaths(mux, o.Metrics, o.Pprof)
	s := Start(context.WithoutCancel(ctx), l, mux, Limits{ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, HeaderBytes: 16 << 10}, o.Log)
	select {
	case err := <-s.Ended:
		return err
	case <-ctx.Done():
	}
	return s.Stop(time.Second, "they were for the ops listener")
}

// OpsPaths adds /metrics to an ops listener, and /debug/pprof if it was asked for.
func OpsPaths(mux *http.ServeMux, metrics http.Handler, profiles bool) {
	mux.Handle("GET /metrics", metrics)
	if !profiles {
		return
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

// ErrOpening says that a process is still opening what it works with.
var ErrOpening = errors.New("opening")

func health(w http.ResponseWriter, why error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	answer := struct {
		Status string `json:"status"`
	}{"ok"}
	if why != nil {
		answer.Status = why.Error()
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(answer) // a caller who is gone needs no answer
}
