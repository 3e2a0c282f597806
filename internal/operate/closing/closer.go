package closing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Ledger has the methods of the ledger that closing needs.
type Ledger interface {
	// Refund posts one refund against the close entries of a campaign's places. If the campaign is already refunded, it
	// returns the existing refund. missing is how many of the entries' grants the ledger will never get. The error is
	// ErrSettling while the ledger lacks more grants than that.
	Refund(ctx context.Context, closes []stream.Entry, missing int64) (payment.Refund, error)
	// Campaign returns a campaign's row in the ledger; false if there is none.
	Campaign(ctx context.Context, id string) (ledger.StoredCampaign, bool, error)
	// RefundOf returns the refund of a campaign; false if there is none.
	RefundOf(ctx context.Context, campaign string) (payment.Refund, bool, error)
	// Quarantine lists the grants that wait in quarantine.
	deadletter.Quarantine
}

// Locker provides named locks. Do runs fn while it holds the lock with this name, and cancels fn's context when it
// loses the lock.
type Locker interface {
	Do(ctx context.Context, name string, fn func(ctx context.Context) error) error
}

// Config configures a Closer. Every field must be set.
type Config struct {
	Store  *store.Store
	Ledger Ledger
	Locks  Locker
	// Group is the ledger's consumer group.
	Group string
	Log   *zap.Logger
	// Poll is the pause between two attempts of a refund that waits for its settlers.
	Poll time.Duration `default:"200ms" want:"10ms to 1m"`
}

// Closer closes and refunds campaigns. It is safe for concurrent use, by many processes.
type Closer struct{ cfg Config }

// New returns a Closer, or an error if a field of the configuration is missing or out of range.
func New(cfg Config) (*Closer, error) {
	errs := knob.Check(&cfg)
	if cfg.Store == nil || cfg.Ledger == nil || cfg.Locks == nil || cfg.Log == nil {
		errs = append(errs, errors.New("Store, Ledger, Locks and Log are required"))
	}
	if err := hongbao.CheckCampaignID(cfg.Group); err != nil {
		errs = append(errs, fmt.Errorf("Group %q: %w", cfg.Group, err))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("closing: %w", errors.Join(errs...))
	}
	return &Closer{cfg: cfg}, nil
}

// Progress is the progress of ending a campaign.
type Progress struct {
	// Places are the campaign's places, in their order; none once the campaign has left Redis.
	Places []Place
	// LedgerCounts has the ledger's counts of the campaign. It is set only once the ledger's group has reached the close
	// of each place.
	LedgerCounts stream.Closing
	// Refund is nil if the campaign is not refunded.
	Refund *payment.Refund
}

// Place is the progress of ending a campaign on one of its shards.
type Place struct {
	Close stream.Entry
	// Finished is the seq up to which the ledger's group has finished the shard. It never exceeds the seq of the close.
	Finished int64
}

// Settled reports whether the ledger's group has finished every grant up to the close.
func (p *Place) Settled() bool { return p.Finished >= p.Close.Seq }

// Closed returns the sum of the counts in the close entries of all places.
func (s *Progress) Closed() (all stream.Closing) {
	for i := range s.Places {
		all = all.Plus(s.Places[i].Close.Close)
	}
	return all
}

// Events returns how many events of the campaign's shards the ledger's group has finished, of those up to the closes.
func (s *Progress) Events() (done, of int64) {
	for i := range s.Places {
		done, of = done+s.Places[i].Finished, of+s.Places[i].Close.Seq
	}
	return done, of
}

// Settled reports whether the ledger's group has finished every grant up to the close of each place.
func (s *Progress) Settled() bool {
	return s.Refund != nil || !slices.ContainsFunc(s.Places, func(p Place) bool { return !p.Settled() })
}

// Missing returns how many grants the closes count and the ledger does not have, although its group has finished them
// all. These grants are dead letters, or in quarantine. The number is negative if the ledger has more grants than the
// closes count.
func (s *Progress) Missing() int64 {
	if s.Refund != nil || !s.Settled() {
		return 0
	}
	return s.Closed().Granted - s.LedgerCounts.Granted
}

// Amount returns the amount of the refund. Before the refund it is what the ledger has left, or what the closes have
// left while the campaign settles.
func (s *Progress) Amount() hongbao.Amount {
	switch {
	case s.Refund != nil:
		return s.Refund.Amount
	case s.Settled():
		return s.LedgerCounts.LeftAmount
	}
	return s.Closed().LeftAmount
}

func (s *Progress) closes() []stream.Entry {
	list := make([]stream.Entry, len(s.Places))
	for i := range s.Places {
		list[i] = s.Places[i].Close
	}
	return list
}

// Order is a caller's request for a refund.
type Order struct {
	Campaign string
	// Amount must equal the amount of the refund. This shows that the caller means this campaign.
	Amount hongbao.Amount
	// Missing must equal Progress.Missing. With it a person confirms that these grants are decided and will not be paid
	// from the pool.
	Missing int64
	// Wait is how long Refund retries while the campaign settles; 0 means one attempt.
	Wait time.Duration
	// Settling, if not nil, gets the progress at each attempt while the campaign settles.
	Settling func(*Progress)
}

