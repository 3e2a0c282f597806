// Package campaigns brings campaigns to their shard in Redis and moves them between states. Package campaign plans them.
package campaigns

import (
	"context"
	"errors"
	"fmt"
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
	return &Store{cfg: cfg, layout: layout}, nil
}

// Load puts the plan's packets into the campaign's stock, chunk by chunk, and opens the campaign. hash is the plan's
// published hash. progress, if not nil, is told how many packets are there after each chunk.
//
// Load may be killed at any point and called again, by several processes at once too: it goes on where the stock ends.
// A campaign that is loaded is left as it is, but for codes that are missing in Redis: they are put back. Conflict if
// another plan of the same id is there.
func (s *Store) Load(ctx context.Context, c hongbao.Campaign, plan *campaign.Plan, hash string,
	progress func(loaded int64)) error {
	k := s.layout.Home(c.ID)
	fields, err := redisFields(&c)
	if err != nil {
		return err
	}
	var at shards.LoadState
	err = s.patiently(ctx, func() error {
		at, err = shards.Of(s.cfg.Redis, k).CreateCampaign(ctx,
			&shards.CampaignCall{Campaign: c.ID, Hash: hash, Fields: fields})
		return err
	})
	if err == nil && c.Codes != nil && at.Hash == hash {
		if err := s.loadCodes(ctx, k, &c, &at, progress); err != nil {
			return err
		}
	}
	for err == nil && at.State == Loading && at.Hash == hash && at.Loaded < c.Packets {
		if progress != nil {
			progress(at.Loaded)
		}
		chunk := &shards.Chunk{
			Campaign: c.ID, Hash: hash, Before: at.Loaded, First: at.Loaded + 1,
			Amounts: plan.Amounts[at.Loaded:min(at.Loaded+int64(s.cfg.Chunk), c.Packets)],
		}
		err = s.patiently(ctx, func() error {
			at, err = shards.Of(s.cfg.Redis, k).LoadChunk(ctx, chunk)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("load campaign %s, %d of %d packets are there (run it again to go on): %w", c.ID, at.Loaded,
			c.Packets, err)
	}
	if at.State == Frozen {
		return fmt.Errorf("nothing was loaded: %w", shards.LostError(c.ID))
	}
	if at.Hash != hash {
		return hongbao.Errorf(hongbao.ClassConflict,
			"load campaign %s: another plan is in Redis, with hash %s, not %s; nothing was changed",
			c.ID, at.Hash, hash)
	}
	if progress != nil {
		progress(c.Packets)
	}
	if at.State != Loading {
		return nil
	}
	return s.patiently(ctx, func() error { return shards.Of(s.cfg.Redis, k).SetState(ctx, c.ID, Open, Loading) })
}

// loadCodes puts every packet's code beside a campaign that was begun. A load goes on where the codes end; if the
// campaign is loaded and some are missing, nobody knows which: all are put back.
func (s *Store) loadCodes(ctx context.Context, k shards.Keys, c *hongbao.Campaign, at *shards.LoadState,
	progress func(int64)) error {
	if s.cfg.Codes == nil {
		return hongbao.Errorf(hongbao.ClassPermanent,
			"load campaign %s: its packets have codes, and nobody said where they are: give Config.Codes", c.ID)
	}
	chunk := &shards.CodesChunk{Campaign: c.ID, Hash: at.Hash, First: 1}
	has, err := s.putCodes(ctx, k, chunk)
	if err != nil || has.Loaded == c.Packets {
		return err
	}
	if at.State == Loading {
		chunk.First = has.Loaded + 1
	}
	for chunk.First <= c.Packets {
		if progress != nil {
			progress(chunk.First - 1)
		}
		chunk.Codes, err = s.cfg.Codes(ctx, c.ID, chunk.First-1, s.cfg.Chunk)
		if err == nil && len(chunk.Codes) == 0 {
			err = hongbao.Errorf(hongbao.ClassPermanent,
				"packet %d has none in the ledger; `hongbao campaign create` with the same specification goes on there",
				chunk.First)
		}
		if err != nil {
			return fmt.Errorf("load the codes of campaign %s: %w", c.ID, err)
		}
		if has, err = s.putCodes(ctx, k, chunk); err != nil {
			return err
		}
		chunk.First += int64(len(chunk.Codes))
	}
	if has.Loaded != c.Packets {
		return hongbao.Errorf(hongbao.ClassBroken, "load the codes of campaign %s: %s has %d, the campaign %d packets; "+
			"something else writes there", c.ID, k.Codes(c.ID), has.Loaded, c.Packets)
	}
	return nil
}

func (s *Store) putCodes(ctx context.Context, k shards.Keys, chunk *shards.CodesChunk) (has shards.LoadState,
	err error) {
	err = s.patiently(ctx, func() error {
		has, err = shards.Of(s.cfg.Redis, k).PutCodes(ctx, chunk)
		return err
	})
	if err != nil {
		return has, fmt.Errorf("load the codes of campaign %s (run it again to go on): %w", chunk.Campaign, err)
	}
	if has.Hash != chunk.Hash {
		return has, hongbao.Errorf(hongbao.ClassConflict,
			"load the codes of campaign %s: it was taken out of Redis or replaced meanwhile", chunk.Campaign)
	}
	return has, nil
}

// Pause makes the campaign answer paused until Resume. A second call is no error.
func (s *Store) Pause(ctx context.Context, id string) error {
	return shards.Of(s.cfg.Redis, s.layout.Home(id)).SetState(ctx, id, Paused, Open)
}

// Resume opens a paused campaign. A second call is no error.
func (s *Store) Resume(ctx context.Context, id string) error {
	return shards.Of(s.cfg.Redis, s.layout.Home(id)).SetState(ctx, id, Open, Paused)
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

// Status is how a campaign stands on its shard.
type Status struct {
	State         string         `json:"state"`
	Hash          string         `json:"plan_hash"`
	Shard         int            `json:"shard"`
	Packets       int64          `json:"packets"`
	Loaded        int64          `json:"loaded"`
	Granted       int64          `json:"granted"`
	GrantedAmount hongbao.Amount `json:"granted_amount"`
	Left          int64          `json:"left"`
	LeftAmount    hongbao.Amount `json:"left_amount"`
}

// Status reads how the campaign stands; false if it is not in Redis.
func (s *Store) Status(ctx context.Context, id string) (Status, bool, error) {
	k := s.layout.Home(id)
	m, err := shards.Of(s.cfg.Redis, k).CampaignFields(ctx, id)
	if err != nil || len(m) == 0 {
		return Status{}, false, err
	}
	st := Status{State: m["state"], Hash: m["hash"], Shard: k.Index()}
	for name, to := range map[string]*int64{
		"packets": &st.Packets, "loaded": &st.Loaded, "granted": &st.Granted,
		"granted_amount": (*int64)(&st.GrantedAmount), "loaded_amount": (*int64)(&st.LeftAmount),
	} {
		if *to, err = strconv.ParseInt(m[name], 10, 64); err != nil {
			return Status{}, false, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis, field %s: %w", id, name, err)
		}
	}
	st.Left, st.LeftAmount = st.Loaded-st.Granted, st.LeftAmount-st.GrantedAmount
	return st, true, nil
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
	return fields, nil
}
