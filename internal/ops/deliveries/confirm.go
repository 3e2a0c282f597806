package deliveries

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/sinks/remote"
)

// Confirmed reports what happened to the letters, and which credits they were about.
type Confirmed struct {
	*model.LetterReport
	Credits []ConfirmedCredit `json:"credits"`
	// Gone are the ids of letters that no longer exist, because they were already resolved.
	Gone []string `json:"gone"`
}

// ConfirmedCredit is a credit that the person's decision is about.
type ConfirmedCredit struct {
	Letter    string         `json:"letter"`
	Reference string         `json:"reference"`
	Account   string         `json:"account"`
	Amount    hongbao.Amount `json:"amount"`
	Currency  string         `json:"currency,omitempty"`
	// AskFrom is the time from which an inquiry at the remote counts for --not-booked. It is absent if the remote is
	// queryable and --booked is given: then its answer decides, not a person's.
	AskFrom time.Time `json:"ask_from,omitzero"`
}

// Confirmation is what a person found out from the remote about credits in doubt.
type Confirmation struct {
	// Letters are ids of dead letters of sink balance. Packets identify credits in doubt whose letters no longer exist.
	Letters []string
	Packets []PacketID
	Word    app.OperatorDecision
	stream.Decision
	// Patience is how long to retry while the remote or the ledger can't be reached.
	Patience time.Duration
	DryRun   bool
}

// PacketID identifies a packet of a campaign.
type PacketID struct {
	Campaign string
	Packet   int64
}

// Confirm records a person's decision about credits in doubt, and ends their dead letters.
func (a Deliveries) Confirm(ctx context.Context, o Confirmation) (*Confirmed, error) {
	pick := deadletter.Pick{Filter: deadletter.Filter{Sinks: []string{configs.SinkBalance}}}
	letters, err := a.Letters(ctx, &pick.Filter)
	switch {
	case err != nil:
		return nil, err
	case a.app.Config.Settlement.Kind != configs.SettleRemote:
		return nil, app.Usage("settlement.kind is %s: there is no remote that could have booked anything; requeue or drop the "+
			"letters", a.app.Config.Settlement.Kind)
	case o.Word.Outcome == remote.Done && a.app.Config.Remote.Queryable && len(o.Letters) > 0:
		return nil, app.Usage("remote.queryable is true, so no person has to confirm: `hongbao dead requeue` queries the remote, " +
			"and records what it has booked")
	}
	report := &Confirmed{Credits: []ConfirmedCredit{}, Gone: []string{}}
	if o.DryRun {
		return a.confirm(ctx, letters, pick, &o, report)
	}
	confirm := func(ctx context.Context) error {
		report, err = a.confirm(ctx, letters, pick, &o, report)
		return err
	}
	e := aboutLetters(ctx, access.ConfirmCredits, &deadletter.Pick{IDs: o.Letters, Filter: pick.Filter}, o.Decision)
	e.Details["booked"], e.Details["packets"] = o.Word.Outcome == remote.Done, o.Packets
	err = a.app.Recorded(ctx, e, func(ctx context.Context, _ *access.Entry) error {
		return a.withLettersLock(ctx, configs.SinkBalance, false, confirm)
	})
	return report, err
}

func (a Deliveries) confirm(ctx context.Context, letters *deadletter.Letters, pick deadletter.Pick, o *Confirmation,
	report *Confirmed) (_ *Confirmed, err error) {
	if err := a.confirmPackets(ctx, o, report); err != nil || len(o.Letters) == 0 {
		return report, err
	}
	if pick.IDs, err = a.inDoubt(ctx, letters, o, report); err != nil {
		return nil, err
	}
	handler, err := a.app.Remote(ctx, false, o.Word)
	if err != nil {
		return nil, err
	}
	defer handler.Close()
	to := a.boundsOf(ctx, configs.SinkBalance, 0, o.Patience)
	to.Handler = handler
	report.LetterReport, err = letters.Requeue(ctx, to, pick, o.Decision, o.DryRun)
	if err == nil && report.Failed+report.Unreadable > 0 {
		err = app.NeedsAttention("some dead letters remain: the ledger or the remote contradicts them, or they can't be read; the report " +
			"says why")
	}
	return report, err
}

// inDoubt adds the credits of the letters to the report, and returns the letters that still exist. Letters may be
// missing, because a person can repeat a killed command with the same ids.
func (a Deliveries) inDoubt(ctx context.Context, letters *deadletter.Letters, o *Confirmation, report *Confirmed) (there []string,
	err error) {
	for _, id := range o.Letters {
		x, err := letters.Get(ctx, id)
		if errors.Is(err, deadletter.ErrNoLetter) && len(o.Letters) > 1 {
			report.Gone = append(report.Gone, id)
			continue
		}
		if err != nil {
			return nil, err
		}
		there = append(there, id)
		from := x.Last.Add(a.app.Config.Remote.ClaimTime).UTC()
		if o.Word.Outcome == remote.NotSent && !o.DryRun && !o.Word.At.After(from) {
			return nil, hongbao.Errorf(hongbao.ClassPermanent, "--asked %s is too early for letter %s: a request may have been under way. "+
				"An inquiry counts if it was made after %s (the letter's last plus remote.claim_time): ask the owners of the remote again. "+
				"Nothing was sent", o.Word.At.UTC().Format(time.RFC3339), id, from.Format(time.RFC3339Nano))
		}
		if g := x.Grant; g != nil {
			report.Credits = append(report.Credits, ConfirmedCredit{id, remote.Key(a.app.Config.Deployment.ID, g.Campaign, g.Packet),
				g.User, g.Amount, g.Currency, from})
		}
	}
	if len(there) == 0 {
		return nil, errors.New("none of the dead letters exists any more; `hongbao dead list` shows those that exist")
	}
	return there, nil
}

