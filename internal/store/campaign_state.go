package store

import (
	"context"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// States of a campaign on its shard. The answer of a grab also depends on the window: an open campaign answers
// not_started before it and ended after it.
const (
	StateLoading = "loading"
	StateOpen    = "open"
	StatePaused  = "paused"
	// StateFrozen: Redis has lost something of the campaign, so no one can say what is left. It grants nothing.
	StateFrozen = "frozen"
	// StateClosed and StateRefunded grant nothing any more.
	StateClosed   = "closed"
	StateRefunded = "refunded"
)

// Pause makes the campaign answer paused until Resume. A second call is no error. The decision is stored with the
// state.
func (c Campaign) Pause(ctx context.Context, by stream.Decision) error {
	return c.move(ctx, StateChange{StatePaused, StateOpen, by})
}

// Resume opens a paused campaign. A second call is no error. The decision is stored with the state.
func (c Campaign) Resume(ctx context.Context, by stream.Decision) error {
	return c.move(ctx, StateChange{StateOpen, StatePaused, by})
}

// move moves a campaign on all its places from one state to another. If a place is in neither state, move changes
// nothing. A call that is killed under way has moved some places; the caller repeats it. move continues with the
// other places if Redis has lost a place, or a place does not answer. The error then names that place. It is an
// outage if any place does not answer.
func (c Campaign) move(ctx context.Context, to StateChange) error {
	places, err := c.Places(ctx)
	if err != nil {
		return err
	}
	if len(places) > 1 {
		states, errs := Ask(len(places), AllAtOnce, func(i int) (string, error) {
			state, _, err := places[i].CampaignState(ctx, c.id)
			return state, err
		})
		for i, err := range errs {
			if err != nil || slices.Contains([]string{to.To, to.From, StateFrozen, ""}, states[i]) {
				continue
			}
			if err := places[i].SetStateBy(ctx, c.id, to); err != nil { // its error is the reason
				return onPlace(places[i], len(places), err)
			}
		}
	}
	errs := Each(len(places), AllAtOnce, func(i int) error { return places[i].SetStateBy(ctx, c.id, to) })
	for i, err := range errs {
		if hongbao.IsOutage(err) { // before a refusal: another call can move this place
			return onPlace(places[i], len(places), err)
		}
	}
	return c.Joined(places, errs)
}
