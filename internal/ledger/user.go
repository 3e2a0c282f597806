package ledger

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// MaxUserRows bounds the rows of one user that UserQuarantine and UserPending return.
const MaxUserRows = 1000

// UserBalance is the balance of a user's account.
type UserBalance struct {
	Currency string         `json:"currency" doc:"Currency of the account, ISO 4217."`
	Balance  hongbao.Amount `json:"balance" doc:"Balance of the account in the ledger, in minor units."`
}

// UserBalances returns the balances of a user's accounts, in the order of the currencies.
func (l *Ledger) UserBalances(ctx context.Context, user string) ([]UserBalance, error) {
	currencies, err := tables.Ask("list the currencies", `SELECT DISTINCT currency FROM campaign ORDER BY currency`,
		nil, func(s db.Scan) (c string, err error) { return c, s(&c) }).All(ctx, l.tables)
	if err != nil {
		return nil, err
	}
	list := []UserBalance{}
	for _, c := range currencies {
		balance, found, err := l.Balance(ctx, tables.UserAccount(user, c))
		if err != nil {
			return nil, err
		}
		if found {
			list = append(list, UserBalance{Currency: c, Balance: balance})
		}
	}
	return list, nil
}

// UserQuarantine returns up to MaxUserRows grants in quarantine, resolved or not, in which either version is for the
// user. It reads the whole quarantine.
func (l *Ledger) UserQuarantine(ctx context.Context, user string) ([]model.Quarantined, error) {
	return tables.Ask("list a user's grants in quarantine",
		`SELECT `+quarantineColumns+` FROM quarantine WHERE user_id = $1 OR has_user_id = $2 ORDER BY id LIMIT $3`,
		[]any{user, user, int64(MaxUserRows)}, scanQuarantined).All(ctx, l.tables)
}

// UserPending returns up to MaxUserRows pending credits of a user at the remote. It reads all pending credits.
func (l *Ledger) UserPending(ctx context.Context, user string) ([]payment.Pending, error) {
	return tables.Ask("read a user's pending credits",
		l.selectPending()+`
			WHERE user_id = $1 ORDER BY campaign, packet LIMIT $2`,
		[]any{user, int64(MaxUserRows)}, scanPending).All(ctx, l.tables)
}

// UserPaid returns when each of a user's grants in a campaign was booked, by packet. A user has at most
// hongbao.MaxUserHold grants.
func (l *Ledger) UserPaid(ctx context.Context, campaign, user string) (map[int64]time.Time, error) {
	paid := map[int64]time.Time{}
	_, err := tables.Ask("read when the grants of user "+user+" in campaign "+campaign+" were booked",
		`SELECT g.packet, t.created_at FROM grants AS g JOIN transfer AS t ON t.id = 'grants:' || g.campaign || ':' || g.batch
			WHERE g.campaign = $1 AND g.user_id = $2 LIMIT $3`, []any{campaign, user, int64(pageRows)},
		func(s db.Scan) (packet int64, err error) {
			var at int64
			if err = s(&packet, &at); err == nil {
				paid[packet] = time.UnixMilli(at).UTC()
			}
			return packet, err
		}).All(ctx, l.tables)
	return paid, err
}
