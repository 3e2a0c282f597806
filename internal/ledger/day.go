package ledger

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
)

// LineKind says whose money a line moved.
type LineKind string

// The kinds of lines. All but LinePayment move the balance of the campaign's pool.
const (
	LineFunding LineKind = "funding"            // the sponsor's, into the pool
	LineGrant   LineKind = "grant"              // the pool's, to a user
	LinePayment LineKind = "quarantine_payment" // the reserve's, to a user, by a person's decision
	LineRefund  LineKind = "refund"             // the pool's, back to the sponsor
)

// Line is one movement of money in a campaign. A grant without a value has its line, too.
type Line struct {
	Kind LineKind
	// Transfer is the row of table transfer that moved it. Grants of one batch have the same transfer.
	Transfer string
	Booked   time.Time
	Amount   hongbao.Amount
	// User and Packet are empty for the sponsor's lines.
	User   string
	Packet int64
	// Granted is when the user grabbed the packet; only a LineGrant has it.
	Granted time.Time
}

// Day is a span of time: From is included, To is not.
type Day struct {
	Campaign string
	From, To time.Time
}

// DaySums are the sums over the lines of a day. Opening and Closing are the balances of the campaign's pool before and
// after it: Closing = Opening + Funded - Granted - Refunded.
type DaySums struct {
	Opening  hongbao.Amount `json:"opening"`
	Funded   hongbao.Amount `json:"funded"`
	Grants   int64          `json:"grants"`
	Granted  hongbao.Amount `json:"granted"`
	Refunded hongbao.Amount `json:"refunded"`
	Closing  hongbao.Amount `json:"closing"`
	// Paid is what people decided to pay from the reserve for grants in quarantine; Payments is the number of payments.
	Payments int64          `json:"quarantine_payments"`
	Paid     hongbao.Amount `json:"quarantine_paid"`
	// Unrecorded credits may have been asked for at a remote before To. They are not in the ledger yet.
	Unrecorded int64 `json:"unrecorded"`
}

// Day calls fn for every movement of money in a campaign that was booked in a span of time: funding, grants in the
// order of the packets, payments from the reserve, refund. It reads one snapshot in pages, so its memory does not grow
// with the campaign. After an error the lines must not be used. The error is Broken if the lines contradict the
// transfers and the balance of the pool.
func (l *Ledger) Day(ctx context.Context, day Day, fn func(*Line) error) (DaySums, error) {
	r := &dayReader{campaign: day.Campaign, from: day.From.UnixMilli(), to: day.To.UnixMilli(), fn: fn}
	if err := l.readPages(ctx, r.read); err != nil {
		return DaySums{}, fmt.Errorf("read what campaign %s moved from %s to %s: %w", day.Campaign,
			day.From.Format(time.RFC3339), day.To.Format(time.RFC3339), err)
	}
	return r.sums, nil
}

// dayReader is one call of Day.
type dayReader struct {
	campaign string
	from, to int64
	fn       func(*Line) error
	sums     DaySums
	pool     hongbao.Amount // the sum of all transfers, of every day
	// others are the lines that are not grants: the funding, the refund, and people's decisions.
	others []Line
}

func (r *dayReader) read(ctx context.Context, t txn) error {
	c, found, err := question[Totals]{sql: totalsQuery + ` WHERE c.id = $1`, args: []any{r.campaign}, row: scanTotals}.
		first(ctx, t)
	switch {
	case err != nil:
		return err
	case !found:
		return hongbao.Errorf(hongbao.ClassPermanent, "%w; look at the id", ErrNoCampaign)
	}
	if err := r.transfers(ctx, t, c.Currency); err != nil {
		return err
	}
	if r.pool != c.Pool {
		return r.broken("its transfers come to %d, and the balance of its pool is %d", r.pool, c.Pool)
	}
	if err := r.lines(ctx, t); err != nil {
		return err
	}
	r.sums.Unrecorded, _, err = question[int64]{sql: `SELECT COUNT(*) FROM pending WHERE campaign = $1 AND since < $2`,
		args: []any{r.campaign, r.to}, row: number}.first(ctx, t)
	return err
}

func (r *dayReader) broken(format string, args ...any) error {
	return hongbao.Errorf(hongbao.ClassBroken,
		"the ledger does not agree with itself: campaign %s: %s; run `hongbao audit`",
		r.campaign, fmt.Sprintf(format, args...))
}

// transfers adds up the campaign's transfers, and keeps those of the day that are not batches of grants.
func (r *dayReader) transfers(ctx context.Context, t txn, currency string) error {
	after := ""
	err := eachPage(ctx, t, `SELECT id, kind, COALESCE(credit, ''), amount, grants, created_at FROM transfer
		WHERE campaign = $1 AND id > $2 ORDER BY id LIMIT $3`, func() []any { return []any{r.campaign, after} },
		func(s scan) error {
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
				line.Kind, line.User = LinePayment, strings.TrimPrefix(credit, UserAccount("", currency))
				line.Packet = packetOfPayment(after)
			}
			r.add(&line, grants, at)
			return nil
		})
	r.sums.Closing = r.sums.Opening + r.sums.Funded - r.sums.Granted - r.sums.Refunded
	return err
}

// packetOfPayment returns the packet in quarantine:CAMPAIGN:PACKET:USER.
func packetOfPayment(id string) int64 {
	_, rest, _ := strings.Cut(strings.TrimPrefix(id, "quarantine:"), ":")
	packet, _, _ := strings.Cut(rest, ":")
	n, _ := strconv.ParseInt(packet, 10, 64) // Decide wrote it
	return n
}

// add counts a transfer.
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
func (r *dayReader) lines(ctx context.Context, t txn) error {
	for i := range r.others {
		if r.others[i].Kind == LineFunding {
			if err := r.fn(&r.others[i]); err != nil {
				return err
			}
		}
	}
	if r.sums.Grants > 0 {
		if a, archived, err := archiveOf(r.campaign).first(ctx, t); err != nil {
			return err
		} else if archived {
			return a.refusal()
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

// grants passes on the day's grants. It reads all grants of the campaign, so each page is bounded wherever the day's
// grants are.
func (r *dayReader) grants(ctx context.Context, t txn) error {
	var grants int64
	var amount hongbao.Amount
	line := Line{Kind: LineGrant}
	err := eachPage(ctx, t, `SELECT g.packet, g.user_id, g.amount, g.granted_at, COALESCE(t.id, ''),
		COALESCE(t.created_at, 0) FROM grants AS g LEFT JOIN transfer AS t ON t.id = 'grants:' || g.campaign || ':' || g.batch
		WHERE g.campaign = $1 AND g.packet > $2 ORDER BY g.packet LIMIT $3`,
		func() []any { return []any{r.campaign, line.Packet} },
		func(s scan) error {
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
		err = r.broken("the debits of its pool are for %d grants with %d, and there are %d with %d", r.sums.Grants,
			r.sums.Granted, grants, amount)
	}
	return err
}
