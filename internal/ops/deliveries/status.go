package deliveries

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/answers"
	"github.com/hongbao-project/hongbao/internal/base/metrics"
	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Status is the state of all sinks.
type Status struct {
	Sinks []SinkStatus `json:"sinks" nullable:"false" doc:"Status of each sink, in the order of the configuration key 'deployment.sinks'."`
	// Unrecorded are the shards that a person opened without the ledger, as long as the ledger has not recorded the
	// opening.
	Unrecorded []app.UnrecordedShard `json:"unrecorded" nullable:"false" doc:"Shards that a person opened while the ledger was down. Their grants wait until the ledger has recorded the opening."`
	// Unrefunded are the campaigns whose refund is late; nil if the ledger does not answer.
	Unrefunded []ledger.Unrefunded `json:"unrefunded" nullable:"true" doc:"Campaigns whose window ended more than a day ago and that are not refunded, the earliest end first. Null without a ledger, and while the ledger does not answer."`
	// NotOwed are the events that the sinks do not owe; nil if the ledger does not answer.
	NotOwed []NotOwed `json:"not_owed" nullable:"true" doc:"Ranges of events that a sink does not owe, because it was added later or was removed at that time, by sink, shard and seq. Null without a ledger, and while the ledger does not answer."`
}

// SinkStatus is the state of a sink.
type SinkStatus struct {
	Sink string `json:"sink" doc:"Name of the sink."`
	// Program is the knob own.*.program of a sink of the user's own.
	Program optional.Text `json:"program,omitempty" doc:"For a sink of your own: the program that delivers to it, and who runs it. Absent for other sinks."`
	State   SinkState     `json:"state" enum:"unread,paused,down,no_worker,behind,working" doc:"State of the sink: the first of these states that applies."`
	Why     optional.Text `json:"why" nullable:"true" doc:"Why the sink is in this state, as text; null for the state 'working'."`
	// Down is nil unless the state is SinkDown.
	Down *SinkReport `json:"down,omitempty" doc:"What a worker says about the sink that it can't reach. Absent unless the state is 'down'."`
	// Waiting is how many grants and closes the sink has not finished. Oldest is how long the oldest of them has waited;
	// nil if there are none.
	Waiting int64    `json:"waiting" doc:"Number of grants and closes that the sink has not finished."`
	Oldest  *float64 `json:"oldest_seconds" doc:"For how many seconds the oldest of these grants and closes has waited; null if there are none."`
	// Pending counts the entries in the hands of workers and the parked entries.
	Pending int64     `json:"pending_entries" doc:"Number of entries pending at workers, including the parked entries."`
	Parked  int64     `json:"parked_entries" doc:"Number of entries that wait for another attempt."`
	Dead    int64     `json:"dead_letters" doc:"Number of dead letters that wait for a decision."`
	Pause   SinkPause `json:"pause" doc:"Whether a person has paused the whole sink."`
	Limit   SinkLimit `json:"limit" doc:"The rate limit that a person has set for the sink."`
	// Campaigns are the campaigns that are paused for this sink only.
	Campaigns []PausedCampaign `json:"paused_campaigns" doc:"Campaigns that are paused for this sink only, in the order of their ids."`
	Shards    []ShardStatus    `json:"shards" doc:"Status on each shard that could be read. The numbers of the sink are sums over these shards."`
	// Unread are the shards whose state could not be read, such as a frozen shard. The other fields do not include these
	// shards.
	Unread  []UnreadShard `json:"unread" doc:"Shards that could not be read, such as a frozen shard. The numbers of the sink do not include them."`
	Workers []SinkWorker  `json:"workers" doc:"Workers of the sink, in the order of their names. A worker is listed once for all shards."`
}

// SinkReport is what a worker says about a sink to which it can't deliver.
type SinkReport struct {
	Worker string    `json:"worker" doc:"Name of the worker."`
	Code   string    `json:"code" enum:"sink_down,sink_broken,shard_broken" doc:"Reason: the sink's target does not answer, the sink can't be opened as it is configured, or the worker can't go on with a shard."`
	Since  time.Time `json:"since" doc:"Time since which the worker can't deliver, by its clock."`
	Shards int       `json:"shards" doc:"On how many shards it can't deliver."`
	Error  string    `json:"error" doc:"The error of the newest attempt, as text."`
}

// InWork returns how many entries are in the hands of workers.
func (s *SinkStatus) InWork() int64 { return s.Pending - s.Parked }

// UnreadShard is a shard on which the state of a sink could not be read.
type UnreadShard struct {
	Shard int    `json:"shard" doc:"The shard's number."`
	Why   string `json:"why" doc:"Why the shard could not be read: the error, as text."`
	err   error
}

