package campaigns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/answers"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
	"github.com/hongbao-project/hongbao/internal/store"
)

// closeHint adds a hint to an error about a campaign that is not in the expected state.
func closeHint(err error, c *ledger.StoredCampaign) error {
	id := c.Spec.ID
	switch {
	case errors.Is(err, store.ErrNotClosed):
		return fmt.Errorf("%w: run `hongbao campaign close %s` first", err, id)
	case errors.Is(err, store.ErrNotInRedis) && c.Grants > 0:
		return fmt.Errorf("%w; the ledger has paid %d grants: %w", err, c.Grants, store.LostError(id))
	case errors.Is(err, store.ErrNotInRedis) && c.Loading.IsZero():
		return fmt.Errorf("%w: it was never loaded, and `hongbao campaign cancel %s` returns all of its money", err, id)
	case errors.Is(err, store.ErrNotInRedis):
		return fmt.Errorf("%w: run `hongbao campaign load %s`, then close the campaign; a refund then returns all of its money",
			err, id)
	}
	return err
}

// Ending is the progress of a campaign's end.
type Ending struct {
	Campaign string  `json:"campaign" doc:"The campaign's id."`
	Currency string  `json:"currency,omitempty" doc:"Currency of the amounts, ISO 4217; absent for coupons without a value."`
	TimeZone string  `json:"time_zone" doc:"The campaign's time zone, an IANA name."`
	Closed   *Closed `json:"closed" doc:"The numbers of the close. Null once the campaign has left Redis."`
	// Settling means that sink balance has not finished all grants before the close. Finished is the last seq that it has
	// finished on the campaign's first shard.
	Settling bool   `json:"settling" doc:"True while sink balance has not finished all grants before the close."`
	Finished *int64 `json:"finished_seq" doc:"Sink balance has finished every event up to this seq on the campaign's first shard. Null if 'closed' is null."`
	// Places are the shards of a campaign, in order; nil if it has one shard.
	Places []ClosedPlace `json:"places,omitempty" doc:"The close on each shard of the campaign. Absent if it has one shard, and if 'closed' is null."`
	// Missing is how many grants sink balance has finished although the ledger lacks them. A value below 0 means that the
	// ledger has paid more than was granted.
	Missing *int64 `json:"missing" doc:"Number of finished grants that the ledger lacks; below 0 if the ledger has more. Null while 'settling' is true, and after the refund."`
	// Amount is the amount of the coming or past refund.
	Amount   hongbao.Amount `json:"refund_amount" doc:"Amount of the refund, in minor units. It may still change while 'settling' is true."`
	Refunded *Refunded      `json:"refunded" doc:"The refund. Null before the refund."`
	Next     string         `json:"next" doc:"What a person should do next, as a command."`
}

// Closed is the state of a campaign at its close. With several shards it has the sums over the shards, and the time of
// the last close.
type Closed struct {
	Time          time.Time      `json:"time" doc:"Time of the close. With several shards: time of the last shard's close."`
	Event         string         `json:"event" doc:"Event of the close on the campaign's first shard, as SHARD-SEQ."`
	Granted       int64          `json:"granted" doc:"Number of packets that users got."`
	GrantedAmount hongbao.Amount `json:"granted_amount" doc:"Sum of the packets that users got, in minor units."`
	Left          int64          `json:"left" doc:"Number of packets that no user got."`
	LeftAmount    hongbao.Amount `json:"left_amount" doc:"Sum of the packets that no user got, in minor units."`
}

// ClosedPlace is the state of a campaign at its close on one of its shards. It has no amounts: if only one packet is
// left on the shard, the sum would be that packet's amount, which is secret until the reveal.
type ClosedPlace struct {
	Shard    int       `json:"shard" doc:"The shard's number."`
	Time     time.Time `json:"time" doc:"Time of the close on the shard."`
	Event    string    `json:"event" doc:"Event of the close on this shard, as SHARD-SEQ."`
	Granted  int64     `json:"granted" doc:"Number of packets that users got on the shard."`
	Left     int64     `json:"left" doc:"Number of the shard's packets that no user got."`
	Finished int64     `json:"finished_seq" doc:"Sink balance has finished every event up to this seq on the shard. Never above the seq of the close."`
}

