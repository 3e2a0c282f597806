package find

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// letters searches the dead letters for grants that a sink has finished but that its target lacks.
func (t *trailSearch) letters(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lettersTime)
	defer cancel()
	wanted := map[deadletter.Place]map[int64]*TrailSink{}
	for _, p := range t.grants {
		for i := range p.Sinks {
			x := &p.Sinks[i]
			if !x.Finished || p.has(x.Sink) {
				continue
			}
			at := deadletter.Place{Sink: x.Sink, Shard: p.grant.Shard}
			if wanted[at] == nil {
				wanted[at] = map[int64]*TrailSink{}
			}
			wanted[at][p.grant.Seq] = x
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	if err := t.app.Scans().Acquire(ctx, 1); err != nil {
		return fmt.Errorf("search the dead letters: %w: try again", errManyScans)
	}
	defer t.app.Scans().Release(1)
	for at, of := range wanted {
		if err := t.lettersAt(ctx, at, of); err != nil {
			return fmt.Errorf("search the dead letters of sink %s: %w", at.Sink, err)
		}
	}
	return nil
}

// has reports whether the trail has found the grant in a sink.
func (p *trailed) has(sink string) bool {
	return sink == configs.SinkBalance && p.Ledger != nil || sink == configs.SinkKafka && p.Topic != nil
}

// notOwed marks the sinks that do not owe a grant and do not have it. Done bits say nothing about such a grant: it counts
// as finished once they are deleted.
func (t *trailSearch) notOwed(ctx context.Context) error {
	for _, p := range t.grants {
		for i := range p.Sinks {
			x := &p.Sinks[i]
			if p.has(x.Sink) || x.Letter != "" || x.Dropped != "" {
				continue
			}
			owed, err := deliveries.Of(t.app).OwedOn(ctx, p.grant.Shard, x.Sink)
			if err != nil {
				return err
			}
			if x.NotOwed = !owed.Owes(p.grant.Seq); x.NotOwed {
				x.Finished = false
			}
		}
	}
	return nil
}

func (t *trailSearch) lettersAt(ctx context.Context, at deadletter.Place, wanted map[int64]*TrailSink) error {
	letters := deadletter.New(t.app.Store())
	err := letters.EachResolved(ctx, at.Sink, at.Shard, func(r *deadletter.Resolved) {
		if x := wanted[r.Seq]; x != nil && r.Decision == model.LetterDropped {
			x.Dropped = fmt.Sprintf("%s: %s", r.By, r.Why)
		}
	})
	if err != nil {
		return err
	}
	return letters.Each(ctx, at.Sink, at.Shard, "", func(page []model.Letter) error {
		for i := range page {
			if x := wanted[page[i].Seq]; x != nil {
				x.Letter, x.Reason = page[i].ID, page[i].Reason
			}
		}
		return nil
	})
}
