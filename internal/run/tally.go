package run

import (
	"fmt"
	"strings"

	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/base/metrics"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
)

// ready returns an error that names the sinks that are not open yet.
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

// tally returns the metrics of a sink's worker.
func (w *sinkWorker) tally() metrics.Tally {
	w.mu.Lock()
	c, handler := w.consumer, w.handler
	w.mu.Unlock()
	t := metrics.Tally{Shards: map[string]int{consumer.Working: 0, consumer.SinkPaused: 0, sinkOpening: 0, consumer.SinkDown: 0, sinkBroken: 0,
		consumer.RedisDown: 0, consumer.ShardFrozen: 0, consumer.ShardBroken: 0}}
	var n consumer.Stats // 0 until the sink is open, so that the series exist before the first failure
	if c == nil {
		t.Shards[w.health().code] += w.process.Store().Space().Shards
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
	if h, ok := handler.(interface{ BreakerOpen() bool }); ok {
		t.Counts[metrics.RemoteBreaker] = 0
		if h.BreakerOpen() {
			t.Counts[metrics.RemoteBreaker] = 1
		}
	}
	return t
}

// published returns the counts of the publisher. They are zero if this process has not opened sink kafka.
func (all sinkWorkers) published() (n metrics.Published) {
	for _, w := range all {
		w.mu.Lock()
		p, ok := w.handler.(*publish.Publisher)
		w.mu.Unlock()
		if ok {
			s := p.Stats()
			n = metrics.Published{Batches: s.Batches, Resends: s.Resends, TakenOver: s.TakenOver}
		}
	}
	return n
}
