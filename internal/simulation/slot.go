package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/run"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/producer"
)

// slot is a place for a process, in which one follows another after a kill.
type slot struct {
	w     *world
	name  string
	ended chan string // Kill or Stop
	live  func(ctx context.Context, cfg *configs.Config) error

	mu       sync.Mutex
	proc     *virtual.Proc
	sinks    []string           // of the process
	producer *producer.Producer // nil of a worker, and while none lives
	held     bool               // no process starts
	alive    bool
}

// restartAfter is how long a place is empty after a kill.
const restartAfter = 2 * time.Second

func (w *world) newSlot(name string) {
	s := &slot{w: w, name: name, ended: make(chan string, 10)}
	s.live = func(ctx context.Context, cfg *configs.Config) error { return run.Work(ctx, cfg, nil) }
	switch name[0] {
	case 'p':
		s.live = s.produce
	case 's':
		s.live = s.subscribe
	case 'h':
		s.live = s.serve
	}
	w.slots[name] = s
}

// run runs one process after another until ctx ends.
func (s *slot) run(ctx context.Context) {
	for life := 0; s.start(ctx); life++ {
		p := s.w.net.NewProc(fmt.Sprintf("%s.%d", s.name, life))
		cfg, err := s.w.config(p)
		if err != nil {
			s.w.bug("configuration: %v", err)
			return
		}
		s.mu.Lock()
		s.proc, s.sinks = p, cfg.Deployment.Sinks
		s.mu.Unlock()
		s.one(ctx, p, cfg)
		s.over()
		_ = virtual.Sleep(ctx, restartAfter)
	}
}

// start waits until a process may start. It returns false once ctx has ended.
func (s *slot) start(ctx context.Context) bool {
	for ctx.Err() == nil {
		s.mu.Lock()
		s.alive = !s.held
		alive := s.alive
		s.mu.Unlock()
		if alive {
			return true
		}
		_ = virtual.Sleep(ctx, 100*time.Millisecond)
	}
	return false
}

// over notes that the process has ended.
func (s *slot) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive = false
}

// hold says whether the place stays empty once its process has ended.
func (s *slot) hold(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
}

func (s *slot) lives() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alive
}

// one runs a process until it ends, is killed, or ctx ends.
func (s *slot) one(ctx context.Context, p *virtual.Proc, cfg *configs.Config) {
	living, end := context.WithCancel(ctx)
	defer end()
	done := make(chan error, 1)
	go func() { done <- s.live(living, cfg) }()
	select {
	case how := <-s.ended:
		s.w.note("%s %s", how, p.Name)
		if how == Kill {
			p.Kill()
		}
		end()
		<-done //nolint:errcheck // how it ended is the fault
	case err := <-done:
		if err != nil && ctx.Err() == nil {
			s.w.ended(p.Name, err)
		}
	case <-ctx.Done():
		if err := <-done; err != nil {
			s.w.note("%s ended: %v", p.Name, err)
		}
	}
}

// ended notes why a process has ended. Its message may tell a person to run `hongbao recover`.
func (w *world) ended(process string, err error) {
	w.note("%s ended: %v", process, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(err.Error(), "run `hongbao recover`") {
		w.unfounded++
	}
}

// produce lives as a program with a producer.
func (s *slot) produce(ctx context.Context, cfg *configs.Config) error {
	pc := cfg.Producer
	rdb := cfg.RedisClient()
	st, err := store.New(store.Config{Redis: rdb, Space: cfg.Space(), Deployment: cfg.Deployment.ID})
	if err != nil {
		return errors.Join(err, rdb.Close())
	}
	pc.Deployment = deployment.Of(st, zap.NewNop())
	p, err := producer.New(pc)
	if err != nil {
		return errors.Join(err, rdb.Close())
	}
	s.set(p)
	<-ctx.Done()
	s.set(nil)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(p.Close(ending), rdb.Close())
}

func (s *slot) set(p *producer.Producer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.producer = p
}

func (s *slot) get() (*producer.Producer, *virtual.Proc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.producer, s.proc
}
