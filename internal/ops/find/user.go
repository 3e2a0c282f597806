package find

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
	"github.com/hongbao-project/hongbao/internal/store"
)

// UserData is a page of what Hongbao stores about one user. It contains no coupon codes, because only the users may see
// these. A page covers some campaigns; the first page also has what belongs to no campaign of the page.
type UserData struct {
	User string `json:"user" doc:"The user's id."`
	// Campaigns is the number of campaigns that this page covers, also those without a win of the user.
	Campaigns  int                    `json:"campaigns" doc:"Number of campaigns that this page covers, with or without a win of the user."`
	Wins       []UserWin              `json:"wins" doc:"The user's wins in the campaigns of this page."`
	Archives   []UserArchive          `json:"archives" doc:"Archived campaigns of this page: only their files say whether the user won."`
	Balances   []ledger.UserBalance   `json:"balances" doc:"Balances of the user in the ledger. Only on the first page."`
	Letters    []model.Letter         `json:"letters" doc:"Dead letters of the user that wait for a decision. Only on the first page."`
	Resolved   []UserDecision         `json:"resolved_letters" doc:"Records of requeued and dropped dead letters of the user. Only on the first page."`
	Quarantine []payments.Quarantined `json:"quarantine" doc:"Grants in quarantine, decided or not, with the user in either version. A payment from the reserve is among the decisions. The other version may name another user. At most 1000. Only on the first page."`
	Pending    []UserPending          `json:"pending" doc:"Credits of the user at the remote whose result is unknown. At most 1000. Only on the first page."`
	Next       optional.Text          `json:"next" nullable:"true" doc:"To get the next page, send this value as the parameter 'after'. Null on the last page."`
}

// UserWin is a win of a user, as the receipt in Redis or the ledger has it.
type UserWin struct {
	Campaign  string         `json:"campaign" doc:"The campaign's id."`
	Packet    int64          `json:"packet" doc:"Number of the packet in the campaign."`
	Amount    hongbao.Amount `json:"amount" doc:"Amount of the packet, in minor units."`
	Currency  string         `json:"currency,omitempty" doc:"Currency of the amount; absent for coupons without a value."`
	Event     string         `json:"event" doc:"Id of the grant's event, as SHARD-SEQ."`
	RequestID string         `json:"request_id,omitempty" doc:"Request id of the grab. Absent if the grab had none."`
	Time      time.Time      `json:"time" doc:"Time of the grant."`
	Redis     bool           `json:"redis" doc:"True if Redis has the user's receipt."`
	Ledger    bool           `json:"ledger" doc:"True if the ledger has the win. A win that only Redis has is not paid yet."`
}

// UserArchive is an archived campaign, whose file may name the user.
type UserArchive struct {
	Campaign string `json:"campaign" doc:"The campaign's id."`
	File     string `json:"file" doc:"Name of the archive's file. Hongbao does not know where the file is."`
}

// UserDecision is the record of a resolved dead letter.
type UserDecision struct {
	Letter   string `json:"letter" doc:"Id of the dead letter: SINK/SHARD/ENTRY."`
	Campaign string `json:"campaign" doc:"The campaign's id."`
	Packet   int64  `json:"packet" doc:"Number of the packet in the campaign."`
	Decision string `json:"decision" doc:"The decision: 'requeued' or 'dropped'."`
	By       string `json:"by" doc:"Who decided."`
	Why      string `json:"why" doc:"The reason."`
}

// UserPending is a credit at the remote whose result is unknown.
type UserPending struct {
	Campaign string         `json:"campaign" doc:"The campaign's id."`
	Packet   int64          `json:"packet" doc:"Number of the packet in the campaign."`
	Amount   hongbao.Amount `json:"amount" doc:"Amount of the credit, in minor units."`
	Worker   string         `json:"worker" doc:"The worker that requested the credit last."`
}

// User returns a page of what Redis and the ledger have about a user. The page covers up to limit campaigns of the
// ledger after the given id. The journal gets an entry with the hash of the user's id.
func (a Find) User(ctx context.Context, user, after string, limit int) (out UserData, err error) {
	if out, err = a.user(ctx, user, after, limit); err == nil {
		a.app.HasRead(ctx, access.Read{Action: access.ReadUser, User: user})
	}
	return out, err
}

