package deliveries

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/store"
)

// SinkRemoval is the input of RemoveSink.
type SinkRemoval struct {
	Sink string
	stream.Decision
	// GiveUp is the most grants and closes that the sink may never get.
	GiveUp int64
}

// RemovedSink is the result of RemoveSink.
type RemovedSink struct {
	Sink string `json:"sink"`
	// Shards is the number of shards whose group this call deleted. A repeat after a failure counts the other ones.
	Shards int `json:"shards"`
	// GivenUp counts the grants and closes that waited for the sink on these shards. Letters counts the dead letters that
	// were dropped.
	GivenUp int64 `json:"given_up"`
	Letters int64 `json:"letters_dropped"`
}

// RemoveSink deletes what a sink has that deployment.sinks does not name: its groups, dead letters, pauses and limit.
// It records that the sink owes no later event. It is refused while a worker of the sink is alive, or if more grants
// wait than the caller gives up. A repeat completes a removal that has failed midway.
func (a Deliveries) RemoveSink(ctx context.Context, in SinkRemoval) (*RemovedSink, error) {
	if err := a.checkRemoval(&in); err != nil {
		return nil, err
	}
	if err := a.app.OpenRedis(ctx); err != nil {
		return nil, err
	}
	s, err := a.removable(ctx, &in)
	if err != nil {
		return nil, err
	}
	out := &RemovedSink{Sink: in.Sink}
	e := aboutSink(ctx, access.RemoveSink, in.Sink)
	e.Details["by"], e.Details["why"], e.Details["give_up"] = in.By, in.Why, in.GiveUp
	err = a.app.Recorded(ctx, e, func(ctx context.Context, e *access.Entry) error {
		err := a.remove(ctx, &in, &s, out)
		e.Details["shards"], e.Details["given_up"], e.Details["letters"] = out.Shards, out.GivenUp, out.Letters
		return err
	})
	if err != nil {
		err = fmt.Errorf("remove sink %s: %w; repeat the command to complete it", in.Sink, err)
	}
	return out, err
}

func (a Deliveries) checkRemoval(in *SinkRemoval) error {
	switch err := hongbao.CheckCampaignID(in.Sink); {
	case err != nil: // names of sinks follow the same rules
		return app.Usage("sink %.80q: %s", in.Sink, err)
	case a.app.Has(in.Sink):
		return app.Usage("sink %s is among deployment.sinks (%s): take it out of the configuration of every process and "+
			"restart them, then remove it", in.Sink, strings.Join(a.app.Config.Deployment.Sinks, ", "))
	case in.GiveUp < 0:
		return app.Usage("--give-up %d: want 0 or more grants", in.GiveUp)
	}
	return in.Check()
}

// removable returns the state of a sink. The error says why the sink can't be removed.
func (a Deliveries) removable(ctx context.Context, in *SinkRemoval) (s SinkStatus, err error) {
	on, exists := make([]standing, a.app.Store().Len()), false
	store.Each(len(on), app.AsksAtOnce, func(i int) error {
		on[i].GroupStatus, on[i].err = a.app.Store().Shard(i).Group(in.Sink).Status(ctx)
		return nil // each standing keeps its own error
	})
	for i := range on {
		exists = exists || on[i].Exists
		if !on[i].Exists { // an earlier call has given up what waits
			on[i].Waiting = 0
		}
	}
	s = a.sinkStatus(in.Sink, on)
	if len(s.Unread) > 0 {
		return s, fmt.Errorf("sink %s: shard %d did not report its state, and nothing was done: %w", in.Sink, s.Unread[0].Shard,
			s.Unread[0].err)
	}
	if i := slices.IndexFunc(s.Workers, func(w SinkWorker) bool { return w.Alive }); i >= 0 {
		return s, hongbao.Errorf(hongbao.ClassConflict, "sink %s has a live worker, %s, which would create its group again: stop "+
			"its workers, and try again %v later", in.Sink, s.Workers[i].Worker, a.app.Config.Consumer.Lease)
	}
	if lost := s.Waiting + s.Dead; lost > in.GiveUp {
		return s, hongbao.Errorf(hongbao.ClassConflict, "sink %s has not got %s grants and closes: %s wait for it, and %s are dead "+
			"letters. If it may never get them, add --give-up %d; or put it back into deployment.sinks and let its workers finish",
			in.Sink, money.Count(lost), money.Count(s.Waiting), money.Count(s.Dead), lost)
	}
	known, err := a.hadSink(ctx, in.Sink)
	if err == nil && !known && !exists && s.Dead == 0 {
		err = hongbao.Errorf(hongbao.ClassPermanent, "sink %s is unknown: no shard has a group or a dead letter of that name, and no "+
			"worker ever recorded it; `hongbao status` lists the sinks", in.Sink)
	}
	return s, err
}

// hadSink reports whether the ledger has a record of what a sink owes or owed.
func (a Deliveries) hadSink(ctx context.Context, sink string) (bool, error) {
	if a.app.Config.Ledger.DSN == "" {
		return false, nil
	}
	rows, err := a.app.Ledger().OwedRows(ctx)
	return slices.ContainsFunc(rows, func(r ledger.OwedRow) bool { return r.Sink == sink }), err
}

func (a Deliveries) remove(ctx context.Context, in *SinkRemoval, s *SinkStatus, out *RemovedSink) error {
	if s.Dead > 0 {
		pick := deadletter.Pick{Filter: deadletter.Filter{Sinks: []string{in.Sink}}}
		err := a.withLettersLock(ctx, in.Sink, false, func(ctx context.Context) error {
			report, err := deadletter.New(a.app.Store()).Drop(ctx, pick, in.Decision, false)
			out.Letters = report.Resolved
			if err == nil && report.Failed > 0 {
				err = hongbao.Errorf(hongbao.ClassConflict, "%d dead letters stay, because an open claim may still deliver their grants: "+
					"put the sink back into deployment.sinks, and let its workers finish (`hongbao claim list`)", report.Failed)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	var failed []error
	for i := range s.Shards {
		removed, err := a.removeFrom(ctx, in, s, a.app.Store().Shard(i))
		if removed {
			out.Shards++
			out.GivenUp += s.Shards[i].Waiting
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("shard %d: %w", i, err))
		}
	}
	return errors.Join(failed...)
}

// removeFrom removes a sink from a shard, and reports whether it deleted the group.
func (a Deliveries) removeFrom(ctx context.Context, in *SinkRemoval, s *SinkStatus, k *store.Shard) (removed bool, err error) {
	g := k.Group(in.Sink)
	if removed, err = g.Remove(ctx); err != nil {
		return removed, err
	}
	if debts := a.Debts(); debts != nil {
		if _, _, err := g.EndOwing(ctx, debts); err != nil {
			return removed, err
		}
	}
	if s.Pause.Paused {
		_, _, err = g.Resume(ctx, in.Decision)
	}
	if err == nil && s.Limit.GrantsPerSecond != nil {
		_, _, err = g.Limit(ctx, nil, in.Decision)
	}
	for i := 0; i < len(s.Campaigns) && err == nil; i++ {
		_, _, err = g.ResumeCampaign(ctx, s.Campaigns[i].Campaign, in.Decision)
	}
	return removed, err
}
