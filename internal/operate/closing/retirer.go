package closing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/store"
)

// RetirerConfig configures a Retirer. Every field but Grace must be set.
type RetirerConfig struct {
	Store *store.Store
	Locks Locker
	Log   *zap.Logger
	// How long a refunded campaign stays in Redis. After this time its receipts are read from the ledger. Below 10m,
	// processes that saw the campaign open within 10 minutes report its removal as a loss (redis_lost_data).
	Grace time.Duration `knob:"campaign.grace" default:"24h" want:"0s to 9600h"`
	// Every is the pause between two rounds.
	Every time.Duration `default:"1m" want:"10ms to 1h"`
}

// Retirer takes refunded campaigns out of Redis once their grace is over. Several processes may run one; a lock lets
// one of them work at a time.
type Retirer struct{ cfg RetirerConfig }

// NewRetirer returns a Retirer, or an error if a field of the configuration is missing or out of range.
func NewRetirer(cfg RetirerConfig) (*Retirer, error) {
	errs := knob.Check(&cfg)
	if cfg.Store == nil || cfg.Locks == nil || cfg.Log == nil {
		errs = append(errs, errors.New("Store, Locks and Log are required"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("retirer: %w", errors.Join(errs...))
	}
	return &Retirer{cfg: cfg}, nil
}

// Run calls Retire again and again until ctx ends.
func (r *Retirer) Run(ctx context.Context) error {
	_ = retry.Poll(ctx, r.cfg.Every, func() (bool, error) {
		if _, err := r.Retire(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Log.Warn("taking refunded campaigns out of Redis failed; the worker tries again", zap.Error(err))
		}
		return false, nil
	})
	return nil
}

const retireCampaigns = 100

// Retire takes all campaigns whose grace is over out of Redis, and returns their ids. It skips shards that do not
// answer.
func (r *Retirer) Retire(ctx context.Context) (gone []string, err error) {
	err = r.cfg.Locks.Do(ctx, "retire", func(ctx context.Context) error {
		var down []error
		for i, k := range r.cfg.Store.Shards() {
			ids, err := r.shard(ctx, k)
			gone = append(gone, ids...)
			if err == nil {
				continue
			}
			down = append(down, fmt.Errorf("shard %d: %w", i, err))
			if ctx.Err() != nil {
				break
			}
		}
		return errors.Join(down...)
	})
	return gone, err
}

// shard takes the campaigns whose grace is over out of one shard. It skips campaigns that can't leave yet.
func (r *Retirer) shard(ctx context.Context, k *store.Shard) (gone []string, err error) {
	down := map[int]error{} // homes that did not answer, with the error; each home is tried once
	for {
		due, err := k.DueToRetire(ctx, r.cfg.Grace, retireCampaigns)
		if err != nil {
			return gone, err
		}
		var stay []error
		before := len(gone)
		for _, id := range due {
			left, err := r.purge(ctx, k, id, down)
			switch {
			case err != nil:
				stay = append(stay, err)
			case left > 0: // the clock of Redis went back, or the home's clock is slow
			default:
				r.cfg.Log.Info("a refunded campaign has left Redis; its receipts are in the ledger", zap.String("campaign", id))
				gone = append(gone, id)
			}
		}
		if len(due) < retireCampaigns || len(gone) == before || ctx.Err() != nil {
			return gone, errors.Join(stay...)
		}
	}
}

// purge takes a campaign out of its home, then out of this shard. If the shard went first, it would seem to have lost a
// campaign that the home still has. Once the home no longer has the campaign, grabs are answered that there is no such
// campaign.
func (r *Retirer) purge(ctx context.Context, k *store.Shard, id string, down map[int]error) (time.Duration, error) {
	home := r.cfg.Store.Home(id)
	if err := down[home.Index()]; err != nil {
		return 0, err
	}
	if home.Index() != k.Index() {
		left, err := r.leaveHome(ctx, home)
		if err != nil {
			err = fmt.Errorf("campaign %s leaves its home, shard %d, first: %w", id, home.Index(), err)
		}
		if hongbao.IsOutage(err) {
			down[home.Index()] = err
		}
		if err != nil || left > 0 {
			return left, err
		}
	}
	return k.Place(id).PurgeCampaign(ctx, r.cfg.Grace)
}

// leaveHome takes a campaign out of its home. Another shard has the mark of the refund; the home may have missed it, so
// leaveHome sets it first.
func (r *Retirer) leaveHome(ctx context.Context, home store.Place) (left time.Duration, err error) {
	if _, err := home.Refunded(ctx); err != nil && !errors.Is(err, store.ErrNotInRedis) {
		return 0, err
	}
	return home.PurgeCampaign(ctx, r.cfg.Grace)
}
