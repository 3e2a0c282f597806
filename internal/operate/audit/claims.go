package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// readClaims counts the pushes in progress. It reports a claim whose lease is over and whose events are all finished, if
// the sink owes some of them: no worker will complete it.
func (r *run) readClaims(ctx context.Context) error {
	if r.partial() {
		return nil
	}
	now, err := r.Store.Time(ctx)
	if err != nil {
		return err
	}
	for _, k := range r.sinks {
		for _, s := range r.shards {
			err := s.Group(k.group).EachClaim(ctx, func(c store.OpenClaim, err error) error {
				r.claim(k, s, &c, err, now)
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// claim counts a claim, and reports it if it can't be read or if no worker will complete it.
func (r *run) claim(k *sink, s *shard, c *store.OpenClaim, broken error, now time.Time) {
	r.report.Total.OpenClaims++
	if broken != nil {
		r.found(model.Difference{Kind: OpenClaim, Where: s.Keys.Claims(k.group), Detail: fmt.Sprintf("claim %.80q: %v",
			c.ID, broken)})
		return
	}
	if c.Until.After(now) {
		return
	}
	for _, events := range c.Events {
		if k.at[s.Index()].anyUndone(events.First, events.Last) {
			return // the events are pending, so a worker will reclaim them and complete the claim
		}
	}
	if len(store.Without(c.Events, k.owed[s.Index()].Not())) == 0 {
		return // the sink was removed before it completed the claim
	}
	r.found(model.Difference{Kind: OpenClaim, Where: s.Keys.Claims(k.group), Detail: fmt.Sprintf(
		"claim %.80q over events %.200s: its lease is over and its events are finished", c.ID, store.FormatEvents(c.Events))})
}
