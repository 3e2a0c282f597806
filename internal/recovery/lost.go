package recovery

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/campaigns"
	"github.com/hongbao-project/hongbao/internal/deadletter"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/payment"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// Books is what the ledger tells of a campaign of which Redis has lost something, and does with it. *ledger.Ledger is
// one.
type Books interface {
	Campaign(ctx context.Context, id string) (ledger.StoredCampaign, bool, error)
	RefundOf(ctx context.Context, campaign string) (payment.Refund, bool, error)
	Quarantine(ctx context.Context, after int64, limit int) ([]ledger.Quarantined, error)
	RefundLost(ctx context.Context, o ledger.LostRefund) (payment.Refund, error)
}

// Ender ends campaigns of which Redis has lost something, from the ledger alone. Its methods may be called at once.
type Ender struct {
	Redis redis.UniversalClient
	Space *shards.Layout
	Books Books
	// Group is the ledger's consumer group.
	Group string
}

// Ending is how a campaign stands of which Redis has lost something.
type Ending struct {
	Campaign string `json:"campaign"`
	Currency string `json:"currency,omitempty"`
	Sponsor  string `json:"sponsor"`
	Shard    int    `json:"shard"`
	// Redis is what Redis still has of it.
	Redis Remains `json:"redis"`
	// Packets and Funded are all of it, Paid and PaidAmount what the ledger has paid, Left and LeftAmount what would be
	// refunded.
	Packets    int64          `json:"packets"`
	Funded     hongbao.Amount `json:"funded_amount"`
	Paid       int64          `json:"paid"`
	PaidAmount hongbao.Amount `json:"paid_amount"`
	Left       int64          `json:"left"`
	LeftAmount hongbao.Amount `json:"left_amount"`
	// Waiting is what may still be paid: while there is any, nothing is refunded.
	Waiting Waiting `json:"waiting"`
	// Refund is nil while there is none.
	Refund *payment.Refund `json:"-"`
}

// Remains are what Redis still has of a campaign. State is empty if it has nothing; Packets is 0 for a stub.
type Remains struct {
	State         string         `json:"state"`
	Packets       int64          `json:"packets"`
	Granted       int64          `json:"granted"`
	GrantedAmount hongbao.Amount `json:"granted_amount"`
}

// Waiting are grants of a campaign that wait for the ledger, or for a person.
type Waiting struct {
	Stream     int64 `json:"stream"`
	Receipts   int64 `json:"receipts"`
	Letters    int64 `json:"dead_letters"`
	Quarantine int64 `json:"quarantine"`
}

// Steps says what to do about each grant that waits, one sentence a kind; none if none waits.
func (w *Waiting) Steps(campaign string) (steps []string) {
	for _, s := range []struct {
		n  int64
		do string
	}{
		{w.Stream, "%d grants stand in the stream, and the ledger has not settled them: let `hongbao work` settle them"},
		{w.Receipts, "%d users were told of a grant whose entry the stream has lost: `hongbao replay NAME --to balance " +
			"--campaign " + campaign + "` pays them"},
		{w.Letters, "%d dead letters wait: `hongbao dead list --campaign " + campaign +
			"` shows them, `hongbao dead requeue` pays and `hongbao dead drop` does not"},
		{w.Quarantine, "%d grants wait in quarantine: `hongbao quarantine list` shows them, `hongbao quarantine resolve` " +
			"decides"},
	} {
		if s.n > 0 {
			steps = append(steps, fmt.Sprintf(s.do, s.n))
		}
	}
	return steps
}

// Standing tells how a campaign stands, and changes nothing. It refuses a campaign that is as it should be: close and
// refund are its end.
func (e *Ender) Standing(ctx context.Context, id string) (*Ending, error) {
	k := e.shard(id)
	if _, err := k.OpenHead(ctx); errors.Is(err, shards.ErrFrozen) {
		return nil, fmt.Errorf("campaign %s lives on shard %d: `hongbao recover` tells how to open it first: %w", id,
			k.Keys.Index(), err)
	} else if err != nil {
		return nil, err
	}
	c, found, err := e.Books.Campaign(ctx, id)
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w; look at the id", id, ledger.ErrNoCampaign)
	}
	if err != nil {
		return nil, err
	}
	out := &Ending{
		Campaign: id, Currency: c.Spec.Currency, Sponsor: c.Spec.Sponsor, Shard: k.Keys.Index(), Packets: c.Packets,
		Funded: c.Funded,
		Paid:   c.Grants, PaidAmount: c.Granted, Left: c.Packets - c.Grants, LeftAmount: c.Funded - c.Granted,
	}
	if out.Redis, err = remains(ctx, k, id); err != nil {
		return nil, err
	}
	refund, found, err := e.Books.RefundOf(ctx, id)
	if err != nil {
		return nil, err
	}
	if found {
		out.Refund = &refund
	}
	if err := out.lost(); err != nil || found {
		return out, err
	}
	return out, e.waiting(ctx, out)
}

