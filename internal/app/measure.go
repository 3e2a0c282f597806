package app

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/base/group"
	"github.com/hongbao-project/hongbao/internal/base/metrics"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/sink/publish"
	"github.com/hongbao-project/hongbao/producer"
)

// measures is what a process measures, for whoever scrapes its ops listener.
type measures struct {
	set       *metrics.Set
	pprof     bool
	ledger    func(kind string, took time.Duration, again bool, err error)
	kafka     func(request string, took time.Duration, err error)
	sinks     *metrics.Sinks
	publisher atomic.Pointer[publish.Publisher]
}

// measure begins to measure the process. It comes before anything that is measured, and before anything logs.
func (a *App) measure(command string) {
	set := metrics.New(command, version())
	a.measures = &measures{set: set, pprof: a.Config.Ops.Pprof, ledger: set.Ledger(), kafka: set.Kafka()}
	a.log = set.CountAlarms(a.log)
}

// version is that of the build.
func version() string {
	if b, ok := debug.ReadBuildInfo(); ok {
		return b.Main.Version
	}
	return "unknown"
}

// opsPart is the ops listener of a process that has no other one for it.
func (a *App) opsPart(knob, address string, ready func() error) group.Part {
	o := &web.Ops{Listen: address, Knob: knob, Ready: ready, Metrics: a.measures.set.Handler(), Pprof: a.measures.pprof,
		Log: zap.NewStdLog(a.log), Opened: func(at net.Addr) {
			a.log.Info("serving metrics and health", zap.Stringer("address", at))
		}}
	return group.Part{Name: "ops", Run: o.Run}
}

// workOps measures a worker's sinks. The worker is ready once it has opened all of its sinks, and stays so.
func (a *App) workOps(all sinkWorkers) group.Part {
	m := a.measures
	m.sinks = m.set.Sinks()
	for _, w := range all {
		m.sinks.Tally(w.config.Group, w.tally)
	}
	m.set.Publisher(func() (n metrics.Published) {
		if p := m.publisher.Load(); p != nil {
			s := p.Stats()
			n = metrics.Published{Batches: s.Batches, Resends: s.Resends, TakenOver: s.TakenOver}
		}
		return n
	})
	a.exportState(nil)
	return a.opsPart("work.ops_listen", a.Config.Work.OpsListen, all.ready)
}

// ready names the sinks that are not open yet.
func (all sinkWorkers) ready() error {
	var closed []string
	for _, w := range all {
		w.mu.Lock()
		if w.consumer == nil {
			closed = append(closed, w.config.Group)
		}
		w.mu.Unlock()
	}
	if len(closed) > 0 {
		return fmt.Errorf("%w sink %s", web.ErrOpening, strings.Join(closed, " and sink "))
	}
	return nil
}

// tally is what a sink's worker has counted.
func (w *sinkWorker) tally() metrics.Tally {
	w.mu.Lock()
	c, handler := w.consumer, w.handler
	w.mu.Unlock()
	t := metrics.Tally{Shards: map[string]int{consumer.Working: 0, consumer.SinkPaused: 0, sinkOpening: 0, consumer.SinkDown: 0, sinkBroken: 0,
		consumer.RedisDown: 0, consumer.ShardFrozen: 0, consumer.ShardBroken: 0}}
	var n consumer.Stats // 0 until the sink is open: a series begins before its first failure
	if c == nil {
		t.Shards[w.health().code] += w.config.Space.Shards
	} else {
		n = c.Stats()
		for _, h := range c.Health() {
			t.Shards[h.Code]++
			t.LastSteps = append(t.LastSteps, h.LastStep)
		}
	}
	t.Counts = map[*metrics.Metric]int64{metrics.WorkerDone: n.Done, metrics.WorkerDead: n.Dead,
		metrics.WorkerParked: n.Parked, metrics.WorkerHanded: n.HandedBack, metrics.WorkerTaken: n.Taken,
		metrics.WorkerSkipped: n.Skipped, metrics.WorkerOutages: n.Outages, metrics.WorkerLeases: n.LeasesLost}
	t.Incidents = map[string]int64{"forged_entry": n.Forged, "events_lost": n.Vanished, "group_vanished": n.Groups}
	if h, ok := handler.(*alarmed); ok {
		t.Counts[metrics.RemoteBreaker] = 0
		if h.BreakerOpen() {
			t.Counts[metrics.RemoteBreaker] = 1
		}
	}
	return t
}

// measureServe measures the grabs of this process, and the calls of the producer that it is to be made of.
func (a *App) measureServe(grabs *producer.Config) *metrics.GrabCounts {
	a.measure("serve")
	counts := a.measures.set.Grabs()
	grabs.Log = a.log
	grabs.Called = func(c producer.Call) { counts.Called(c.Campaign, c.Grabs, c.Took, c.Err) }
	a.exportState(counts)
	return counts
}

// measuredGrabber counts grabs and their outcomes, for who scrapes this process and for the console.
type measuredGrabber struct {
	*producer.Producer
	counts   *metrics.GrabCounts
	outcomes *Outcomes
}

// Grab implements serve.Grabber.
func (m *measuredGrabber) Grab(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error) {
	start := time.Now()
	answer, err := m.Producer.Grab(ctx, g)
	m.counts.Grabbed(g, answer.Outcome, err, time.Since(start))
	if err == nil {
		m.outcomes.Add(g.Campaign, answer.Outcome)
	}
	return answer, err
}
