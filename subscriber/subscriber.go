package subscriber

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// Subscriber reads the topic as a member of a consumer group. It has one worker per partition.
type Subscriber struct {
	cfg    Config
	source string
	log    *logClient
	count  counters

	// Tests replace these functions to inject faults.
	newReader  func(c *Config, partition int, offset int64) recordReader
	newLetters func(c *Config) letterWriter
	commit     func(g *kafka.Generation, partition int, at position) error
}

// recordReader reads the records of a partition. *reader implements it.
type recordReader interface {
	FetchMessage(ctx context.Context) (kafka.Message, error)
	// troubles grows before the first record is returned that follows an error or a new connection.
	troubles() int64
	Close() error
}

// New returns a Subscriber, or an error that names every problem of the configuration. It opens no connection.
func New(cfg Config) (*Subscriber, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	log := newLogClient(&cfg)
	return &Subscriber{
		cfg: cfg, source: cloudevent.SourcePrefix + cfg.Deployment, log: log,
		newReader:  func(c *Config, partition int, offset int64) recordReader { return newReader(c, partition, offset) },
		newLetters: func(c *Config) letterWriter { return newWriter(c) },
		commit:     log.commit,
	}, nil
}

// session is the state of one call of Run.
type session struct {
	*Subscriber
	letters letterWriter
	stop    context.CancelFunc // ends Run
	workers sync.WaitGroup
	without atomic.Bool // see balancer

	mu   sync.Mutex
	errs []error // why Run ended, or which batches it did not finish
}

// Run waits until the topic exists, and then reads until ctx ends or a Broken error occurs. When ctx ends, each worker
// stops reading, and finishes and commits its current batch within DrainTimeout. Then the member leaves the group.
//
// Run returns nil if all batches were finished. The next owner of a partition reads an unfinished batch again, and the
// Sink drops the events that it has seen. Run may be called again after it has returned, but not concurrently.
func (s *Subscriber) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	run := &session{Subscriber: s, letters: s.newLetters(&s.cfg), stop: stop}
	defer run.log.close()
	if run.awaitTopic(ctx); ctx.Err() != nil {
		return run.letters.Close()
	}
	member := groupConfig(&s.cfg)
	for i, b := range member.GroupBalancers {
		member.GroupBalancers[i] = balancer{b, &run.without}
	}
	group, err := kafka.NewConsumerGroup(member)
	if err != nil {
		return errors.Join(hongbao.Errorf(hongbao.ClassBroken, "join group %s: %w", s.cfg.Group, err), run.letters.Close())
	}
	run.follow(ctx, group)
	closed := group.Close() // ends the current generation and its workers
	run.workers.Wait()
	if closed = errors.Join(closed, run.letters.Close()); closed != nil {
		run.errs = append(run.errs, fmt.Errorf("leave group %s: %w", s.cfg.Group, closed))
	}
	return errors.Join(run.errs...)
}

// follow joins the group, and starts workers for each generation. A generation is the time between two rebalances.
func (s *session) follow(ctx context.Context, group *kafka.ConsumerGroup) {
	for wait := newBackoff(s.cfg); ctx.Err() == nil; {
		gen, err := group.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.count.readErrors.Add(1)
				s.cfg.Log.Warn("joining the group failed; trying again", zap.String("group", s.cfg.Group), zap.Error(err))
				retry.Pause(ctx, wait.NextBackOff())
			}
			continue
		}
		wait.Reset()
		if s.without.Swap(false) {
			s.rejoin(gen)
		}
		for _, a := range gen.Assignments[s.cfg.Topic] {
			s.workers.Add(1)
			gen.Start(func(own context.Context) {
				defer s.workers.Done()
				s.ended(ctx, s.work(ctx, own, gen, a.ID))
			})
		}
	}
}

// ended records the error of a worker. A Broken error ends Run.
func (s *session) ended(run context.Context, err error) {
	switch {
	case err == nil:
		return
	case hongbao.ClassOf(err) == hongbao.ClassBroken:
		s.stop()
	case run.Err() == nil: // the partition moved
		s.cfg.Log.Warn("a batch was not finished when its partition moved; it will be read again", zap.Error(err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
}

// drain returns a context that ends when ctx has ended and the budget after that is used up.
func drain(ctx context.Context, budget time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var timer *time.Timer
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		timer = time.AfterFunc(budget, cancel)
	})
	return work, func() {
		if !stop() {
			<-ended
			timer.Stop()
		}
		cancel()
	}
}

// newBackoff returns a backoff from Backoff to MaxBackoff without a limit on the number of retries.
func newBackoff(c Config) *backoff.ExponentialBackOff {
	return retry.Backoff(c.Backoff, c.MaxBackoff, 0)
}
