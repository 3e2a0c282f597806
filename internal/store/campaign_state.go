package store

import (
	"context"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// States of a campaign on its shard. The outcome of a grab also depends on the campaign's window: not_started before
// the window, ended after it.
const (
	StateLoading = "loading"
	StateOpen    = "open"
	StatePaused  = "paused"
	// StateFrozen grants nothing: Redis has lost some of the campaign's data, so nobody knows how many packets are
	// left.
	StateFrozen = "frozen"
	// StateClosed and StateRefunded grant nothing any more.
	StateClosed   = "closed"
	StateRefunded = "refunded"
)

// Pause makes the campaign answer paused until Resume. changed is false if every place was paused already: then the
// first decision stays. Pause stores the decision with the state.
func (c Campaign) Pause(ctx context.Context, by stream.Decision) (changed bool, err error) {
	return c.move(ctx, StateChange{StatePaused, StateOpen, by})
}

// Resume opens a paused campaign. changed is false if every place was open already. Resume stores the decision with the
// state.
func (c Campaign) Resume(ctx context.Context, by stream.Decision) (changed bool, err error) {
	return c.move(ctx, StateChange{StateOpen, StatePaused, by})
}

// move changes the state of a campaign on all its places. If any place is in neither of the two states, move changes
// nothing. An interrupted call may have changed some places; the caller repeats it. If Redis has lost a place, or a
// place does not answer, move still changes the other places. The error names the failed place. It is an outage if
// any place does not answer.
func (c Campaign) move(ctx context.Context, to StateChange) (changed bool, err error) {
	places, err := c.Places(ctx)
	if err != nil {
		return false, err
	}
	if len(places) > 1 {
		states, errs := Ask(len(places), AllAtOnce, func(i int) (string, error) {
			state, _, err := places[i].CampaignState(ctx)
			return state, err
		})
		for i, err := range errs {
			if err != nil || slices.Contains([]string{to.To, to.From, StateFrozen, ""}, states[i]) {
				continue
			}
			if _, err := places[i].SetStateBy(ctx, to); err != nil { // fails with the reason
				return false, onPlace(places[i], len(places), err)
			}
		}
	}
	moved, errs := Ask(len(places), AllAtOnce, func(i int) (bool, error) { return places[i].SetStateBy(ctx, to) })
	for i, err := range errs {
		if hongbao.IsOutage(err) { // an outage takes precedence over a refusal: a retry may succeed
			return false, onPlace(places[i], len(places), err)
		}
	}
	return slices.Contains(moved, true), c.Joined(places, errs)
}