// ShardStatus is the state of a sink on a shard.
type ShardStatus struct {
	Shard   int      `json:"shard" doc:"The shard's number."`
	Seq     int64    `json:"seq" doc:"Seq of the newest event on the shard."`
	Waiting int64    `json:"waiting" doc:"Number of grants and closes on the shard that the sink has not finished."`
	Oldest  *float64 `json:"oldest_seconds" doc:"For how many seconds the oldest of these grants and closes has waited; null if there are none."`
	Parked  int64    `json:"parked_entries" doc:"Number of entries on the shard that wait for another attempt."`
	Dead    int64    `json:"dead_letters" doc:"Number of dead letters on the shard that wait for a decision."`
}

// SinkWorker is a worker of a sink, with the totals over all shards.
type SinkWorker struct {
	Worker string `json:"worker" doc:"Name of the worker."`
	// Alive means that the lease on its entries has not ended.
	Alive bool    `json:"alive" doc:"True if the worker has called Redis within the time of the configuration key 'consumer.lease'."`
	Seen  float64 `json:"seen_seconds_ago" doc:"Seconds since the worker's last call of Redis, on any shard."`
	Holds int64   `json:"holds_entries" doc:"Number of entries pending at the worker, on all shards."`
}

// standing is the state of a sink on a shard, or the error of reading it.
type standing struct {
	store.GroupStatus
	err error
	// outage means that no server answered, although ctx had not ended.
	outage bool
}

// standings reads the state of each sink on each shard from Redis. The result is in the order of deployment.sinks, and
// then of the shards. A failing shard does not affect the other shards. The state of a frozen shard may be outdated.
func (a Deliveries) standings(ctx context.Context) [][]standing {
	n := len(a.app.Config.Deployment.Sinks)
	out := make([][]standing, n)
	for i := range out {
		out[i] = make([]standing, a.app.Store().Len())
	}
	store.Each(n*a.app.Store().Len(), app.AsksAtOnce, func(i int) error {
		s := &out[i%n][i/n]
		s.GroupStatus, s.err = a.app.Store().Shard(i / n).Group(a.app.Config.Deployment.Sinks[i%n]).Status(ctx)
		s.outage = hongbao.IsOutage(s.err) && ctx.Err() == nil
		return nil // each standing keeps its own error
	})
	return out
}

// Status reads the state of every sink from Redis, and writes nothing. Shards that can't be read are in Unread. If no
// shard can be read, Status returns an error, unless the shards are frozen.
func (a Deliveries) Status(ctx context.Context) (*Status, error) {
	out := &Status{Sinks: []SinkStatus{}, Unrecorded: app.Unrecorded(ctx, a.app.Store())}
	var first error
	read := false
	sinks := a.standings(ctx)
	reports := a.reports(ctx, sinks)
	for i, on := range sinks {
		s := a.sinkStatus(a.app.Config.Deployment.Sinks[i], on)
		s.judge(reports[i])
		out.Sinks = append(out.Sinks, s)
		read = read || len(s.Shards) > 0
		if first == nil && len(s.Unread) > 0 {
			first = fmt.Errorf("status of sink %s on shard %d: %w", s.Sink, s.Unread[0].Shard, s.Unread[0].err)
		}
	}
	if !read && !errors.Is(first, store.ErrFrozen) {
		return nil, first
	}
	return out, nil
}

// reports returns what the workers of each sink have said about themselves. They have said nothing if the first shard,
// which has the reports, could not be read.
func (a Deliveries) reports(ctx context.Context, sinks [][]standing) []store.SinkReports {
	if len(sinks) > 0 && !sinks[0][0].outage {
		list, err := a.app.Store().Reports(ctx, a.app.Config.Deployment.Sinks)
		if err == nil { // else an outage began just now
			return list
		}
	}
	return make([]store.SinkReports, len(sinks))
}

// SinkStatus adds up the state of a sink on the shards. It does not set State and Why, see judge.
func (a Deliveries) sinkStatus(sink string, on []standing) SinkStatus {
	s := SinkStatus{Sink: sink, Program: optional.Text(a.app.Config.ProgramOf(sink)), Shards: []ShardStatus{}, Unread: []UnreadShard{}, Workers: []SinkWorker{},
		Campaigns: []PausedCampaign{}}
	workers := map[string]store.Worker{}
	for i := range on {
		g := &on[i]
		if g.err != nil {
			s.Unread = append(s.Unread, UnreadShard{i, g.err.Error(), g.err})
			continue
		}
		s.add(i, &g.GroupStatus)
		for _, w := range g.Workers {
			s.Pending += w.Holds
			if seen, ok := workers[w.Name]; ok {
				w.Seen, w.Holds = min(w.Seen, seen.Seen), w.Holds+seen.Holds
			}
			workers[w.Name] = w
		}
	}
	slices.SortFunc(s.Campaigns, func(a, b PausedCampaign) int { return strings.Compare(a.Campaign, b.Campaign) })
	for _, name := range slices.Sorted(maps.Keys(workers)) {
		w := workers[name]
		s.Workers = append(s.Workers, SinkWorker{name, w.Seen < a.app.Config.Consumer.Lease, w.Seen.Seconds(), w.Holds})
	}
	return s
}

