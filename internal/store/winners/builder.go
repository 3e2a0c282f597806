package winners

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Locker runs functions under named locks; see store.Locks.
type Locker interface {
	Do(ctx context.Context, name string, fn func(ctx context.Context) error) error
}

// BuilderConfig configures a Builder. Every field must be set.
type BuilderConfig struct {
	Store *store.Store
	Locks Locker
	Log   *zap.Logger
	// Pause between two checks for requested filters.
	Every time.Duration `default:"1s" want:"1ms to 1m"`
}

// Builder builds the filters that producers request. Several builders may run at the same time; a lock lets only one
// of them work.
type Builder struct{ cfg BuilderConfig }

// NewBuilder returns a Builder, or an error for a wrong configuration.
func NewBuilder(cfg BuilderConfig) (*Builder, error) {
	errs := knob.Check(&cfg)
	if cfg.Store == nil || cfg.Locks == nil || cfg.Log == nil {
		errs = append(errs, errors.New("Store, Locks and Log are required"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("builder of winners' filters: %w", errors.Join(errs...))
	}
	return &Builder{cfg: cfg}, nil
}

// warnEvery is how often the log reports that filters can't be built.
const warnEvery = time.Minute

// Run calls BuildRequested at a regular interval until ctx ends.
func (b *Builder) Run(ctx context.Context) error {
	warned := time.Time{}
	_ = retry.Poll(ctx, b.cfg.Every, func() (bool, error) {
		if err := b.BuildRequested(ctx); err != nil && ctx.Err() == nil && time.Since(warned) > warnEvery {
			warned = time.Now()
			b.cfg.Log.Warn("filters of winners could not be built, so producers ask Redis for each loser; the worker tries again",
				zap.Error(err))
		}
		return false, nil
	})
	return nil
}

// BuildRequested tries to build all requested filters, and removes the requests. A producer that still needs a filter
// requests it again.
func (b *Builder) BuildRequested(ctx context.Context) error {
	wanted, err := b.cfg.Store.WantedFilters(ctx)
	if err != nil || len(wanted) == 0 {
		return err
	}
	return b.cfg.Locks.Do(ctx, "filters", func(ctx context.Context) error {
		wanted, err := b.cfg.Store.WantedFilters(ctx) // again: another worker may have built some
		for id, revision := range wanted {
			err1 := b.Build(ctx, id, revision)
			if ctx.Err() != nil { // the request stays for the next worker
				return errors.Join(err, err1)
			}
			if errors.Is(err1, store.ErrNotFinal) || errors.Is(err1, store.ErrOvertaken) {
				err1 = nil // not an error: producers request the filter again
			}
			err = errors.Join(err, err1, b.cfg.Store.Campaign(id).UnwantFilter(ctx))
		}
		return err
	})
}

// Build builds and stores the filter of a campaign's revision, unless a valid one exists. The error is ErrNotFinal if
// any place has packets left. Build also fails if any place does not answer. After an error, no reader gets a filter
// that Build has not completed.
func (b *Builder) Build(ctx context.Context, campaign, revision string) error {
	if err := hongbao.CheckCampaignID(campaign); err != nil {
		return hongbao.Errorf(hongbao.ClassBroken, "a filter of campaign %.80q was requested: %w", campaign, err)
	}
	home := b.cfg.Store.Home(campaign)
	f, err := Fetch(ctx, home, revision)
	if f != nil || hongbao.IsOutage(err) {
		return err
	}
	places, err := b.places(ctx, campaign, revision)
	if err != nil {
		return err
	}
	var hashes []uint64
	for i := range places {
		if hashes, err = places[i].read(ctx, revision, hashes); err != nil {
			return err
		}
	}
	hashes = unique(hashes) // a user may have won on several places
	if f, err = newFilter(revision, hashes); err != nil {
		return err
	}
	if err := f.prove(hashes); err != nil {
		return err
	}
	if err := f.Store(ctx, home); err != nil {
		return err
	}
	b.cfg.Log.Info("a campaign has no packets left, and the filter of its winners is stored",
		zap.String("campaign", campaign), zap.String("revision", revision), zap.Int("winners", f.users))
	return nil
}

// place is a place without packets left.
type place struct {
	store.Place // at the epoch in which users was counted
	users       int64
}

// placesTimeout limits how long a shard that hangs delays the filters of other campaigns.
const placesTimeout = 5 * time.Second

// places checks that no place of a campaign has packets left, and counts the winners of each place. That must happen
// before the winners of any place are read.
func (b *Builder) places(ctx context.Context, campaign, revision string) ([]place, error) {
	ctx, cancel := context.WithTimeout(ctx, placesTimeout)
	defer cancel()
	on, err := b.cfg.Store.Campaign(campaign).Places(ctx)
	if err != nil {
		return nil, err
	}
	places := make([]place, len(on))
	for i, k := range on {
		p := &places[i]
		head, err := k.OpenHead(ctx)
		if err != nil {
			return nil, err
		}
		p.Place = k.At(head.Epoch)
		if p.users, err = p.CountWinners(ctx, revision); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// read appends the hashes of the users who have packets on the place. It compares their number with users, because a
// filter that lacks a winner would hide the winner's receipt.
func (p *place) read(ctx context.Context, revision string, hashes []uint64) ([]uint64, error) {
	var mine []uint64
	err := p.Winners(ctx, revision, func(user string) {
		mine = append(mine, xxhash.Sum64String(user))
	})
	if err != nil {
		return nil, err
	}
	if mine = unique(mine); int64(len(mine)) != p.users {
		return nil, hongbao.Errorf(hongbao.ClassTransient, "campaign %s has %d winners on shard %d, and %d were read: "+
			"nothing was stored", p.Campaign, p.users, p.Index(), len(mine))
	}
	return append(hashes, mine...), nil
}
