package deliveries

import (
	"cmp"
	"fmt"
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

// judge sets State and Why. down is the report of a worker that can't deliver; nil means that there is none.
func (s *SinkStatus) judge(down *store.DownReport) {
	alive := func(w SinkWorker) bool { return w.Alive }
	var oldest float64 // seconds
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
	case len(s.Workers) == 0:
		s.become(SinkNoWorker, "no worker has started yet; %s starts one", s.program())
	case !slices.ContainsFunc(s.Workers, alive):
		last := slices.MinFunc(s.Workers, func(a, b SinkWorker) int { return cmp.Compare(a.Seen, b.Seen) })
		s.become(SinkNoWorker, "its last worker was seen %s ago; %s starts one", wholeSeconds(last.Seen), s.program())
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
