// Package load loads the planned packets of campaigns and of their top-ups into Redis.
package load

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Config configures a Loader.
type Config struct {
	// Codes reads codes from the ledger: those of up to n packets after packet number after, in ascending order. It
	// may be nil if no campaign with codes is loaded.
	Codes func(ctx context.Context, id string, after int64, n int) ([]string, error)
	// Pause returns the ledger's last decision to pause or resume a campaign, nil if there is none. If that is a
	// pause, Load leaves the campaign paused. If Pause is nil, Load opens every campaign.
	Pause func(ctx context.Context, id string) (*stream.Control, error)
	// Number of packets that one call loads into Redis. Redis does nothing else during the call.
	//
	// A Lua call takes fewer than 8,000 arguments.
	Chunk int `knob:"campaign.load_chunk" default:"1000" want:"1 to 5000 packets"`
	// How long the load repeats one call while Redis does not answer; 0s for no repeat.
	Patience time.Duration `knob:"campaign.load_patience" default:"30s" want:"0s to 1h"`
}

// Loader puts the packets of campaigns and of their top-ups on their shards. It is safe for concurrent use.
type Loader struct {
	store *store.Store
	cfg   Config
	lease time.Duration // see topup.go
}

// New returns a Loader, or an error for a wrong configuration.
func New(st *store.Store, cfg Config) (*Loader, error) {
	if errs := knob.Check(&cfg); len(errs) > 0 {
		return nil, fmt.Errorf("load campaigns: %w", errors.Join(errs...))
	}
	return &Loader{store: st, cfg: cfg, lease: lease}, nil
}