// Next is the command that ends the campaign; "" if it is at its end.
func (e *Ending) Next() string {
	amount := e.LeftAmount
	switch {
	case e.Refund != nil && e.Redis.State != campaigns.Frozen:
		return ""
	case e.Refund != nil:
		amount = e.Refund.Amount
	}
	return fmt.Sprintf("hongbao campaign refund-lost %s --amount %d --by NAME --why TEXT", e.Campaign, amount)
}

func (e *Ender) shard(id string) *shards.Shard { return shards.Of(e.Redis, e.Space.Home(id)) }

// remains reads what Redis still has. Only its state is relied upon.
func remains(ctx context.Context, k *shards.Shard, id string) (r Remains, err error) {
	fields, err := k.CampaignFields(ctx, id)
	if err != nil {
		return r, err
	}
	number := func(name string) int64 {
		n, err := strconv.ParseInt(fields[name], 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return Remains{fields["state"], number("packets"), number("granted"), hongbao.Amount(number("granted_amount"))}, nil
}

// lost refuses a campaign of which Redis has lost nothing.
func (e *Ending) lost() error {
	switch {
	case e.Redis.State == campaigns.Frozen, e.Redis.State == "" && (e.Paid > 0 || e.Refund != nil),
		e.Redis.State == campaigns.Refunded && e.Refund != nil:
		return nil
	case e.Redis.State == "":
		return hongbao.Errorf(hongbao.ClassPermanent,
			"campaign %s is not in Redis, and the ledger has paid nothing of it: `hongbao campaign load %s` brings it there, "+
				"then `hongbao campaign close %s` ends it", e.Campaign, e.Campaign, e.Campaign)
	}
	return hongbao.Errorf(hongbao.ClassPermanent,
		"campaign %s is %s in Redis, and nothing says that Redis has lost any of it: `hongbao campaign close %s` and "+
			"`hongbao campaign refund %s` end it", e.Campaign, e.Redis.State, e.Campaign, e.Campaign)
}

// waiting finds what may still be paid.
func (e *Ender) waiting(ctx context.Context, out *Ending) error {
	w, err := e.shard(out.Campaign).Waiting(ctx, e.Group, out.Campaign)
	if err != nil {
		return err
	}
	out.Waiting = Waiting{Stream: w.Stream, Receipts: w.Receipts}
	err = deadletter.New(e.Redis, e.Space).Each(ctx, e.Group, out.Shard, "", func(page []deadletter.Letter) error {
		for i := range page {
			if page[i].Campaign() == out.Campaign {
				out.Waiting.Letters++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	const page = 500
	for after := int64(0); ; {
		list, err := e.Books.Quarantine(ctx, after, page)
		if err != nil {
			return err
		}
		for i := range list {
			if after = list[i].ID; list[i].Grant.Campaign == out.Campaign {
				out.Waiting.Quarantine++
			}
		}
		if len(list) < page {
			return nil
		}
	}
}

// Refund ends a campaign: the ledger refunds what it has not paid, then Redis answers ended. o.Amount must be exactly
// that sum. Killed at any point, and run again, it goes on; it refunds once.
func (e *Ender) Refund(ctx context.Context, o ledger.LostRefund) (payment.Refund, error) {
	at, err := e.Standing(ctx, o.Campaign)
	if err != nil {
		return payment.Refund{}, err
	}
	if steps := at.Waiting.Steps(o.Campaign); len(steps) > 0 {
		return payment.Refund{}, hongbao.Errorf(hongbao.ClassTransient, "refund campaign %s: %w; nothing was moved: %s",
			o.Campaign, payment.ErrSettling,
			strings.Join(steps, "; "))
	}
	o.Closes = []payment.Close{{Shard: at.Shard}}
	r, err := e.Books.RefundLost(ctx, o)
	if err != nil {
		return r, err
	}
	if r.Amount != o.Amount {
		return r, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s was refunded before: %d minor units, not %d",
			o.Campaign, r.Amount, o.Amount)
	}
	if at.Redis.State == "" && r.By == "" {
		return r, nil // it was closed, refunded, and has left Redis as it should
	}
	err = e.shard(o.Campaign).EndLost(ctx, &shards.LostCampaign{
		ID: o.Campaign, Packets: at.Packets, Total: at.Funded, Granted: at.Packets - r.Packets,
		GrantedAmount: at.Funded - r.Amount,
	})
	if err != nil {
		return r, fmt.Errorf("the refund of campaign %s is posted, but could not be noted in Redis; run it again: %w",
			o.Campaign, err)
	}
	return r, nil
}
