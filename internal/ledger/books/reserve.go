package books

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// decided adds up the payments from the reserve, and names those of packets that their users have got from the pool, too.
// Every sum agrees with such a payment. The grants of archived campaigns are not compared.
func (b *book) decided(ctx context.Context, t db.Txn) error {
	after := tables.ReserveTransfers // "quarantine;" sorts after all ids with this prefix
	var paid []hongbao.Grant
	err := tables.EachPage(ctx, t, `SELECT t.id, t.campaign, t.credit, t.amount, c.currency FROM transfer AS t
		JOIN campaign AS c ON c.id = t.campaign WHERE t.id > $1 AND t.id < $2 ORDER BY t.id LIMIT $3`,
		func() []any { return []any{after, "quarantine;"} }, func(s db.Scan) error {
			var campaign, account, currency string
			var amount int64
			if err := s(&after, &campaign, &account, &amount, &currency); err != nil {
				return err
			}
			b.paid(account, amount)
			if b.suspects == nil {
				b.currency(currency).decided += amount
				paid = append(paid, paidByReserve(after, campaign))
			}
			return nil
		})
	for page := range slices.Chunk(paid, tables.PageRows) {
		if err == nil {
			err = b.paidTwice(ctx, t, page)
		}
	}
	return err
}

// paidByReserve returns the campaign, packet and user of a transfer that tables.ReserveTransfer has named.
func paidByReserve(id, campaign string) hongbao.Grant {
	packet, user, _ := strings.Cut(strings.TrimPrefix(id, tables.ReserveTransfers+campaign+":"), ":")
	n, _ := strconv.ParseInt(packet, 10, 64) // no packet has number 0
	return hongbao.Grant{Campaign: campaign, Packet: n, User: user}
}

// paidTwice names the users whom the reserve has paid a packet that they have in table grants.
func (b *book) paidTwice(ctx context.Context, t db.Txn, paid []hongbao.Grant) error {
	type key struct {
		campaign string
		packet   int64
	}
	campaigns, packets := make([]string, len(paid)), make([]int64, len(paid))
	for i := range paid {
		campaigns[i], packets[i] = paid[i].Campaign, paid[i].Packet
	}
	has := make(map[key]string, len(paid))
	err := t.Query(ctx, b.dialect.ReadGrants, []any{db.Table{campaigns, packets}}, func(s db.Scan) error {
		g, err := tables.ScanGrant(s)
		has[key{g.Campaign, g.Packet}] = g.User
		return err
	})
	for _, g := range paid {
		if has[key{g.Campaign, g.Packet}] == g.User {
			b.equal(fmt.Sprintf("campaign %s, packet %d, user %s", g.Campaign, g.Packet, g.User),
				"payments of the packet to this user, from the pool and from the reserve", 1, 2)
		}
	}
	return err
}