// Load puts the plan's packets into the stocks of the campaign's places, chunk by chunk, and opens the campaign. hash
// is the plan's published hash. After each chunk, Load calls progress with the number of loaded packets; progress may
// be nil.
//
// An interrupted Load can be repeated, even by several processes at once. It continues after the last loaded packet.
// In a campaign that is already loaded, it only restores missing codes. The error is a Conflict if Redis has a
// different plan for the same campaign id.
func (s *Loader) Load(ctx context.Context, c hongbao.Campaign, plan *campaign.Plan, hash string,
	progress func(loaded int64)) error {
	if c.Places() > s.store.Len() {
		return hongbao.Errorf(hongbao.ClassPermanent, "load campaign %s: it wants %d shards, the deployment has %d; nothing "+
			"was loaded", c.ID, c.Places(), s.store.Len())
	}
	l := s.newLoad(&c, hash, plan.Amounts, progress)
	// A grab that finds a place empty continues to the other places. So every place must have its packets before the
	// first one opens; otherwise users would be refused too early.
	for _, step := range []func(context.Context) error{l.checkWhole, l.create, l.loadCodes, l.deal, l.open} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Deal returns the amounts of the packets of place j of n. The packet with index i, from 0 over all generations, goes
// to place i mod n.
func Deal(amounts []hongbao.Amount, n, j int) []hongbao.Amount {
	if n == 1 {
		return amounts
	}
	dealt := make([]hongbao.Amount, 0, len(amounts)/n+1)
	for i := j; i < len(amounts); i += n {
		dealt = append(dealt, amounts[i])
	}
	return dealt
}

// load is the state of one call of Load.
type load struct {
	*Loader
	c        *hongbao.Campaign
	hash     string
	places   []*place
	progress func(loaded int64)
}

// place is one shard of the campaign.
type place struct {
	store.Place
	number  int
	amounts []hongbao.Amount
	sum     hongbao.Amount
	at      store.LoadState
}

// newLoad deals the amounts of all packets to the places of the campaign.
func (s *Loader) newLoad(c *hongbao.Campaign, hash string, amounts []hongbao.Amount, progress func(loaded int64)) *load {
	if progress == nil {
		progress = func(int64) {}
	}
	l := &load{Loader: s, c: c, hash: hash, progress: progress}
	for j, k := range s.store.Places(c.ID, c.Places()) {
		p := &place{Place: k, number: j, amounts: Deal(amounts, c.Places(), j)}
		for _, a := range p.amounts {
			p.sum += a
		}
		l.places = append(l.places, p)
	}
	return l
}

// chunk returns the next packets to load on a place.
func (l *load) chunk(p *place) *store.Chunk {
	step, has := int64(len(l.places)), p.at.Loaded
	return &store.Chunk{
		Campaign: l.c.ID, Hash: l.hash, Before: has, First: int64(p.number) + 1 + has*step, Step: step,
		Amounts: p.amounts[has:min(has+int64(l.cfg.Chunk), int64(len(p.amounts)))],
	}
}

// checkWhole returns an error if Redis has lost the campaign on one of its places. A load would deal that place's
// packets a second time. A missing place is lost if any other place has finished loading, because no place opens
// before all are loaded.
func (l *load) checkWhole(ctx context.Context) error {
	if len(l.places) == 1 {
		return nil
	}
	var missing []*place
	begun := false
	for _, p := range l.places {
		state, err := l.stateOn(ctx, p)
		if err != nil {
			return err
		}
		if state == "" {
			missing = append(missing, p)
		}
		begun = begun || state != "" && state != store.StateLoading
	}
	for _, p := range missing {
		if !begun {
			return nil
		}
		state, err := l.stateOn(ctx, p)
		if err != nil {
			return err
		}
		if state == "" {
			return fmt.Errorf("nothing was loaded: shard %d does not have the campaign: %w", p.Index(), store.LostError(l.c.ID))
		}
	}
	return nil
}

// stateOn returns the campaign's state on a place, empty if the place does not have the campaign.
func (l *load) stateOn(ctx context.Context, p *place) (state string, err error) {
	err = l.retry(ctx, func() (err error) {
		state, _, err = p.CampaignState(ctx)
		return err
	})
	if err != nil {
		return "", l.stopped(err)
	}
	return state, nil
}

// create creates the campaign on each place where it is missing, and reads how far the load has come.
func (l *load) create(ctx context.Context) error {
	fields, err := redisFields(l.c)
	if err != nil {
		return err
	}
	for _, p := range l.places {
		call := &store.CampaignCall{Campaign: l.c.ID, Hash: l.hash, Places: len(l.places), Place: p.number,
			Share: int64(len(p.amounts)), ShareAmount: p.sum, Fields: fields}
		err := l.retry(ctx, func() (err error) {
			p.at, err = p.CreateCampaign(ctx, call)
			return err
		})
		if err := l.check(p, err); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error if the load can't continue on a place after a call: because of err, or of the place's state.
func (l *load) check(p *place, err error) error {
	switch {
	case err != nil:
		return l.stopped(err)
	case p.at.State == store.StateFrozen:
		return fmt.Errorf("nothing was loaded: %w", store.LostError(l.c.ID))
	case p.at.Hash != l.hash:
		return hongbao.Errorf(hongbao.ClassConflict,
			"load campaign %s: another plan is in Redis: its hash is %s, not %s; nothing was changed", l.c.ID, p.at.Hash, l.hash)
	}
	return nil
}

func (l *load) stopped(err error) error {
	return fmt.Errorf("load campaign %s, %d of %d packets are there (run it again to continue): %w", l.c.ID, l.loaded(),
		l.c.Packets, err)
}

func (l *load) loaded() (n int64) {
	for _, p := range l.places {
		n += p.at.Loaded
	}
	return n
}

// deal puts the packets into the stocks, one place after the other.
func (l *load) deal(ctx context.Context) error {
	for _, p := range l.places {
		for p.at.State == store.StateLoading && p.at.Loaded < int64(len(p.amounts)) {
			l.progress(l.loaded())
			chunk := l.chunk(p)
			err := l.retry(ctx, func() (err error) {
				p.at, err = p.LoadChunk(ctx, chunk)
				return err
			})
			if err := l.check(p, err); err != nil {
				return err
			}
		}
	}
	l.progress(l.c.Packets)
	return nil
}

// open opens the places, the home last. If the ledger's last decision is a pause, the campaign is paused instead.
// That matters when Redis has lost a paused campaign and it is loaded again.
func (l *load) open(ctx context.Context) error {
	state := store.StateOpen
	var pause *stream.Control
	if l.cfg.Pause != nil {
		var err error
		if pause, err = l.cfg.Pause(ctx, l.c.ID); err != nil {
			return err
		}
		if pause != nil && pause.Value == store.StatePaused {
			state = store.StatePaused
		}
	}
	for j := len(l.places) - 1; j >= 0; j-- {
		p := l.places[j]
		if p.at.State != store.StateLoading {
			continue
		}
		err := l.retry(ctx, func() error { return p.SetState(ctx, state, store.StateLoading) })
		if err == nil && pause != nil {
			err = l.retry(ctx, func() error {
				_, err := p.RestoreControl(ctx, pause)
				return err
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// retry calls an idempotent function, and retries it for the time Patience during an outage.
func (s *Loader) retry(ctx context.Context, call func() error) error {
	policy := retry.Backoff(20*time.Millisecond, 2*time.Second, max(s.cfg.Patience, 1))
	return backoff.Retry(func() error {
		err := call()
		if err != nil && !hongbao.IsOutage(err) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(policy, ctx))
}

// redisFields returns the fields of the campaign's hash. The scripts do not read the last ones, such as the whole
// specification. It is there for operators, and it makes reads faster: Redis stores a hash with such a long value as
// a hash table, instead of a list that it must search.
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
		fields = append(fields, store.CodesField, "1")
	}
	if c.Places() > 1 {
		fields = append(fields, "walk", walk.Version)
	}
	return fields, nil
}