// confirmPackets ends credits in doubt whose letters no longer exist. It records a booked credit in the ledger. If the
// remote is queryable, its answer decides, and the credit need not be in doubt. It forgets a credit that was not
// booked, and never sends it, because a person has already dropped its letter.
func (a Deliveries) confirmPackets(ctx context.Context, o *Confirmation, report *Confirmed) error {
	if len(o.Packets) == 0 {
		return nil
	}
	word, asks := o.Word, o.Word.Outcome == remote.Done && a.app.Config.Remote.Queryable
	if asks { // the remote's answer counts, not the person's
		word = app.OperatorDecision{}
	}
	h, err := a.app.Remote(ctx, false, word)
	if err != nil {
		return err
	}
	defer h.Close()
	for _, at := range o.Packets {
		row, err := a.creditOf(ctx, h, at, asks)
		if err != nil {
			return err
		}
		g := &row.Grant
		c, _, err := a.app.Ledger().Campaign(ctx, g.Campaign)
		if err != nil {
			return err
		}
		var askFrom time.Time
		if !asks {
			askFrom = h.AskFrom(&row)
		}
		report.Credits = append(report.Credits, ConfirmedCredit{fmt.Sprintf("%s/%d", at.Campaign, at.Packet),
			remote.Key(a.app.Config.Deployment.ID, g.Campaign, g.Packet), g.User, g.Amount, c.Spec.Currency, askFrom})
		if o.DryRun {
			continue
		}
		switch {
		case asks:
			err = h.RecordBooked(ctx, *g)
		case word.Outcome == remote.NotSent:
			err = h.Unbook(ctx, row)
		default:
			b := hongbao.Batch{Shard: g.Shard, Epoch: max(g.Epoch, 1), Grants: []hongbao.Grant{*g}}
			err = errors.Join(h.Handle(ctx, b)...)
		}
		if err != nil {
			return err
		}
		a.app.Log().Info("a credit in doubt was decided", zap.String("campaign", g.Campaign), zap.Int64("packet", g.Packet),
			zap.Bool("booked", o.Word.Outcome == remote.Done),
			zap.String("by", o.By), zap.String("why", o.Why))
	}
	return nil
}

// creditOf returns the pending row of a packet's credit. If the ledger has none, and the remote is asked, it returns
// the grant of the packet's receipt.
func (a Deliveries) creditOf(ctx context.Context, h *app.PausingHandler, at PacketID, asks bool) (payment.Pending, error) {
	rows, err := h.Settler.Pending(ctx, 0, hongbao.Grant{Campaign: at.Campaign, Packet: at.Packet - 1}, 1)
	if err != nil {
		return payment.Pending{}, err
	}
	if len(rows) > 0 && rows[0].Grant.Campaign == at.Campaign && rows[0].Grant.Packet == at.Packet {
		if left := a.app.Config.Remote.ClaimTime - rows[0].Idle; left > 0 {
			err = hongbao.Errorf(hongbao.ClassTransient,
				"the credit of packet %d of campaign %s was requested %s ago, and a worker may still be working on it: try again in %s",
				at.Packet, at.Campaign, rows[0].Idle, left)
		}
		return rows[0], err
	}
	if !asks {
		return payment.Pending{}, fmt.Errorf("the credit of packet %d of campaign %s is not in doubt: it was recorded, or "+
			"never requested", at.Packet, at.Campaign)
	}
	g, err := a.receiptOf(ctx, at)
	return payment.Pending{Grant: g}, err
}

// receiptOf returns the grant of a packet, from the receipt of its user.
func (a Deliveries) receiptOf(ctx context.Context, at PacketID) (g hongbao.Grant, err error) {
	failed := func(err error) error {
		return fmt.Errorf("look for the receipt of packet %d of campaign %s: %w", at.Packet, at.Campaign, err)
	}
	places, err := a.app.Store().Campaign(at.Campaign).Places(ctx)
	if err != nil {
		return g, failed(err)
	}
	for _, k := range places {
		head, err := k.OpenHead(ctx)
		if err != nil {
			return g, failed(err)
		}
		user, r, found, err := k.ReceiptOf(ctx, at.Packet)
		if err != nil {
			return g, failed(err)
		}
		if found {
			return hongbao.Grant{Campaign: at.Campaign, User: user, Packet: r.Packet, Amount: r.Amount, Shard: k.Index(),
				Seq: r.Seq, Epoch: head.Epoch, RequestID: r.RequestID, Time: r.Time.UTC()}, nil
		}
	}
	return g, fmt.Errorf("the credit of packet %d of campaign %s is not in doubt, and Redis has no receipt of the packet: "+
		"nothing was recorded", at.Packet, at.Campaign)
}
