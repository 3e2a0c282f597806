package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Books has the methods of the ledger that an Ender needs. *ledger.Ledger implements it.
type Books interface {
	Campaign(ctx context.Context, id string) (ledger.StoredCampaign, bool, error)
	RefundOf(ctx context.Context, campaign string) (payment.Refund, bool, error)
	deadletter.Quarantine
	RefundLost(ctx context.Context, o model.LostRefund) (payment.Refund, error)
}

// Ender ends campaigns of which Redis has lost data. It relies on the ledger alone. It is safe for concurrent use.
type Ender struct {
	Store *store.Store
	Books Books
	// Group is the ledger's consumer group.
	Group string
	// Owed returns what a group owes on each shard. Nobody waits for other grants.
	Owed func(ctx context.Context, group string) ([]stream.Owed, error)
}

// Ending is the progress of ending a campaign of which Redis has lost data.
type Ending struct {
	Campaign string `json:"campaign"`
	Currency string `json:"currency,omitempty"`
	Sponsor  string `json:"sponsor"`
	Shard    int    `json:"shard"`
	// Redis is the part of the campaign that Redis still has.
	Redis Remains `json:"redis"`
	// Packets and Funded count the whole campaign. Paid and PaidAmount count the grants that the ledger has paid. Left
	// and LeftAmount count what a refund would return.
	Packets    int64          `json:"packets"`
	Funded     hongbao.Amount `json:"funded_amount"`
	Paid       int64          `json:"paid"`
	PaidAmount hongbao.Amount `json:"paid_amount"`
	Left       int64          `json:"left"`
	LeftAmount hongbao.Amount `json:"left_amount"`
	// Waiting counts the grants that may still be paid. While there are any, the campaign can't be refunded.
	Waiting Waiting `json:"waiting"`
	// Refund is nil if the campaign is not refunded.
	Refund *payment.Refund `json:"-"`
}

// Remains is the part of a campaign that Redis still has. State is empty if Redis has nothing of it. Packets is 0 for a
// stub. For a campaign on several shards the counts are sums, and State is that of the first shard that has lost data.
type Remains struct {
	State         string         `json:"state"`
	Packets       int64          `json:"packets"`
	Granted       int64          `json:"granted"`
	GrantedAmount hongbao.Amount `json:"granted_amount"`
}

// Waiting counts grants of a campaign that wait for the ledger, or for a person's decision.
type Waiting struct {
	Stream     int64 `json:"stream"`
	Receipts   int64 `json:"receipts"`
	Letters    int64 `json:"dead_letters"`
	Quarantine int64 `json:"quarantine"`
	// Open counts the campaign's shards that have lost nothing and are not closed, so that they still grant.
	Open int64 `json:"open_shards,omitempty"`
}

// Steps returns a sentence for each kind of waiting grant that says what to do. It returns none if no grant waits.
func (w *Waiting) Steps(campaign string) (steps []string) {
	for _, s := range []struct {
		n               int64
		noun, one, many string
		do              string
	}{
		{w.Stream, "grant", "is", "are", "in the stream and not in the ledger: let `hongbao work` finish"},
		{w.Receipts, "grant", "has", "have", "a receipt, and no entry in the stream: `hongbao replay NAME --to balance " +
			"--campaign " + campaign + "` pays every such grant"},
		{w.Letters, "dead letter", "waits", "wait", "for a decision: `hongbao dead list --campaign " + campaign +
			"` lists the letters, `hongbao dead requeue` pays and `hongbao dead drop` does not"},
		{w.Open, "intact shard", "is", "are", "not closed: `hongbao campaign close " + campaign + " --early` closes the intact " +
			"shards, and fails for the others"},
		{w.Quarantine, "grant", "waits", "wait", "in quarantine: `hongbao quarantine list` lists the grants, `hongbao quarantine resolve` " +
			"decides"},
	} {
		if s.n > 0 {
			steps = append(steps, fmt.Sprintf("%s %s %s", plural.Of(s.n, s.noun), plural.Verb(s.n, s.one, s.many), s.do))
		}
	}
	return steps
}

// Settled returns an error while grants of the campaign may still be paid.
func (e *Ending) Settled() error {
	steps := e.Waiting.Steps(e.Campaign)
	if len(steps) == 0 {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassTransient, "refund campaign %s: %w; nothing was moved: %s", e.Campaign,
		payment.ErrSettling, strings.Join(steps, "; "))
}

// Progress returns how far the end of a campaign has got, without changing anything. It fails if Redis has lost nothing
// of the campaign: such a campaign ends by close and refund.
func (e *Ender) Progress(ctx context.Context, id string) (*Ending, error) {
	s, err := e.progress(ctx, id)
	if err != nil {
		return nil, err
	}
	return &s.Ending, nil
}

// placesEnding is an Ending with the campaign's places.
type placesEnding struct {
	Ending
	places []place
}

