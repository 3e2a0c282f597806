package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Status is the state of a campaign in Redis, over all its places.
type Status struct {
	// State is computed from the states of the places. It is the first that occurs in the order missing, frozen,
	// loading, open, paused, closed, refunded. So a campaign that is open on one place and paused on another is open.
	State   string `json:"state" enum:"missing,frozen,loading,open,paused,closed,refunded" doc:"State of the campaign: the first of these states that it has on any of its shards."`
	Hash    string `json:"plan_hash" doc:"Hash of the plan with which the campaign was loaded."`
	Shard   int    `json:"shard" doc:"Number of the campaign's first shard."`
	Packets int64  `json:"packets" doc:"Number of packets of the campaign in Redis, whether loaded yet or not."`
	Counts
	GrantedAmount hongbao.Amount `json:"granted_amount" doc:"Sum of the granted packets, in minor units."`
	// LeftAmount is the sum of all packets that no user has, including packets that are not loaded yet. Without
	// those, the growth of LeftAmount during the load would reveal the amounts of single packets.
	LeftAmount hongbao.Amount `json:"left_amount" doc:"Sum of all packets that no user has got, whether loaded yet or not, in minor units."`
	// Sinks are in the order of their names. A sink that has finished no grant is missing.
	Sinks []model.Finished `json:"sinks" nullable:"false" doc:"For each sink, how many of the campaign's grants it has finished, in the order of the names. A sink that has finished none is absent."`
	Pause *Pause           `json:"pause,omitempty" doc:"Who paused the campaign, why and when. Absent unless the state is 'paused'."`
	// Places is empty if the campaign is on one shard only.
	Places []PlaceStatus `json:"places,omitempty" doc:"State on each shard of the campaign. Absent if the campaign has one shard."`

	dealt int64 // the newest generation that is complete on each place
}

// Pause is the decision by which a campaign is paused.
type Pause struct {
	By  string    `json:"by" doc:"API key, or user and host of the command, that paused the campaign. 'hongbao' if a worker did, because a grant contradicts the ledger, the plan or the remote balance system."`
	Why string    `json:"why,omitempty" doc:"The reason for the pause. Absent if none was given."`
	At  time.Time `json:"at" doc:"Time of the pause."`
}

// PlaceStatus is the state of a campaign on one of several shards. It has no amounts, because a place may have only
// one packet left.
type PlaceStatus struct {
	State string `json:"state" enum:"missing,frozen,loading,open,paused,closed,refunded" doc:"State of the campaign on this shard. 'missing': the load has not reached the shard, or Redis lost the campaign there."`
	Shard int    `json:"shard" doc:"The shard's number."`
	Counts
}

// Counts are numbers of packets of one place, or of all places together.
type Counts struct {
	Loaded  int64 `json:"loaded" doc:"Number of packets that are loaded."`
	Granted int64 `json:"granted" doc:"Number of loaded packets that users got."`
	Left    int64 `json:"left" doc:"Number of loaded packets that no user has got."`
}

func (c *Counts) add(d *Counts) {
	c.Loaded += d.Loaded
	c.Granted += d.Granted
	c.Left += d.Left
}

// missing is the state on a place without the campaign, while its home has it. Either the load has just begun, or
// Redis lost the campaign on that place.
const missing = "missing"

// Status reads the state of the campaign; false if it is not in Redis.
func (c Campaign) Status(ctx context.Context) (st Status, found bool, err error) {
	f, err := c.Home().CampaignFields(ctx)
	if err != nil || !f.Exists() {
		return st, false, err
	}
	places, err := c.placesIn(f)
	if err == nil {
		err = f.Need("packets", "total")
	}
	if err != nil {
		return st, false, err
	}
	st = Status{Hash: f.Hash, Shard: places[0].Index(), Packets: f.Packets, LeftAmount: f.Total, Sinks: []model.Finished{},
		dealt: MaxGenerations}
	for j, k := range places {
		if j > 0 {
			f, err = k.CampaignFields(ctx)
		}
		if err == nil {
			err = st.addPlace(k, f)
		}
		if err != nil {
			return Status{}, false, err
		}
	}
	st.sum()
	return st, true, nil
}

// Spec returns the canonical form of the specification with which the campaign was loaded; false if Redis does not have
// the campaign.
func (c Campaign) Spec(ctx context.Context) (spec string, found bool, err error) {
	f, err := c.Home().fields(ctx, "state", "spec")
	if err != nil {
		return "", false, err
	}
	return f.Spec, f.Exists(), nil
}

// addPlace adds the campaign's state on a place.
func (s *Status) addPlace(k Place, f *CampaignFields) error {
	p, dealt := PlaceStatus{State: missing, Shard: k.Index()}, int64(1)
	if f.Exists() {
		err := errors.Join(f.Need("loaded", grantedField, grantedAmountField), f.Readable("dealt"), s.addFinished(f))
		if err != nil {
			return err
		}
		p.State, p.Counts = f.State, Counts{Loaded: f.Loaded, Granted: f.Granted, Left: f.Loaded - f.Granted}
		s.GrantedAmount, s.LeftAmount = s.GrantedAmount+f.GrantedAmount, s.LeftAmount-f.GrantedAmount
		if p.State == StatePaused && f.PauseBy != "" { // a wrong time of the pause hides neither who nor why
			s.Pause = cmp.Or(s.Pause, &Pause{By: f.PauseBy, Why: f.PauseWhy, At: f.PauseAt})
		}
		dealt = max(dealt, f.Dealt)
	}
	s.Places, s.dealt = append(s.Places, p), min(s.dealt, dealt)
	return nil
}

// sum computes the counts and the state of the whole campaign from its places.
func (s *Status) sum() {
	order := []string{missing, StateFrozen, StateLoading, StateOpen, StatePaused, StateClosed, StateRefunded}
	first := len(order)
	for _, p := range s.Places {
		first = min(first, slices.Index(order, p.State)) // slices.Index returns -1 for an unknown state
		s.add(&p.Counts)
	}
	if s.State = s.Places[0].State; first >= 0 {
		s.State = order[first]
	}
	if s.State != StatePaused {
		s.Pause = nil
	}
	if len(s.Places) == 1 {
		s.Places = nil
	}
}

// ErrTopUpWaits says that the packets of a top-up can't be loaded into Redis yet. The campaign itself is not loaded,
// or Redis has lost some of its data.
var ErrTopUpWaits = errors.New("the packets of the top-up can't be loaded yet")

// Dealt returns the newest generation that is complete on each place. The error is ErrTopUpWaits if the campaign
// can't receive packets now. It is Transient if the campaign is not loaded yet. It is Permanent and wraps ErrLost if
// Redis has lost some of the campaign's data.
func (c Campaign) Dealt(ctx context.Context) (generation int, err error) {
	st, found, err := c.Status(ctx)
	switch {
	case err != nil:
		return 0, err
	case !found || st.State == StateLoading || st.State == missing && !st.begun():
		return 0, hongbao.Errorf(hongbao.ClassTransient, "%w: `hongbao campaign load %s` brings the campaign into Redis",
			ErrTopUpWaits, c.id)
	case st.State == StateFrozen || st.State == missing:
		return 0, hongbao.Errorf(hongbao.ClassPermanent, "%w: %w", ErrTopUpWaits, LostError(c.id))
	}
	return int(st.dealt), nil
}

// begun reports whether any place has finished loading and left StateLoading. No place opens before all places are
// loaded, so a missing place is then lost.
func (s *Status) begun() bool {
	return slices.ContainsFunc(s.Places, func(p PlaceStatus) bool { return p.State != missing && p.State != StateLoading })
}
