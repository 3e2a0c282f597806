package app

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// SinkState says in a word how a sink stands.
type SinkState string

// The states of a sink; judge sets the first that holds, in the order of SinkStatus.State.
const (
	SinkWorking  SinkState = "working"
	SinkPaused   SinkState = "paused"
	SinkBehind   SinkState = "behind"
	SinkNoWorker SinkState = "no_worker"
	SinkUnread   SinkState = "unread"
)

// behindAfter is how long a grant waits at most while a sink works.
const behindAfter = 30 * time.Second

// judge sets the state. What the sink delivers to is known to its workers only: whoever looks sees that grants wait.
func (s *SinkStatus) judge() {
	alive := func(w SinkWorker) bool { return w.Alive }
	switch {
	case len(s.Unread) > 0 || len(s.Shards) == 0:
		s.State, s.Why = SinkUnread, fmt.Sprintf("%d of %d shards did not tell how it stands there", len(s.Unread),
			len(s.Unread)+len(s.Shards))
	case s.Pause.Paused:
		s.State, s.Why = SinkPaused, fmt.Sprintf("paused by %s: %s", s.Pause.By, s.Pause.Why)
	case len(s.Workers) == 0:
		s.State, s.Why = SinkNoWorker, "no worker has come yet; `hongbao work` starts one"
	case !slices.ContainsFunc(s.Workers, alive):
		last := slices.MinFunc(s.Workers, func(a, b SinkWorker) int { return cmp.Compare(a.Seen, b.Seen) })
		s.State, s.Why = SinkNoWorker, fmt.Sprintf("its last worker was seen %s ago; `hongbao work` starts one",
			wholeSeconds(last.Seen))
	case s.Oldest > behindAfter.Seconds() && len(s.Campaigns) > 0:
		s.State, s.Why = SinkBehind, fmt.Sprintf("a grant has waited for %s: %d campaigns are paused for this sink",
			wholeSeconds(s.Oldest), len(s.Campaigns))
	case s.Oldest > behindAfter.Seconds():
		s.State, s.Why = SinkBehind, fmt.Sprintf("a grant has waited for %s: what the sink delivers to is away or slow, or its "+
			"rate is bounded; the log and /readyz of its workers say which", wholeSeconds(s.Oldest))
	default:
		s.State = SinkWorking
	}
}

func wholeSeconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}