func closedOf(e *stream.Entry) Closed {
	return Closed{e.Time, stream.EventID(e.Shard, e.Seq), e.Close.Granted, e.Close.GrantedAmount, e.Close.Left,
		e.Close.LeftAmount}
}

// Refunded is the refund of a campaign.
type Refunded struct {
	Time    time.Time `json:"time" doc:"Time of the refund."`
	Packets int64     `json:"packets" doc:"Number of packets that no user got."`
	Sponsor string    `json:"sponsor" doc:"The sponsor who got the money back."`
}

func endingOf(c *ledger.StoredCampaign, s *closing.Progress) *Ending {
	id := c.Spec.ID
	out := &Ending{Campaign: id, Currency: c.Spec.Currency, TimeZone: c.Spec.TimeZone, Settling: !s.Settled(),
		Missing: answers.OrNull(s.Settled() && s.Refund == nil, s.Missing()), Amount: s.Amount()}
	out.addPlaces(s)
	switch {
	case s.Refund != nil:
		out.Refunded, out.Next = &Refunded{s.Refund.Created, s.Refund.Packets, s.Refund.Sponsor},
			"hongbao campaign reveal "+id
	case s.Missing() != 0:
		out.Next = "hongbao audit --campaign " + id
	default:
		out.Next = fmt.Sprintf("hongbao campaign refund %s --amount %d", id, out.Amount)
	}
	return out
}

// addPlaces adds the state of each of the campaign's shards at the close.
func (e *Ending) addPlaces(s *closing.Progress) {
	if len(s.Places) == 0 {
		return
	}
	all, sum := closedOf(&s.Places[0].Close), s.Closed()
	all.Granted, all.GrantedAmount, all.Left, all.LeftAmount = sum.Granted, sum.GrantedAmount, sum.Left, sum.LeftAmount
	e.Finished = &s.Places[0].Finished
	for i := range s.Places {
		p := &s.Places[i]
		if p.Close.Time.After(all.Time) {
			all.Time = p.Close.Time
		}
		if len(s.Places) > 1 {
			c := closedOf(&p.Close)
			e.Places = append(e.Places, ClosedPlace{p.Close.Shard, c.Time, c.Event, c.Granted, c.Left, p.Finished})
		}
	}
	e.Closed = &all
}

// Close ends a campaign permanently. While the window is open, it returns an error unless early is set.
func (a Campaigns) Close(ctx context.Context, id string, early bool) (*Ending, error) {
	var out *Ending
	err := a.app.Recorded(ctx, app.About(ctx, access.CloseCampaign, id), func(ctx context.Context, e *access.Entry) (err error) {
		e.Details = map[string]any{"early": early}
		c, added, err := a.app.CampaignWithTopUps(ctx, id)
		if err != nil {
			return err
		}
		if !early && time.Until(c.Spec.To) > 0 && c.Closing.IsZero() {
			out, err = a.closedBefore(ctx, &c)
			return err
		}
		if err := a.beginClose(ctx, &c, added); err != nil {
			return err
		}
		if c, err = a.app.Campaign(ctx, id); err != nil { // after beginClose the campaign gets no more packets
			return err
		}
		out, err = a.end(&c, a.app.Ledger(), func(by *closing.Closer) (closing.Progress, error) { return by.Close(ctx, &c, early) })
		return err
	})
	return out, err
}

