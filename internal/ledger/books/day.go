package books

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// LineKind says from which account to which account a line moved money.
type LineKind string

// The kinds of lines. All but LinePayment move the balance of the campaign's pool.
const (
	LineFunding LineKind = "funding"            // from the sponsor to the pool
	LineGrant   LineKind = "grant"              // from the pool to a user
	LinePayment LineKind = "quarantine_payment" // from the reserve to a user, as an operator decided
	LineRefund  LineKind = "refund"             // from the pool back to the sponsor
)

// Line is one movement of money in a campaign. Each grant has a line, even if its amount is 0.
type Line struct {
	Kind LineKind
	// Transfer is the id of the row in table transfer that moved the money. Grants of one batch have the same transfer.
	Transfer string
	Booked   time.Time
	Amount   hongbao.Amount
	// User and Packet are empty for a funding and a refund.
	User   string
	Packet int64
	// Granted is when the user grabbed the packet; only a LineGrant has it.
	Granted time.Time
}

// Day is a period of a campaign: From is included, To is not.
type Day struct {
	Campaign string
	From, To time.Time
}

// DaySums are the sums over the lines of a Day. Opening and Closing are the pool's balances before and after the Day:
// Closing = Opening + Funded - Granted - Refunded.
type DaySums struct {
	Opening  hongbao.Amount `json:"opening"`
	Funded   hongbao.Amount `json:"funded"`
	Grants   int64          `json:"grants"`
	Granted  hongbao.Amount `json:"granted"`
	Refunded hongbao.Amount `json:"refunded"`
	Closing  hongbao.Amount `json:"closing"`
	// Paid is the sum of the payments from the reserve for grants in quarantine; Payments is their number.
	Payments int64          `json:"quarantine_payments"`
	Paid     hongbao.Amount `json:"quarantine_paid"`
	// Unrecorded counts the pending credits: requests to a remote that may have begun before To and are not settled in
	// the ledger yet.
	Unrecorded int64 `json:"unrecorded"`
}

// Day calls fn for every movement of money that was booked in the period: the funding, the grants in the order of the
// packets, then the payments from the reserve and the refund. It reads one snapshot in pages, so its memory does not
// grow with the campaign. If Day returns an error, the caller must discard the lines. The error is Broken if the lines
// contradict the transfers or the pool's balance.
func (b Books) Day(ctx context.Context, day Day, fn func(*Line) error) (DaySums, error) {
	r := &dayReader{campaign: day.Campaign, from: day.From.UnixMilli(), to: day.To.UnixMilli(), fn: fn}
	if err := b.tables.ReadPages(ctx, r.read); err != nil {
		return DaySums{}, fmt.Errorf("read what campaign %s moved from %s to %s: %w", day.Campaign,
			day.From.Format(time.RFC3339), day.To.Format(time.RFC3339), err)
	}
	return r.sums, nil
}

// dayReader has the state of one call of Day.
type dayReader struct {
	campaign string
	from, to int64
	fn       func(*Line) error
	sums     DaySums
	pool     hongbao.Amount // the sum of all transfers, of every day
	// others are the lines that are not grants: the funding, the refund and the payments from the reserve.
	others []Line
}

func (r *dayReader) read(ctx context.Context, t db.Txn) error {
	c, found, err := tables.Query[Totals]{SQL: totalsQuery + ` WHERE c.id = $1`, Args: []any{r.campaign}, Row: scanTotals}.
		First(ctx, t)
	switch {
	case err != nil:
		return err
	case !found:
		return hongbao.Errorf(hongbao.ClassPermanent, "%w; check the id", tables.ErrNoCampaign)
	}
	if err := r.transfers(ctx, t, c.Currency); err != nil {
		return err
	}
	if r.pool != c.Pool {
		return r.broken("the sum of its transfers is %d, and the balance of its pool is %d", r.pool, c.Pool)
	}
	if err := r.lines(ctx, t); err != nil {
		return err
	}
	r.sums.Unrecorded, _, err = tables.Query[int64]{SQL: `SELECT COUNT(*) FROM pending WHERE campaign = $1 AND since < $2`,
		Args: []any{r.campaign, r.to}, Row: tables.Number}.First(ctx, t)
	return err
}

func (r *dayReader) broken(format string, args ...any) error {
	return hongbao.Errorf(hongbao.ClassBroken,
		"the ledger does not agree with itself: campaign %s: %s; run `hongbao audit`",
		r.campaign, fmt.Sprintf(format, args...))
}

