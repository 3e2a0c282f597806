// Package campaigns brings campaigns to their shard in Redis and moves them between states. Package campaign plans them.
package campaigns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/knob"
	"github.com/hongbao-project/hongbao/internal/retry"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/stream"
	"github.com/hongbao-project/hongbao/internal/walk"
)

// States of a campaign on its shard. The window decides besides: an open campaign answers not_started before it and
// ended after it.
const (
	Loading = "loading"
	Open    = "open"
	Paused  = "paused"
	// Frozen: Redis has lost something of the campaign, so nobody can say what is left. It grants nothing.
	Frozen = "frozen"
	// Closed and Refunded grant nothing any more.
	Closed   = "closed"
	Refunded = "refunded"
)

// Config of a Store.
type Config struct {
	Redis redis.UniversalClient
	Space hongbao.Space
	// Codes gives the codes of up to n packets after a number, in their order, as the ledger has them. It is needed to
	// load a campaign that has codes; nil where none is loaded.
	Codes func(ctx context.Context, id string, after int64, n int) ([]string, error)
	// Pause gives the ledger's last decision to pause or resume a campaign, nil if it has none. A campaign that is loaded
	// while it is paused stays paused. nil where nothing is loaded.
	Pause func(ctx context.Context, id string) (*stream.Control, error)
	// Packets that one call loads into Redis, which is busy meanwhile.
	//
	// A Lua call takes fewer than 8,000 arguments.
	Chunk int `knob:"campaign.load_chunk" default:"1000" want:"1 to 5000 packets"`
	// How long one call is repeated while Redis is out of reach; 0s for no repeat.
	Patience time.Duration `knob:"campaign.load_patience" default:"30s" want:"0s to 1h"`
}

// Store brings campaigns to their shard and moves them between states. Its methods may be called at once.
type Store struct {
	cfg    Config
	layout *shards.Layout
	lease  time.Duration // see topup.go
}

// New checks the configuration.
func New(cfg Config) (*Store, error) {
	errs := knob.Check(&cfg)
	if cfg.Redis == nil {
		errs = append(errs, errors.New("redis is required"))
	}
	layout, err := shards.NewLayout(cfg.Space)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("campaign store: %w", errors.Join(errs...))
	}
	return &Store{cfg: cfg, layout: layout, lease: lease}, nil
}

// Pause makes the campaign answer paused until Resume. A second call is no error. by and why are kept with the state.
func (s *Store) Pause(ctx context.Context, id, by, why string) error {
	return s.move(ctx, id, shards.StateChange{To: Paused, From: Open, By: by, Why: why})
}

// Resume opens a paused campaign. A second call is no error. by and why are kept with the state.
func (s *Store) Resume(ctx context.Context, id, by, why string) error {
	return s.move(ctx, id, shards.StateChange{To: Open, From: Paused, By: by, Why: why})
}

// move moves a campaign on all its places from one state to another. If a place is in neither, it moves none. If it is
// killed on its way it has moved some, and is called again. It moves the others even if Redis has lost a place, or a
// place does not answer; the error names that one.
func (s *Store) move(ctx context.Context, id string, c shards.StateChange) error {
	places, err := shards.PlacesOf(ctx, s.cfg.Redis, s.layout, id)
	if err != nil {
		return err
	}
	set := func(k shards.Keys) error {
		return onPlace(shards.Of(s.cfg.Redis, k).SetStateBy(ctx, id, c), places, k)
	}
	if len(places) > 1 {
		states := make([]string, len(places))
		for i, err := range shards.Each(len(places), func(i int) (err error) {
			states[i], _, err = shards.Of(s.cfg.Redis, places[i]).CampaignState(ctx, id)
			return err
		}) {
			if err == nil && !slices.Contains([]string{c.To, c.From, Frozen, ""}, states[i]) {
				return set(places[i]) // says why not
			}
		}
	}
	return shards.EachOf(places, set)
}

// onPlace says on which place something failed, where there are several.
func onPlace(err error, places []shards.Keys, k shards.Keys) error {
	if err == nil || len(places) == 1 {
		return err
	}
	return fmt.Errorf("on shard %d, one of %d: %w", k.Index(), len(places), err)
}

// patiently repeats a call that is safe to repeat while Redis is out of reach.
func (s *Store) patiently(ctx context.Context, call func() error) error {
	policy := retry.Backoff(20*time.Millisecond, 2*time.Second, max(s.cfg.Patience, 1))
	return backoff.Retry(func() error {
		err := call()
		if err != nil && !hongbao.IsOutage(err) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(policy, ctx))
}

// redisFields are the fields that the scripts look at, and the whole specification for people who look. Redis searches
// a small hash from its front, field by field; with a text as long as that it keeps a table, and grabs get their fields
// faster.
func redisFields(c *hongbao.Campaign) ([]string, error) {
	zone, err := Transitions(*c)
	if err != nil {
		return nil, err
	}
	user := map[hongbao.Period]string{}
	var names, limits []string
	position := map[string]int{}
	for _, l := range c.Limits {
		if l.By == hongbao.ByUser {
			user[l.Per] = strconv.FormatInt(l.Max, 10)
			continue
		}
		if position[l.By] == 0 {
			names = append(names, l.By)
			position[l.By] = len(names)
		}
		limits = append(limits, fmt.Sprintf("%d:%s:%d", position[l.By], l.Per, l.Max))
	}
	fields := []string{
		"from", strconv.FormatInt(c.From.UnixMilli(), 10), "to", strconv.FormatInt(c.To.UnixMilli(), 10),
		"user_campaign", strconv.FormatInt(c.UserHold(), 10), "user_day", user[hongbao.PerDay], "user_hour",
		user[hongbao.PerHour],
		"fact_names", strings.Join(names, ","), "fact_limits", strings.Join(limits, " "), "zone", encodeTransitions(zone),
		"packets", strconv.FormatInt(c.Packets, 10), "total", strconv.FormatInt(int64(c.Total), 10),
		"kind", string(c.Kind), "currency", c.Currency, "name", c.Name, "durability", string(c.Durability), "spec",
		string(campaign.Canonical(*c)),
	}
	if c.Codes != nil {
		fields = append(fields, shards.CodesField, "1")
	}
	if c.Places() > 1 {
		fields = append(fields, "walk", walk.Version)
	}
	return fields, nil
}
