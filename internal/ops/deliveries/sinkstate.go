package deliveries

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/store"
)

// SinkState is a one-word summary of the state of a sink.
type SinkState string

// The states of a sink. If several apply, judge sets the one that comes first in the enum of SinkStatus.State.
const (
	SinkWorking  SinkState = "working"
	SinkPaused   SinkState = "paused"
	SinkDown     SinkState = "down"
	SinkBehind   SinkState = "behind"
	SinkNoWorker SinkState = "no_worker"
	SinkUnread   SinkState = "unread"
)

// behindAfter is how long a grant may wait before the sink counts as behind.
const behindAfter = 30 * time.Second

// judge sets State and Why. reports are what the sink's workers have said about themselves.
func (s *SinkStatus) judge(reports store.SinkReports) {
	down, ended := reports.Down, reports.Ended
	alive := func(w SinkWorker) bool { return w.Alive && (ended == nil || ended.Worker != w.Worker) } // Alive is late
	var oldest float64                                                                                // seconds
	if s.Oldest != nil {
		oldest = *s.Oldest
	}
	switch {
	case len(s.Unread) > 0 || len(s.Shards) == 0:
		s.become(SinkUnread, "%d of %d shards did not report its state", len(s.Unread),
			len(s.Unread)+len(s.Shards))
	case s.Pause.Paused:
		s.become(SinkPaused, "paused by %s: %s", s.Pause.By, s.Pause.Why)
	case down != nil:
		s.become(SinkDown, "worker %s can't deliver on %s since %s (%s) and tries again within a minute: %s", down.Worker, plural.Of(down.Shards, "shard"),
			down.Since.UTC().Format(time.DateTime+" UTC"), down.Code, down.Error)
		s.Down = &SinkReport{down.Worker, down.Code, down.Since.UTC().Truncate(time.Millisecond), down.Shards, down.Error}
	case !slices.ContainsFunc(s.Workers, alive):
		s.become(SinkNoWorker, "%s; %s starts one", s.lastWorker(ended), s.program())
	case oldest > behindAfter.Seconds() && len(s.Campaigns) > 0:
		s.become(SinkBehind, "a grant has waited for %s: %s %s paused for this sink", wholeSeconds(oldest),
			plural.Of(len(s.Campaigns), "campaign"), plural.Verb(len(s.Campaigns), "is", "are"))
	case oldest > behindAfter.Seconds():
		s.become(SinkBehind, "a grant has waited for %s: the sink's target is slow, or its "+
			"rate is limited; the workers' log and `hongbao doctor` say which", wholeSeconds(oldest))
	default:
		s.State = SinkWorking
	}
}

// endSkew is by how much the clocks of a worker and a reader may differ.
const endSkew = 5 * time.Second

// lastWorker says what became of the sink's last worker. end is the last end in order; nil if it is not known. A worker
// that was seen after that end did not end in order.
func (s *SinkStatus) lastWorker(end *store.WorkerEnd) string {
	seen := math.Inf(1)
	for _, w := range s.Workers {
		seen = min(seen, w.Seen)
	}
	if end != nil {
		if ended := time.Since(end.At); ended.Seconds() <= seen+endSkew.Seconds() {
			return fmt.Sprintf("its last worker %s was stopped %s ago, in order", end.Worker, wholeSeconds(max(ended.Seconds(), 0)))
		}
	}
	if len(s.Workers) == 0 {
		return "no worker has started yet"
	}
	return fmt.Sprintf("its last worker was seen %s ago and did not end in order", wholeSeconds(seen))
}

// program returns the program whose workers deliver to the sink.
func (s *SinkStatus) program() string {
	if s.Program == "" {
		return "`hongbao work`"
	}
	return "its program (" + string(s.Program) + ")"
}

func (s *SinkStatus) become(state SinkState, why string, args ...any) {
	s.State, s.Why = state, optional.Text(fmt.Sprintf(why, args...))
}

func wholeSeconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}