// transfers adds up the campaign's transfers. It keeps the day's transfers as lines, except those for grants.
func (r *dayReader) transfers(ctx context.Context, t db.Txn, currency string) error {
	after := ""
	err := tables.EachPage(ctx, t, `SELECT id, kind, COALESCE(credit, ''), amount, grants, created_at FROM transfer
		WHERE campaign = $1 AND id > $2 ORDER BY id LIMIT $3`, func() []any { return []any{r.campaign, after} },
		func(s db.Scan) error {
			var kind, credit string
			var amount hongbao.Amount
			var grants, at int64
			if err := s(&after, &kind, &credit, &amount, &grants, &at); err != nil {
				return err
			}
			line := Line{Kind: LineKind(kind), Transfer: after, Booked: time.UnixMilli(at).UTC(), Amount: amount}
			switch {
			case kind == "grants":
				line.Kind = LineGrant
			case strings.HasPrefix(after, "quarantine:"):
				line.Kind, line.User = LinePayment, strings.TrimPrefix(credit, tables.UserAccount("", currency))
				line.Packet = packetOfPayment(after)
			}
			r.add(&line, grants, at)
			return nil
		})
	r.sums.Closing = r.sums.Opening + r.sums.Funded - r.sums.Granted - r.sums.Refunded
	return err
}

// packetOfPayment returns the packet in a transfer's id of the form quarantine:CAMPAIGN:PACKET:USER.
func packetOfPayment(id string) int64 {
	_, rest, _ := strings.Cut(strings.TrimPrefix(id, "quarantine:"), ":")
	packet, _, _ := strings.Cut(rest, ":")
	n, _ := strconv.ParseInt(packet, 10, 64) // Decide wrote it
	return n
}

// add adds a transfer to the sums.
func (r *dayReader) add(line *Line, grants, at int64) {
	effect := line.Amount
	switch line.Kind {
	case LineGrant, LineRefund:
		effect = -effect
	case LinePayment:
		effect = 0
	case LineFunding:
	}
	r.pool += effect
	if at < r.from {
		r.sums.Opening += effect
	}
	if at < r.from || at >= r.to {
		return
	}
	switch line.Kind {
	case LineFunding:
		r.sums.Funded += line.Amount
	case LineGrant:
		r.sums.Granted, r.sums.Grants = r.sums.Granted+line.Amount, r.sums.Grants+grants
		return
	case LinePayment:
		r.sums.Paid, r.sums.Payments = r.sums.Paid+line.Amount, r.sums.Payments+1
	case LineRefund:
		r.sums.Refunded += line.Amount
	}
	r.others = append(r.others, *line)
}

// lines passes the lines to the caller's function: the funding, the grants, and the rest in the order of the transfers'
// ids.
func (r *dayReader) lines(ctx context.Context, t db.Txn) error {
	for i := range r.others {
		if r.others[i].Kind == LineFunding {
			if err := r.fn(&r.others[i]); err != nil {
				return err
			}
		}
	}
	if r.sums.Grants > 0 {
		if a, archived, err := tables.ArchiveOf(r.campaign).First(ctx, t); err != nil {
			return err
		} else if archived {
			return a.Refusal()
		}
		if err := r.grants(ctx, t); err != nil {
			return err
		}
	}
	for i := range r.others {
		if r.others[i].Kind != LineFunding {
			if err := r.fn(&r.others[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// grants passes the day's grants to the caller's function. It reads all grants of the campaign and skips other days'
// grants, so that every query reads a bounded page.
func (r *dayReader) grants(ctx context.Context, t db.Txn) error {
	var grants int64
	var amount hongbao.Amount
	line := Line{Kind: LineGrant}
	err := tables.EachPage(ctx, t, `SELECT g.packet, g.user_id, g.amount, g.granted_at, COALESCE(t.id, ''),
		COALESCE(t.created_at, 0) FROM grants AS g LEFT JOIN transfer AS t ON t.id = 'grants:' || g.campaign || ':' || g.batch
		WHERE g.campaign = $1 AND g.packet > $2 ORDER BY g.packet LIMIT $3`,
		func() []any { return []any{r.campaign, line.Packet} },
		func(s db.Scan) error {
			var granted, booked int64
			if err := s(&line.Packet, &line.User, &line.Amount, &granted, &line.Transfer, &booked); err != nil {
				return err
			}
			if booked < r.from || booked >= r.to {
				return nil
			}
			grants, amount = grants+1, amount+line.Amount
			line.Granted, line.Booked = time.UnixMilli(granted).UTC(), time.UnixMilli(booked).UTC()
			return r.fn(&line)
		})
	if err == nil && (grants != r.sums.Grants || amount != r.sums.Granted) {
		err = r.broken("its pool was debited for %d grants that sum to %d, but it has %d grants that sum to %d",
			r.sums.Grants, r.sums.Granted, grants, amount)
	}
	return err
}