func (e *Ender) progress(ctx context.Context, id string) (*placesEnding, error) {
	c, found, err := e.Books.Campaign(ctx, id)
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w; check the id", id, ledger.ErrNoCampaign)
	}
	if err != nil {
		return nil, err
	}
	places := e.Store.Places(id, c.Spec.Places())
	out := &placesEnding{Ending: Ending{
		Campaign: id, Currency: c.Spec.Currency, Sponsor: c.Spec.Sponsor, Shard: places[0].Index(), Packets: c.Packets,
		Funded: c.Funded,
		Paid:   c.Grants, PaidAmount: c.Granted, Left: c.Packets - c.Grants, LeftAmount: c.Funded - c.Granted,
	}}
	for _, k := range places {
		p, err := e.placeOf(ctx, k)
		if err != nil {
			return nil, err
		}
		out.places = append(out.places, p)
	}
	out.sum()
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

// place is the part of a campaign that Redis still has on one shard.
type place struct {
	store.Place
	Remains
	loaded       int64 // packets loaded on this shard; loadedAmount is their sum
	loadedAmount hongbao.Amount
}

func (e *Ender) placeOf(ctx context.Context, k store.Place) (p place, err error) {
	p.Place = k
	if _, err := p.OpenHead(ctx); errors.Is(err, store.ErrFrozen) {
		return p, fmt.Errorf("campaign %s is on shard %d, which is frozen: `hongbao recover` shows how to open the shard first: %w",
			k.Campaign, k.Index(), err)
	} else if err != nil {
		return p, err
	}
	err = p.read(ctx)
	return p, err
}

// gone reports whether Redis has, or may have, lost data of the campaign on this shard.
func (p *place) gone() bool { return p.State == store.StateFrozen || p.State == "" }

// sum sets e.Redis to the sum of all places. Its state is that of the first place that has lost data.
func (e *placesEnding) sum() {
	e.Redis = e.places[0].Remains
	for _, p := range e.places[1:] {
		e.Redis.Packets = max(e.Redis.Packets, p.Packets)
		e.Redis.Granted += p.Granted
		e.Redis.GrantedAmount += p.GrantedAmount
	}
	if i := slices.IndexFunc(e.places, func(p place) bool { return p.gone() }); i >= 0 {
		e.Redis.State = e.places[i].State
	}
}

// Next returns the command that ends the campaign; empty if the campaign has ended. digest, if not empty, is a digest
// of what the person was shown.
func (e *Ending) Next(digest string) string {
	amount := e.LeftAmount
	switch {
	case e.Refund != nil && e.Redis.State != store.StateFrozen && e.Redis.State != store.StateClosed:
		return ""
	case e.Refund != nil:
		amount = e.Refund.Amount
	}
	if digest != "" {
		digest = " --expect " + digest
	}
	return fmt.Sprintf("hongbao campaign refund-lost %s --amount %d%s --by NAME --why TEXT", e.Campaign, amount, digest)
}

func (p *place) read(ctx context.Context) error {
	f, err := p.CampaignFields(ctx)
	if err != nil {
		return err
	}
	p.Remains = Remains{f.State, f.Packets, f.Granted, f.GrantedAmount}
	p.loaded, p.loadedAmount = f.Loaded, f.LoadedAmount
	return nil
}

func (e *placesEnding) nowhere() bool {
	return !slices.ContainsFunc(e.places, func(p place) bool { return p.State != "" })
}

// lost returns an error if Redis has lost nothing of the campaign.
func (e *placesEnding) lost() error {
	switch {
	case e.Refund != nil && e.Refund.By != "": // ended from the ledger before; a shard may have missed the mark
		return nil
	case e.Redis.State == store.StateFrozen, e.Redis.State == "" && (e.Paid > 0 || e.Refund != nil || !e.nowhere()),
		e.Redis.State == store.StateRefunded && e.Refund != nil:
		return nil
	case e.Redis.State == "":
		return hongbao.Errorf(hongbao.ClassPermanent,
			"campaign %s is not in Redis, and the ledger has paid nothing of it: `hongbao campaign load %s` loads it, "+
				"then `hongbao campaign close %s` ends it", e.Campaign, e.Campaign, e.Campaign)
	}
	return hongbao.Errorf(hongbao.ClassPermanent,
		"campaign %s is %s in Redis, and nothing says that Redis has lost any of it: `hongbao campaign close %s` and "+
			"`hongbao campaign refund %s` end it", e.Campaign, e.Redis.State, e.Campaign, e.Campaign)
}

func (e *Ender) waiting(ctx context.Context, out *placesEnding) error {
	places := make([]store.Place, len(out.places))
	owed, err := e.Owed(ctx, e.Group)
	if err != nil {
		return err
	}
	for i, p := range out.places {
		if err := e.waitingOn(ctx, &p, owed[p.Index()], out); err != nil {
			return err
		}
		places[i] = p.Place
	}
	u, err := deadletter.New(e.Store).Undecided(ctx, e.Group, out.Campaign, places, e.Books)
	out.Waiting.Letters, out.Waiting.Quarantine = u.Letters, u.Quarantine
	return err
}