func (a Find) user(ctx context.Context, user, after string, limit int) (UserData, error) {
	out := UserData{User: user, Wins: []UserWin{}, Archives: []UserArchive{}, Balances: []ledger.UserBalance{},
		Letters: []model.Letter{}, Resolved: []UserDecision{}, Quarantine: []payments.Quarantined{}, Pending: []UserPending{}}
	if after == "" {
		if err := errors.Join(a.userLetters(ctx, &out), a.userLedger(ctx, &out)); err != nil {
			return out, err
		}
	}
	last := ""
	for c, err := range a.app.Ledger().EachCampaign(ctx, after) {
		if err != nil {
			return out, err
		}
		if out.Campaigns == limit {
			out.Next = optional.Text(last)
			break
		}
		if err := a.userWins(ctx, &out, &c.Spec); err != nil {
			return out, err
		}
		out.Campaigns, last = out.Campaigns+1, c.Spec.ID
	}
	return out, nil
}

// userWins adds the user's wins in one campaign. Both reads use an index, or the key of one hash.
func (a Find) userWins(ctx context.Context, out *UserData, c *hongbao.Campaign) error {
	wins := map[int64]*UserWin{}
	held, err := a.app.Store().Campaign(c.ID).UserReceipts(ctx, out.User)
	if err != nil && !errors.Is(err, store.ErrNotInRedis) {
		return err
	}
	for _, r := range store.ReceiptsOf(held) {
		wins[r.Packet] = &UserWin{Packet: r.Packet, Amount: r.Amount, Event: (&hongbao.Grant{Shard: r.Shard, Seq: r.Seq}).EventID(),
			RequestID: r.RequestID, Time: r.Time.UTC(), Redis: true}
	}
	grants, err := a.app.Ledger().UserGrants(ctx, c.ID, out.User)
	if errors.Is(err, ledger.ErrArchived) {
		archive, _, err := a.app.Books().Archived(ctx, c.ID)
		if err != nil {
			return err
		}
		out.Archives = append(out.Archives, UserArchive{c.ID, archive.File})
	} else if err != nil {
		return err
	}
	for i := range grants {
		g := &grants[i]
		if wins[g.Packet] == nil {
			wins[g.Packet] = &UserWin{Packet: g.Packet, Amount: g.Amount, Event: g.EventID(),
				RequestID: g.RequestID, Time: g.Time}
		}
		wins[g.Packet].Ledger = true
	}
	first := len(out.Wins)
	for _, w := range wins {
		w.Campaign, w.Currency = c.ID, c.Currency
		out.Wins = append(out.Wins, *w)
	}
	slices.SortFunc(out.Wins[first:], func(a, b UserWin) int { return int(a.Packet - b.Packet) })
	return nil
}

// userLetters adds the user's dead letters of all sinks. It reads all letters.
func (a Find) userLetters(ctx context.Context, out *UserData) error {
	f := deadletter.Filter{User: out.User}
	letters, err := deliveries.Of(a.app).Letters(ctx, &f)
	if err != nil {
		return err
	}
	list, _, err := letters.List(ctx, f, "", model.MaxLetters)
	if err != nil {
		return err
	}
	out.Letters = append(out.Letters, list...)
	for _, sink := range f.Sinks {
		for shard := range a.app.Store().Len() {
			err := letters.EachResolved(ctx, sink, shard, func(r *deadletter.Resolved) {
				if r.Grant != nil && r.Grant.User == out.User {
					out.Resolved = append(out.Resolved, UserDecision{r.ID, r.Grant.Campaign, r.Grant.Packet, r.Decision, r.By, r.Why})
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// userLedger adds the user's balances, and the rows of the quarantine and of pending credits.
func (a Find) userLedger(ctx context.Context, out *UserData) (err error) {
	if out.Balances, err = a.app.Ledger().UserBalances(ctx, out.User); err != nil {
		return err
	}
	quarantined, err := a.app.Ledger().UserQuarantine(ctx, out.User)
	if err != nil {
		return err
	}
	for i := range quarantined {
		out.Quarantine = append(out.Quarantine, payments.Printable(&quarantined[i]))
	}
	pending, err := a.app.Ledger().UserPending(ctx, out.User)
	for i := range pending {
		g := &pending[i].Grant
		out.Pending = append(out.Pending, UserPending{g.Campaign, g.Packet, g.Amount, pending[i].Owner})
	}
	return err
}