// Refund posts the refund of a closed campaign, or returns the existing one. The error is ErrSettling if the ledger
// still lacks grants up to the close after o.Wait.
func (c *Closer) Refund(ctx context.Context, row *ledger.StoredCampaign, o Order) (r payment.Refund, err error) {
	waiting, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	_ = retry.Poll(waiting, c.cfg.Poll, func() (bool, error) {
		r, err = c.tryRefund(ctx, row, &o)
		return !errors.Is(err, payment.ErrSettling), nil
	})
	switch {
	case !errors.Is(err, payment.ErrSettling), o.Wait == 0:
	case ctx.Err() != nil:
		err = fmt.Errorf("%w; the wait was canceled: %w", err, context.Cause(ctx))
	default:
		c.cfg.Log.Warn("ALARM: a refund waits for the settlers for too long: are they running, and does the ledger answer?",
			zap.String("code", "refund_waits"), zap.String("campaign", o.Campaign), zap.Duration("waited", o.Wait),
			zap.Error(err))
	}
	return r, err
}

// tryRefund makes one attempt. It holds the lock only while the ledger posts the refund, not while the campaign waits
// for its settlers.
func (c *Closer) tryRefund(ctx context.Context, row *ledger.StoredCampaign, o *Order) (r payment.Refund, err error) {
	s, err := c.Progress(ctx, row)
	if err == nil && !s.Settled() && o.Settling != nil {
		o.Settling(&s)
	}
	if err == nil {
		err = c.agree(o, &s)
	}
	if err == nil && s.Refund == nil && o.Missing > 0 {
		err = c.decided(ctx, o, &s)
	}
	if err != nil {
		return r, fmt.Errorf("refund campaign %s: %w", o.Campaign, err)
	}
	if s.Refund != nil {
		r = *s.Refund
	} else if r, err = c.post(ctx, o, &s); err != nil {
		return r, err
	}
	return r, tables.AfterCommit(ctx, func(ctx context.Context) error {
		if err := c.note(ctx, row); err != nil {
			return fmt.Errorf("the refund of campaign %s is posted, but could not be noted in Redis; run it again: %w",
				o.Campaign, err)
		}
		return nil
	})
}

// The reasons why Refund refuses an order. ErrMissing has ClassConflict, and ErrAmount has ClassPermanent.
var (
	ErrMissing = errors.New("the ledger and the close differ")
	ErrAmount  = errors.New("wrong amount")
)

// agree returns an error if the order does not match the campaign's progress.
func (c *Closer) agree(o *Order, s *Progress) error {
	if n := -s.Missing(); n > 0 {
		return hongbao.Errorf(hongbao.ClassConflict, "%w: the ledger has paid %d grants more than the close counts; "+
			"nothing was moved. Someone wrote to Redis or to the ledger: `hongbao audit --campaign %s` names the grants that were "+
			"paid without a receipt", ErrMissing, n, o.Campaign)
	}
	if s.Refund == nil && s.Settled() && s.Missing() != o.Missing {
		return hongbao.Errorf(hongbao.ClassConflict, "%w: group %s has finished everything up to the close, and %d "+
			"grants are missing in the ledger, not %d; nothing was moved. They are dead letters or in quarantine: `hongbao audit "+
			"--campaign %s` names them. Decide them first; if they must not be paid, refund with --missing %d --amount %d",
			ErrMissing, c.cfg.Group, s.Missing(), o.Missing, o.Campaign, s.Missing(), s.Amount())
	}
	if has := s.Amount(); has != o.Amount && (s.Settled() || o.Missing == 0) {
		return hongbao.Errorf(hongbao.ClassPermanent,
			"%w: the amount is %d minor units, not %d; nothing was moved. Check the campaign's id", ErrAmount, has, o.Amount)
	}
	if !s.Settled() {
		return hongbao.Errorf(hongbao.ClassTransient,
			"%w: group %s has not reached the close on each shard: %s", payment.ErrSettling, c.cfg.Group, s.unsettled())
	}
	return nil
}

// decided returns an error if a person has not yet decided about a missing grant, so that it may still be paid.
func (c *Closer) decided(ctx context.Context, o *Order, s *Progress) error {
	places := make([]store.Place, len(s.Places))
	for i := range s.Places {
		places[i] = c.cfg.Store.Shard(s.Places[i].Close.Shard).Place(o.Campaign)
	}
	u, err := deadletter.New(c.cfg.Store).Undecided(ctx, c.cfg.Group, o.Campaign, places, c.cfg.Ledger)
	if err == nil && u.Letters+u.Quarantine > 0 {
		err = hongbao.Errorf(hongbao.ClassConflict, "%w: %d grants are missing in the ledger, and may still be paid: %d of "+
			"them are dead letters (`hongbao dead list --campaign %s`), %d wait in quarantine (`hongbao quarantine list`); "+
			"nothing was moved. Decide each of them first", ErrMissing, o.Missing, u.Letters, o.Campaign, u.Quarantine)
	}
	return err
}

func (s *Progress) unsettled() string {
	var list []string
	for i := range s.Places {
		if p := &s.Places[i]; !p.Settled() {
			list = append(list, fmt.Sprintf("it has finished shard %d up to event %d, the close is event %d", p.Close.Shard,
				p.Finished, p.Close.Seq))
		}
	}
	return strings.Join(list, "; ")
}

// post lets the ledger post the refund. It holds the lock with the campaign's name, which is stored on the campaign's
// home shard.
func (c *Closer) post(ctx context.Context, o *Order, s *Progress) (r payment.Refund, err error) {
	err = c.cfg.Locks.Do(ctx, o.Campaign, func(ctx context.Context) error {
		r, err = c.cfg.Ledger.Refund(ctx, s.closes(), o.Missing)
		return err
	})
	if err == nil {
		c.cfg.Log.Info("refunded", zap.String("campaign", o.Campaign), zap.Int64("amount", int64(r.Amount)),
			zap.Int64("packets", r.Packets),
			zap.Int64("missing", o.Missing))
	}
	return r, err
}