func (e *Ender) waitingOn(ctx context.Context, p *place, owed stream.Owed, out *placesEnding) error {
	w, err := p.Group(e.Group).Waiting(ctx, out.Campaign, owed)
	if err != nil {
		return err
	}
	out.Waiting.Stream += w.Stream
	out.Waiting.Receipts += w.Receipts
	if !p.gone() && p.State != store.StateClosed {
		out.Waiting.Open++
	}
	return nil
}

// closes returns the shard and the seq of each place's close. The seq is 0 for a place that has lost data.
func (e *placesEnding) closes(ctx context.Context) ([]payment.Close, error) {
	list := make([]payment.Close, len(e.places))
	for j, p := range e.places {
		list[j].Shard = p.Keys.Index()
		if p.gone() || e.Refund != nil { // after the first refund the ledger returns the closes of that refund
			continue
		}
		c, err := p.CloseOf(ctx)
		if err != nil {
			return nil, err
		}
		list[j].Seq, list[j].Epoch = c.Seq, c.Epoch
	}
	return list, nil
}

// note marks the refund on each shard. A shard that has lost data ends with the ledger's counts, the others with the
// counts of their closes.
func (e *placesEnding) note(ctx context.Context, r *payment.Refund) error {
	lost := e.unaccounted(r)
	var errs []error
	for _, p := range e.places {
		if !p.gone() {
			if _, err := p.Refunded(ctx); err != nil && !errors.Is(err, store.ErrNotInRedis) {
				errs = append(errs, err)
			}
			continue
		}
		errs = append(errs, p.EndLost(ctx, &lost))
		// The first place that has lost data gets the counts of all lost places, the others get 0.
		lost = store.LostCampaign{ID: e.Campaign, Packets: e.Packets, Total: e.Funded}
	}
	return errors.Join(errs...)
}

// unaccounted returns the ledger's counts of the campaign, minus the counts of the places that have lost nothing.
func (e *placesEnding) unaccounted(r *payment.Refund) store.LostCampaign {
	out := store.LostCampaign{
		ID: e.Campaign, Packets: e.Packets, Total: e.Funded, Loaded: e.Packets, LoadedAmount: e.Funded,
		Granted: e.Packets - r.Packets, GrantedAmount: e.Funded - r.Amount,
	}
	for _, p := range e.places {
		if !p.gone() {
			out.Loaded, out.LoadedAmount = out.Loaded-p.loaded, out.LoadedAmount-p.loadedAmount
			out.Granted, out.GrantedAmount = out.Granted-p.Granted, out.GrantedAmount-p.GrantedAmount
		}
	}
	// A count is negative if a person decided not to pay a grant of a place that has lost nothing.
	out.Loaded, out.LoadedAmount = max(out.Loaded, 0), max(out.LoadedAmount, 0)
	out.Granted, out.GrantedAmount = max(out.Granted, 0), max(out.GrantedAmount, 0)
	return out
}

// Refund ends a campaign. The ledger refunds what it has not paid, and Redis marks the campaign as ended. o.Amount must
// equal the amount of the refund. After a crash a repeated Refund continues, and there is only one refund.
func (e *Ender) Refund(ctx context.Context, o model.LostRefund) (payment.Refund, error) {
	at, err := e.progress(ctx, o.Campaign)
	if err != nil {
		return payment.Refund{}, err
	}
	if err := at.Settled(); err != nil {
		return payment.Refund{}, err
	}
	if o.Closes, err = at.closes(ctx); err != nil {
		return payment.Refund{}, err
	}
	r, err := e.Books.RefundLost(ctx, o)
	if err != nil {
		return r, err
	}
	if r.Amount != o.Amount {
		return r, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s was refunded before: %d minor units, not %d",
			o.Campaign, r.Amount, o.Amount)
	}
	if at.Redis.State == "" && r.By == "" {
		return r, nil // closed and refunded normally, and has left Redis
	}
	err = at.note(ctx, &r)
	if err != nil {
		return r, fmt.Errorf("the refund of campaign %s is posted, but could not be noted in Redis; run it again: %w",
			o.Campaign, err)
	}
	return r, nil
}

// endedFor limits the refunded campaigns that get a stub when a shard opens without them: their close began within this
// time. Later no process can have seen them open.
const endedFor = 24 * time.Hour

// ended returns what the stub of a refunded campaign shall report.
func ended(c *ledger.StoredCampaign) *store.LostCampaign {
	out := &store.LostCampaign{ID: c.Spec.ID, Packets: c.Packets, Total: c.Funded, Places: c.Spec.Places()}
	if out.Places == 1 { // otherwise the counts of this place are unknown
		out.Loaded, out.LoadedAmount, out.Granted, out.GrantedAmount = c.Packets, c.Funded, c.Grants, c.Granted
	}
	return out
}