// closedBefore returns the progress if the campaign was already closed while its window is open. Otherwise it returns
// an error. Redis must not decide here, because its clock may be ahead: Redis would close the campaign while the ledger
// still accepts a top-up.
func (a Campaigns) closedBefore(ctx context.Context, c *ledger.StoredCampaign) (*Ending, error) {
	out, err := a.standing(ctx, c)
	if errors.Is(err, store.ErrNotClosed) {
		err = hongbao.Errorf(hongbao.ClassPermanent, "close campaign %s: its window is open until %s; wait for its end, or "+
			"end it early (--early)", c.Spec.ID, c.Spec.To.UTC().Format(time.RFC3339))
	}
	return out, err
}

// EndProgress returns the progress of a campaign's end.
func (a Campaigns) EndProgress(ctx context.Context, id string) (*Ending, error) {
	c, err := a.app.Campaign(ctx, id)
	if err != nil {
		return nil, err
	}
	return a.standing(ctx, &c)
}

func (a Campaigns) standing(ctx context.Context, c *ledger.StoredCampaign) (*Ending, error) {
	return a.end(c, a.app.Ledger(), func(by *closing.Closer) (closing.Progress, error) { return by.Progress(ctx, c) })
}

// Refund returns the money of the ungranted packets to the sponsor, once.
func (a Campaigns) Refund(ctx context.Context, o closing.Order) (*Ending, error) {
	recorded := journaledRefunds{a.app.Ledger(), a.app, app.About(ctx, access.Refund, o.Campaign)}
	var out *Ending
	var waiting *app.LongCall
	o.Settling = func(s *closing.Progress) {
		done, of := s.Events()
		if waiting == nil {
			waiting = a.app.LongCall(ctx, "refund "+o.Campaign+": waiting until the ledger has every grant", of)
		}
		waiting.Set(done)
	}
	defer func() {
		if waiting != nil {
			waiting.End()
		}
	}()
	c, err := a.app.Campaign(ctx, o.Campaign)
	if err == nil {
		out, err = a.end(&c, &recorded, func(by *closing.Closer) (closing.Progress, error) {
			r, err := by.Refund(ctx, &c, o)
			return closing.Progress{Refund: &r}, err
		})
	}
	if err != nil {
		a.app.WriteEntry(ctx, &recorded.entry, err)
	}
	return out, err
}

// journaledRefunds is a ledger that writes the journal's entry in the same transaction as the refund.
type journaledRefunds struct {
	*ledger.Ledger
	app   *app.App
	entry access.Entry
}

// Refund implements closing.Ledger.
func (b *journaledRefunds) Refund(
	ctx context.Context, closes []stream.Entry, missing int64,
) (r payment.Refund, err error) {
	err = b.Tables().Together(ctx, func(ctx context.Context) error {
		if r, err = b.Ledger.Refund(ctx, closes, missing); err != nil {
			return err
		}
		b.entry.Details = map[string]any{"amount": r.Amount, "packets": r.Packets, "sponsor": r.Sponsor}
		b.entry.End(nil)
		return b.app.Access().Record(ctx, b.entry)
	})
	return r, err
}

// end runs one step of a campaign's end, and returns the progress after it.
func (a Campaigns) end(c *ledger.StoredCampaign, l closing.Ledger,
	step func(*closing.Closer) (closing.Progress, error)) (*Ending, error) {
	locks, err := a.app.Locks()
	if err != nil {
		return nil, err
	}
	cfg := a.app.Config.CloserConfig()
	cfg.Store, cfg.Ledger, cfg.Locks, cfg.Log = a.app.Store(), l, locks, a.app.Log()
	closer, err := closing.New(cfg)
	if err != nil {
		return nil, err
	}
	s, err := step(closer)
	if err != nil {
		return nil, closeHint(err, c)
	}
	return endingOf(c, &s), nil
}

