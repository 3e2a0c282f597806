package settlement

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
)

// ErrNoCampaign says that the ledger does not have a campaign.
var ErrNoCampaign = errors.New("the campaign is not in the ledger")

// ErrNotRefunded says that a campaign's money did not go back yet.
var ErrNotRefunded = errors.New("the campaign is not refunded")

// Refund posts the campaign's refund in one transaction: what was funded and not granted goes from the pool to the
// sponsor, and nothing can be granted after it. closed is the campaign's close entry; it is refused with hongbao.ErrSettling
// while the ledger holds fewer grants than it tells, and as a Conflict if the ledger's grants can't become what it
// tells. A repeat gives the refund that is there and moves nothing, whoever made it.
func (l *Ledger) Refund(ctx context.Context, closed hongbao.Entry) (hongbao.Refund, error) {
	var refund hongbao.Refund
	err := l.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) {
		// The pool's row is what every settler of the campaign takes before the campaign's: with it in hand nothing is
		// granted beside us, and nobody waits in a circle.
		pool := PoolAccount(closed.Campaign)
		lock := stmt{sql: `UPDATE account SET balance = balance - 0 WHERE id = $1`, args: []any{pool}}
		if err := t.run(ctx, lock); err != nil {
			return nil, err
		}
		c, found, err := readCampaign(ctx, t, closed.Campaign)
		if err == nil && !found {
			err = hongbao.Errorf(hongbao.Permanent, "%w; look at the id", ErrNoCampaign)
		}
		if err != nil {
			return nil, err
		}
		if c.State == StateRefunded {
			refund, found, err = readRefund(ctx, t, closed.Campaign)
			return nil, errors.Join(err, mustExist(found, closed.Campaign))
		}
		if refund, err = c.refund(ctx, t, &closed); err != nil {
			return nil, err
		}
		return postRefund(&refund, pool), nil
	})
	if err != nil {
		return hongbao.Refund{}, fmt.Errorf("refund campaign %s: %w", closed.Campaign, err)
	}
	return refund, nil
}

// refund compares the close with what the ledger holds, and tells what is to be moved.
func (c *StoredCampaign) refund(ctx context.Context, t txn, closed *hongbao.Entry) (hongbao.Refund, error) {
	var grants int64
	var sum, pool hongbao.Amount
	err := t.query(ctx, `SELECT (SELECT COUNT(*) FROM grants WHERE campaign = $1),
		(SELECT CAST(COALESCE(SUM(amount), 0) AS bigint) FROM grants WHERE campaign = $2), balance FROM account WHERE id = $3`,
		[]any{c.Spec.ID, c.Spec.ID, PoolAccount(c.Spec.ID)}, func(s scan) error { return s(&grants, &sum, &pool) })
	if err != nil {
		return hongbao.Refund{}, err
	}
	left := hongbao.Closing{Granted: grants, GrantedAmount: sum, Left: c.Spec.Packets - grants, LeftAmount: c.Funded - sum}
	want := closed.Close
	switch {
	case closed.Kind != hongbao.EntryClose || closed.Seq < 1:
		return hongbao.Refund{}, hongbao.Errorf(hongbao.Permanent, "entry %s is no close", closed.ID)
	case want.Granted+want.Left != c.Spec.Packets || want.GrantedAmount+want.LeftAmount != c.Funded:
		return hongbao.Refund{}, hongbao.Errorf(hongbao.Conflict, "the close tells of %d packets with amount %d, the ledger has funded %d with %d: "+
			"run `hongbao audit --campaign %s`", want.Granted+want.Left, want.GrantedAmount+want.LeftAmount, c.Spec.Packets, c.Funded, c.Spec.ID)
	case grants < want.Granted:
		return hongbao.Refund{}, hongbao.Errorf(hongbao.Transient, "%w: the ledger holds %d of %d grants", hongbao.ErrSettling, grants, want.Granted)
	case left != want:
		return hongbao.Refund{}, hongbao.Errorf(hongbao.Conflict, "the close tells of %d grants with amount %d, the ledger has %d with %d: "+
			"run `hongbao audit --campaign %s`", want.Granted, want.GrantedAmount, grants, sum, c.Spec.ID)
	case c.Granted != sum || pool != left.LeftAmount:
		return hongbao.Refund{}, hongbao.Errorf(hongbao.Broken, "the ledger does not agree with itself: granted %d, its grants come to %d, pool %d: "+
			"it was written by hand", c.Granted, sum, pool)
	}
	return hongbao.Refund{
		Campaign: c.Spec.ID, Currency: c.Spec.Currency, Sponsor: c.Spec.Sponsor, Amount: left.LeftAmount, Packets: left.Left,
		Shard: closed.Shard, Seq: closed.Seq, Created: time.Now().UTC().Truncate(time.Millisecond),
	}, nil
}

