package app

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/store"
)

// letters searches the dead letters for grants that a sink has finished but that its target lacks.
func (t *trailSearch) letters(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lettersTime)
	defer cancel()
	wanted := map[deadletter.Place]map[int64]*TrailSink{}
	for _, p := range t.grants {
		for i := range p.Sinks {
			x := &p.Sinks[i]
			if !x.Finished || x.Sink == configs.SinkBalance && p.Ledger != nil || x.Sink == configs.SinkKafka && p.Topic != nil {
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
	if err := t.app.scans.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("search the dead letters: %w: try again", errManyScans)
	}
	defer t.app.scans.Release(1)
	for at, of := range wanted {
		if err := t.lettersAt(ctx, at, of); err != nil {
			return fmt.Errorf("search the dead letters of sink %s: %w", at.Sink, err)
		}
	}
	return nil
}

func (t *trailSearch) lettersAt(ctx context.Context, at deadletter.Place, wanted map[int64]*TrailSink) error {
	letters := deadletter.New(t.app.store)
	err := letters.EachResolved(ctx, at.Sink, at.Shard, func(r *deadletter.Resolved) {
		if x := wanted[r.Seq]; x != nil && r.Decision == store.Dropped {
			x.Dropped = fmt.Sprintf("%s: %s", r.By, r.Why)
		}
	})
	if err != nil {
		return err
	}
	return letters.Each(ctx, at.Sink, at.Shard, "", func(page []deadletter.Letter) error {
		for i := range page {
			if x := wanted[page[i].Seq]; x != nil {
				x.Letter, x.Reason = page[i].ID, page[i].Reason
			}
		}
		return nil
	})
}