// Cancel returns all money of a campaign to its sponsor, once. The ledger refuses a campaign whose loading has begun.
// Cancel also checks Redis, because a ledger that was restored from a backup may lack the record of the load.
func (a Campaigns) Cancel(ctx context.Context, id string) (out *Ending, err error) {
	err = a.app.InLedger(ctx, app.About(ctx, access.CancelCampaign, id), func(ctx context.Context, e *access.Entry) error {
		c, err := a.app.Campaign(ctx, id)
		if err != nil {
			return err
		}
		if _, loaded, err := a.app.Store().Campaign(id).Status(ctx); err != nil || loaded && c.State != model.MoneyRefunded {
			return cmp.Or(err, ledger.LoadingBegun(id))
		}
		var in []int
		for _, k := range a.app.Store().Places(id, c.Spec.Places()) {
			in = append(in, k.Index())
		}
		r, err := a.app.Ledger().Cancel(ctx, id, in)
		e.Details = map[string]any{"amount": r.Amount, "packets": r.Packets, "sponsor": r.Sponsor}
		out = endingOf(&c, &closing.Progress{Refund: &r})
		return err
	})
	return out, err
}

// RefundLost refunds a campaign of which Redis has lost a part. It decides by the ledger alone, and returns the state
// after the refund. The parameter expect is the digest that LostProgress returned. If the campaign is already refunded,
// expect is ignored.
func (a Campaigns) RefundLost(ctx context.Context, o model.LostRefund, expect string) (*LostEnding, error) {
	shown, err := a.LostProgress(ctx, o.Campaign)
	if err == nil && shown.Refunded == nil {
		if err = shown.Settled(); err == nil {
			err = payments.Expected(shown.Digest, expect)
		}
	}
	if err != nil {
		return nil, err
	}
	err = a.app.Recorded(ctx, app.About(ctx, access.RefundLost, o.Campaign), func(ctx context.Context, e *access.Entry) error {
		r, err := a.ender().Refund(ctx, o)
		e.Details = map[string]any{"amount": r.Amount, "packets": r.Packets, "by": o.By, "why": o.Why}
		return err
	})
	if err != nil {
		return nil, err
	}
	return a.LostProgress(ctx, o.Campaign)
}

// LostProgress returns the state of a campaign of which Redis has lost a part.
func (a Campaigns) LostProgress(ctx context.Context, id string) (*LostEnding, error) {
	at, err := a.ender().Progress(ctx, id)
	if err != nil {
		return nil, err
	}
	out := &LostEnding{Ending: at}
	if r := at.Refund; r != nil {
		out.Refunded, out.By, out.Why = &Refunded{r.Created, r.Packets, r.Sponsor}, r.By, r.Why
		out.Next = at.Next("")
		return out, nil
	}
	c, _, err := a.app.Ledger().Campaign(ctx, id)
	if err != nil {
		return nil, err
	}
	unpaid, err := payments.Of(a.app).Unpaid(ctx, c.Spec.From.Add(-stream.ClockSkew), func(g *hongbao.Grant) bool { return g.Campaign == id })
	if err != nil {
		return nil, err
	}
	if len(unpaid) > 0 {
		out.Unpaid = &unpaid[0]
	}
	if out.Digest, err = payments.DigestOf(out); err != nil {
		return nil, err
	}
	out.Next = at.Next(out.Digest)
	return out, nil
}

func (a Campaigns) ender() *recovery.Ender {
	return &recovery.Ender{Store: a.app.Store(), Books: a.app.Ledger(), Group: configs.SinkBalance, Owed: deliveries.Of(a.app).Owed}
}

// LostEnding is the state of a campaign of which Redis has lost a part.
type LostEnding struct {
	*recovery.Ending
	// Unpaid are the campaign's grants that the topic has and the ledger lacks: a refund returns their money to the
	// sponsor. Unpaid is nil if there are none, and once the campaign is refunded.
	Unpaid   *payments.Unpaid `json:"unpaid,omitempty"`
	Refunded *Refunded        `json:"refunded"`
	By       string           `json:"by,omitempty"`
	Why      string           `json:"why,omitempty"`
	// Digest identifies this report before the refund.
	Digest string `json:"digest,omitempty"`
	Next   string `json:"next,omitempty"`
}
