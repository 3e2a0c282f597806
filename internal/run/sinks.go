package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/base/metrics"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/sinks"
	"github.com/hongbao-project/hongbao/internal/store"
)

// The codes of a sink that is not open yet. Once the sink is open, consumer.Health has a code for each of its shards.
const (
	sinkOpening = "sink_opening"
	sinkDown    = consumer.SinkDown
	// sinkBroken means that the sink can't be opened, and an operator has to fix it.
	sinkBroken = "sink_broken"
)

// sinkWorker opens one sink, with retries, and delivers to it.
type sinkWorker struct {
	process  *process
	config   consumer.Config
	measured *metrics.Sinks // nil if this process exports no metrics

	mu       sync.Mutex
	handler  hongbao.Handler    // the sink's own handler; nil until the sink is open
	consumer *consumer.Consumer // nil until the sink is open
	err      error              // why the sink is not open
	since    time.Time          // when the first attempt to open it began
}

func newSinkWorker(p *process, sink string) *sinkWorker {
	w := &sinkWorker{process: p, config: p.Config.ConsumerConfig(sink), since: time.Now()}
	w.config.Deployment, w.config.Consumer, w.config.Debts = p.Deployment(), p.Worker(), deliveries.Of(p.App).Debts()
	return w
}

// open makes one attempt to open the sink.
func (w *sinkWorker) open(ctx context.Context) error {
	h, err := w.process.Handler(ctx, w.config.Group)
	var c *consumer.Consumer
	if err == nil {
		w.config.Handler = h
		if w.measured != nil {
			w.config.Handler = w.measured.Handler(w.config.Group, h)
		}
		w.config.Handler = w.process.traceSink(w.config.Group, w.config.Handler)
		if c, err = consumer.New(w.config); err != nil {
			sinks.Close(h)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err = err; err == nil {
		w.consumer, w.handler = c, h
	}
	return err
}

// run opens the sink, and delivers to it until ctx ends. It calls first with the result of its first attempt to open
// the sink.
func (w *sinkWorker) run(ctx context.Context, first func(error)) error {
	sink := zap.String("sink", w.config.Group)
	err := w.open(ctx)
	first(err)
	policy := retry.Backoff(time.Second, 30*time.Second, 0)
	for tries := 0; err != nil; tries++ {
		outage := hongbao.IsOutage(err)
		switch {
		case ctx.Err() != nil:
			return nil // the process was stopped, so err is not the sink's fault
		case !outage:
			w.process.Log().Error("ALARM: a sink can't be opened and an operator has to fix it; the worker keeps retrying, "+
				"and the other sinks work",
				sink, zap.String("code", sinkBroken), zap.Error(err))
		case tries == 0:
			w.process.Log().Error("a sink can't be reached; it is tried again and again, and the other sinks work",
				sink, zap.String("code", sinkDown), zap.Error(err))
		default:
			w.process.Log().Warn("the sink can't be reached yet", sink, zap.Error(err))
		}
		if !retry.Pause(ctx, policy.NextBackOff()) {
			if outage {
				return nil
			}
			return err
		}
		if err = w.open(ctx); err == nil {
			w.process.Log().Info("the sink works again", sink)
		}
	}
	defer sinks.Close(w.handler)
	w.process.Log().Info("working", sink, zap.String("worker", w.process.Worker()), zap.Int("shards", w.process.Store().Len()))
	if r, ok := w.handler.(interface{ TendDoubts(context.Context) }); ok {
		sweeping, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { r.TendDoubts(sweeping) })
		defer wg.Wait()
		defer stop()
	}
	err = w.consumer.Run(ctx)
	w.noteEnd(ctx)
	return err
}

// noteEnd tells readers of the sink's state that this worker was stopped, and did not crash.
func (w *sinkWorker) noteEnd(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	end := store.WorkerEnd{Worker: w.process.Worker(), At: time.Now()}
	if err := w.process.Store().NoteEnd(ctx, w.config.Group, end); err != nil {
		w.process.Log().Info("the end of the worker can't be stored, so the status of the sink will show it as lost",
			zap.String("sink", w.config.Group), zap.Error(err))
	}
}

// sinkHealth is the state of a sink in this process.
type sinkHealth struct {
	code  string
	bad   int             // shards that do not work
	worst consumer.Health // of the shards that do not work
}

func (w *sinkWorker) health() sinkHealth {
	w.mu.Lock()
	defer w.mu.Unlock()
	closed := func(code string) sinkHealth {
		return sinkHealth{code: code, bad: w.process.Store().Space().Shards, worst: consumer.Health{Since: w.since, Err: w.err}}
	}
	switch {
	case w.consumer != nil:
		return healthOf(w.consumer.Health())
	case w.err == nil:
		return closed(sinkOpening)
	case hongbao.IsOutage(w.err):
		return closed(sinkDown)
	}
	return closed(sinkBroken)
}

func healthOf(shards []consumer.Health) sinkHealth {
	all := sinkHealth{code: consumer.Working}
	rank := func(code string) int {
		return slices.Index([]string{consumer.Working, consumer.SinkPaused, consumer.SinkDown, consumer.RedisDown, consumer.ShardFrozen,
			consumer.ShardBroken}, code)
	}
	for _, h := range shards {
		if h.Code == consumer.Working {
			continue
		}
		all.bad++
		if rank(h.Code) > rank(all.code) {
			all.code, all.worst = h.Code, h
		}
	}
	return all
}

// sinkWorkers are the sink workers of one process.
type sinkWorkers []*sinkWorker

// run runs the sinks concurrently. Each sink begins once it is open, and its failures do not affect the others. If all
// sinks fail to open with an error other than an outage, run returns the errors, so that whoever started the worker
// sees them at once.
func (all sinkWorkers) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs, opened := make([]error, len(all)), make(chan error, len(all))
	var wg sync.WaitGroup
	for i, w := range all {
		wg.Go(func() {
			if err := w.run(ctx, func(err error) { opened <- err }); err != nil {
				errs[i] = fmt.Errorf("%s: %w", w.config.Group, err)
			}
		})
	}
	var refused []error
	for range all {
		if err := <-opened; err != nil && !hongbao.IsOutage(err) {
			refused = append(refused, err)
		}
	}
	if len(refused) == len(all) && ctx.Err() == nil {
		cancel()
		wg.Wait()
		return errors.Join(refused...)
	}
	wg.Wait()
	return errors.Join(errs...)
}

// healthEvery is how often the log reports a sink that does not work.
const healthEvery = time.Minute

// logHealth logs every minute which sinks do not work.
func (all sinkWorkers) logHealth(ctx context.Context) error {
	for retry.Pause(ctx, healthEvery) {
		for _, w := range all {
			h := w.health()
			if h.code == consumer.SinkPaused {
				w.process.Log().Warn("a sink is paused, its grants wait until an operator resumes it",
					zap.String("sink", w.config.Group), zap.String("code", h.code), zap.Time("since", h.worst.Since), zap.Error(h.worst.Err))
			} else if h.bad > 0 {
				w.process.Log().Error("a sink does not work on some or all shards", zap.String("sink", w.config.Group),
					zap.String("code", h.code),
					zap.Int("shards", h.bad), zap.Int("shard", h.worst.Shard), zap.Time("since", h.worst.Since),
					zap.Error(h.worst.Err))
			}
		}
	}
	return nil
}