// postRefund is the double entry from the pool to the sponsor, and the end of the campaign. The database's own guards are the
// keys of transfer and refund (one each) and CHECK (granted + refunded = funded).
func postRefund(r *hongbao.Refund, pool string) []stmt {
	sponsor, transfer := SponsorAccount(r.Sponsor, r.Currency), "refund:"+r.Campaign
	amount, now := int64(r.Amount), r.Created.UnixMilli()
	const move = `UPDATE account SET balance = balance + $2 WHERE id = $1`
	return []stmt{
		{sql: move, args: []any{pool, -amount}},
		{sql: `UPDATE campaign SET refunded = refunded + $2, state = $3 WHERE id = $1`, args: []any{r.Campaign, amount, string(StateRefunded)}},
		{sql: insertTransfer, args: []any{transfer, "refund", r.Campaign, pool, sponsor, amount, int64(0), int64(0), now}},
		{sql: `INSERT INTO refund (campaign, transfer, amount, packets, shard, close_seq, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			args: []any{r.Campaign, transfer, amount, r.Packets, int64(r.Shard), r.Seq, now}},
		{sql: move, args: []any{sponsor, amount}},
	}
}

func readRefund(ctx context.Context, t txn, campaign string) (r hongbao.Refund, found bool, err error) {
	c, found, err := readCampaign(ctx, t, campaign)
	if err != nil || !found {
		return r, false, err
	}
	r = hongbao.Refund{Campaign: campaign, Currency: c.Spec.Currency, Sponsor: c.Spec.Sponsor}
	found = false
	err = t.query(ctx, `SELECT amount, packets, shard, close_seq, created_at FROM refund WHERE campaign = $1`, []any{campaign}, func(s scan) error {
		var shard, at int64
		err := s(&r.Amount, &r.Packets, &shard, &r.Seq, &at)
		r.Shard, r.Created, found = int(shard), time.UnixMilli(at).UTC(), true
		return err
	})
	return r, found, err
}

// RefundOf gives the refund of a campaign; false if there is none.
func (l *Ledger) RefundOf(ctx context.Context, campaign string) (r hongbao.Refund, found bool, err error) {
	err = l.read(ctx, func(ctx context.Context, t txn) error {
		r, found, err = readRefund(ctx, t, campaign)
		return err
	})
	if err != nil {
		return hongbao.Refund{}, false, fmt.Errorf("read the refund of campaign %s: %w", campaign, err)
	}
	return r, found, nil
}

// Reveal notes that the campaign's seed is public, and gives the campaign with it. Before the refund it is refused
// (Permanent, ErrNotRefunded): the seed tells what every packet holds. A repeat keeps the first time.
func (l *Ledger) Reveal(ctx context.Context, campaign string) (StoredCampaign, error) {
	var c StoredCampaign
	err := l.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) {
		reveal := stmt{sql: `UPDATE campaign SET revealed_at = $2 WHERE id = $1 AND revealed_at = 0 AND state = $3`,
			args: []any{campaign, time.Now().UnixMilli(), string(StateRefunded)}}
		if err := t.run(ctx, reveal); err != nil {
			return nil, err
		}
		var found bool
		var err error
		switch c, found, err = readCampaign(ctx, t, campaign); {
		case err != nil:
			return nil, err
		case !found:
			return nil, hongbao.Errorf(hongbao.Permanent, "%w; look at the id", ErrNoCampaign)
		case c.State != StateRefunded:
			return nil, hongbao.Errorf(hongbao.Permanent, "%w: its seed stays secret until it is closed and refunded", ErrNotRefunded)
		}
		return nil, nil
	})
	if err != nil {
		return StoredCampaign{}, fmt.Errorf("reveal the seed of campaign %s: %w", campaign, err)
	}
	return c, nil
}
