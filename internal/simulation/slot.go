package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/run"
	"github.com/hongbao-project/hongbao/producer"
)

// slot is a place for a process, in which one follows another after a kill.
type slot struct {
	w     *world
	name  string
	ended chan string // Kill or Stop
	live  func(ctx context.Context, cfg *configs.Config) error

	mu       sync.Mutex
	proc     *Proc
	sinks    []string           // of the process
	producer *producer.Producer // nil of a worker, and while none lives
}

// restartAfter is how long a place is empty after a kill.
const restartAfter = 2 * time.Second

func (w *world) newSlot(name string) {
	s := &slot{w: w, name: name, ended: make(chan string, 10)}
	s.live = func(ctx context.Context, cfg *configs.Config) error { return run.Work(ctx, cfg, nil) }
	if name[0] == 'p' {
		s.live = s.produce
	}
	w.slots[name] = s
}

// run runs one process after another until ctx ends.
func (s *slot) run(ctx context.Context) {
	for life := 0; ctx.Err() == nil; life++ {
		p := s.w.net.proc(fmt.Sprintf("%s.%d", s.name, life))
		cfg, err := s.w.config(p)
		if err != nil {
			s.w.bug("configuration: %v", err)
			return
		}
		s.mu.Lock()
		s.proc, s.sinks = p, cfg.Deployment.Sinks
		s.mu.Unlock()
		s.one(ctx, p, cfg)
		_ = sleep(ctx, restartAfter)
	}
}

// one runs a process until it ends, is killed, or ctx ends.
func (s *slot) one(ctx context.Context, p *Proc, cfg *configs.Config) {
	living, end := context.WithCancel(ctx)
	defer end()
	done := make(chan error, 1)
	go func() { done <- s.live(living, cfg) }()
	select {
	case how := <-s.ended:
		s.w.note("%s %s", how, p.name)
		if how == Kill {
			p.kill()
		}
		end()
		<-done //nolint:errcheck // how it ended is the fault
	case err := <-done:
		if err != nil && ctx.Err() == nil {
			s.w.ended(p.name, err)
		}
	case <-ctx.Done():
		if err := <-done; err != nil {
			s.w.note("%s ended: %v", p.name, err)
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
	pc := cfg.ProducerConfig()
	rdb := cfg.RedisClient()
	pc.Redis, pc.Space, pc.Log = rdb, cfg.Space(), zap.NewNop()
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

func (s *slot) get() (*producer.Producer, *Proc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.producer, s.proc
}

// sluggish makes the ledger slow for all processes.
type sluggish struct {
	mu    sync.Mutex
	until time.Time
	each  time.Duration // of a transaction; 0: none begins until then
}

func (l *sluggish) set(d, each time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until, l.each = time.Now().Add(d), each
}

// gate is the gate of a process.
func (l *sluggish) gate(p *Proc) ledger.Gate {
	return func(ctx context.Context, at ledger.Moment) error {
		l.mu.Lock()
		wait, each := time.Until(l.until), l.each
		l.mu.Unlock()
		if wait > 0 && at == ledger.GateBegin {
			if each > 0 {
				wait = each
			}
			if err := sleep(ctx, wait); err != nil {
				return err
			}
		}
		return p.gate(ctx, at)
	}
}