func (s *SinkStatus) add(shard int, g *store.GroupStatus) {
	oldest := answers.OrNull(g.Waiting > 0, g.Oldest.Seconds())
	s.Shards = append(s.Shards, ShardStatus{shard, g.Seq, g.Waiting, oldest, g.Parked, g.Dead})
	s.Waiting += g.Waiting
	if oldest != nil && (s.Oldest == nil || *s.Oldest < *oldest) {
		s.Oldest = oldest
	}
	s.Pending += g.Parked
	s.Parked += g.Parked
	s.Pause.add(&g.Control)
	s.Limit.add(&g.Control)
	for _, c := range g.Campaigns {
		seen := func(p PausedCampaign) bool { return p.Campaign == c.Campaign }
		if c.Paused && !slices.ContainsFunc(s.Campaigns, seen) {
			s.Campaigns = append(s.Campaigns, PausedCampaign{c.Campaign, c.By, c.Why, c.At})
		}
	}
	s.Dead += g.Dead
}

// CheckRead returns an error if a shard could not be read. It names these shards for each sink.
func (s *Status) CheckRead() error {
	var all []error
	for i := range s.Sinks {
		x := &s.Sinks[i]
		if len(x.Unread) == 0 {
			continue
		}
		var errs []error
		for _, u := range x.Unread {
			err := u.err
			if err == nil { // if the status came over HTTP, it has only the text
				err = hongbao.Outagef(hongbao.ClassTransient, "%s", u.Why)
			}
			errs = append(errs, fmt.Errorf("shard %d: %w", u.Shard, err))
		}
		all = append(all, fmt.Errorf("sink %s: %d of %d shards did not report its state: %w", x.Sink, len(errs),
			len(errs)+len(x.Shards), errors.Join(errs...)))
	}
	return errors.Join(all...)
}

// Deserted returns an error if grants wait for a sink and none of its workers is alive. It names these sinks.
func (s *Status) Deserted() error {
	var sinks []string
	for i := range s.Sinks {
		x := &s.Sinks[i]
		if x.Waiting > 0 && !slices.ContainsFunc(x.Workers, func(w SinkWorker) bool { return w.Alive }) {
			sinks = append(sinks, fmt.Sprintf("%d for sink %s (workers: %s)", x.Waiting, x.Sink, x.program()))
		}
	}
	if len(sinks) == 0 {
		return nil
	}
	return app.NeedsAttention("grants wait, %s, and no worker is alive: start one, unless Redis was down until just now; then "+
		"running workers go on within seconds", strings.Join(sinks, ", "))
}

// Down returns an error if workers can't deliver to a sink. It names these sinks.
func (s *Status) Down() error {
	var sinks []string
	for i := range s.Sinks {
		if s.Sinks[i].State == SinkDown {
			sinks = append(sinks, s.Sinks[i].Sink)
		}
	}
	if len(sinks) == 0 {
		return nil
	}
	return app.NeedsAttention("workers can't deliver to %s: the answer says why; `hongbao doctor` checks the servers",
		strings.Join(sinks, ", "))
}

// AddUnrefunded adds to a status the campaigns whose refund is late. If the ledger does not answer, it adds nothing.
func (a Deliveries) AddUnrefunded(ctx context.Context, s *Status) {
	if a.app.Config.Ledger.DSN == "" {
		return
	}
	list, err := a.app.Unrefunded(ctx)
	if err != nil {
		return
	}
	s.Unrefunded = []ledger.Unrefunded{}
	for _, c := range list {
		if time.Since(c.Ends) > metrics.RefundWithin {
			s.Unrefunded = append(s.Unrefunded, c)
		}
	}
}

// UnrefundedText says that a campaign's refund is late, and which command shows the next step.
func UnrefundedText(c *ledger.Unrefunded) string {
	return fmt.Sprintf("campaign %s: its window ended at %s, and it is not refunded; `hongbao campaign refund %[1]s` says what "+
		"to do", c.Campaign, c.Ends.Format(time.RFC3339))
}
