package deliveries

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Debts returns the record of what each sink owes; nil if the deployment has no ledger.
func (a Deliveries) Debts() consumer.Debts {
	if a.app.Config.Ledger.DSN == "" {
		return nil
	}
	return a.app.Ledger()
}

// Owed returns what a sink owes on each shard; nil if the deployment has no ledger, and the sink owes everything.
func (a Deliveries) Owed(ctx context.Context, sink string) ([]stream.Owed, error) {
	if a.app.Config.Ledger.DSN == "" {
		return nil, nil
	}
	begins := make([]store.GroupBegin, a.app.Store().Len())
	for i := range begins {
		var err error
		if begins[i], err = a.app.Store().Shard(i).Group(sink).Begin(ctx); err != nil {
			return nil, fmt.Errorf("what sink %s owes: %w", sink, err)
		}
	}
	rows, err := a.app.Ledger().OwedRows(ctx)
	out := make([]stream.Owed, len(begins))
	for i := range out {
		out[i] = begins[i].Owed(ledger.OwedBy(rows, sink, i))
	}
	return out, err
}

// OwedOn returns what a sink owes on a shard. Without a ledger it owes everything.
func (a Deliveries) OwedOn(ctx context.Context, shard int, sink string) (stream.Owed, error) {
	if a.app.Config.Ledger.DSN == "" {
		return nil, nil
	}
	begin, err := a.app.Store().Shard(shard).Group(sink).Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("what sink %s owes: %w", sink, err)
	}
	recorded, err := a.app.Ledger().Owed(ctx, shard)
	return begin.Owed(recorded[sink]), err
}

// NotOwed is a range of a shard's events that a sink does not owe.
type NotOwed struct {
	Sink  string `json:"sink" doc:"Name of the sink."`
	Shard int    `json:"shard" doc:"The shard's number."`
	First int64  `json:"first" doc:"First seq of the range."`
	Last  int64  `json:"last" doc:"Last seq of the range."`
	// Removed is when the sink was removed; zero before it was added for the first time.
	Removed time.Time `json:"removed,omitzero" doc:"Time when the sink was removed. Absent if the sink was not there before."`
	Added   time.Time `json:"added" doc:"Time when the sink was added again, or for the first time."`
}

// AddNotOwed adds to a status which events the configured sinks do not owe. If the ledger does not answer, it adds
// nothing.
func (a Deliveries) AddNotOwed(ctx context.Context, s *Status) {
	if a.app.Config.Ledger.DSN == "" {
		return
	}
	rows, err := a.app.Ledger().OwedRows(ctx)
	if err != nil {
		return
	}
	s.NotOwed = []NotOwed{}
	for i := range rows { // by sink, shard and seq
		to := &rows[i]
		n := NotOwed{Sink: to.Sink, Shard: to.Shard, First: 1, Last: to.First - 1, Added: to.Begun}
		if i > 0 && rows[i-1].Sink == to.Sink && rows[i-1].Shard == to.Shard {
			n.First, n.Removed = rows[i-1].Last+1, rows[i-1].Ended
		}
		if n.First <= n.Last && a.app.Has(to.Sink) {
			s.NotOwed = append(s.NotOwed, n)
		}
	}
}

// NotOwedText returns a line for each sink that was added after the first event, and for each range of events between a
// removal of a sink and its return.
func NotOwedText(list []NotOwed) (lines []string) {
	var sinks []string
	events, shards, added := map[string]int64{}, map[string]int{}, map[string]time.Time{}
	for i := range list {
		n := &list[i]
		if n.Removed.IsZero() {
			if events[n.Sink] == 0 {
				sinks = append(sinks, n.Sink)
			}
			events[n.Sink], shards[n.Sink] = events[n.Sink]+n.Last, shards[n.Sink]+1
			if n.Added.After(added[n.Sink]) {
				added[n.Sink] = n.Added
			}
			continue
		}
		lines = append(lines, fmt.Sprintf("sink %s does not owe events %d to %d of shard %d: it was removed at %s, and "+
			"added again at %s; `hongbao replay NAME --to %[1]s --missing --shard %[4]d --seq %[2]d-%[3]d` delivers them",
			n.Sink, n.First, n.Last, n.Shard, n.Removed.Format(time.RFC3339), n.Added.Format(time.RFC3339)))
	}
	for i, sink := range sinks {
		sinks[i] = fmt.Sprintf("sink %s was added at %s: it does not owe the %s events before, on %d shards; --json has "+
			"their seqs", sink, added[sink].Format(time.RFC3339), money.Count(events[sink]), shards[sink])
	}
	return append(sinks, lines...)
}
