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
// sponsor, and nothing can be granted after it. closed is the campaign's close entry, and missing how many of its grants
// the ledger will never hold, by a person's word: they were decided in quarantine or as dead letters, and what they would
// have cost goes back too. It is refused with hongbao.ErrSettling while the ledger holds fewer grants than that, and as a
// Conflict if the ledger's grants can't become what the close tells, or if some are missing and others still wait in
// quarantine. A repeat gives the refund that is there and moves nothing, whoever made it.
func (l *Ledger) Refund(ctx context.Context, closed hongbao.Entry, missing int64) (hongbao.Refund, error) {
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
		if refund, err = c.refund(ctx, t, &closed, missing); err != nil {
			return nil, err
		}
		return postRefund(&refund, pool), nil
	})
	if err != nil {
		return hongbao.Refund{}, fmt.Errorf("refund campaign %s: %w", closed.Campaign, err)
	}
	return refund, nil
}

// held is what the ledger has granted of a campaign and what is left, with its pool and the grants that wait in quarantine.
func (c *StoredCampaign) held(ctx context.Context, t txn) (held hongbao.Closing, pool hongbao.Amount, waiting int64, err error) {
	id := c.Spec.ID
	err = t.query(ctx, `SELECT (SELECT COUNT(*) FROM grants WHERE campaign = $1),
		(SELECT CAST(COALESCE(SUM(amount), 0) AS bigint) FROM grants WHERE campaign = $2),
		(SELECT COUNT(*) FROM quarantine WHERE campaign = $3 AND resolved_at = 0), balance FROM account WHERE id = $4`,
		[]any{id, id, id, PoolAccount(id)}, func(s scan) error { return s(&held.Granted, &held.GrantedAmount, &waiting, &pool) })
	held.Left, held.LeftAmount = c.Spec.Packets-held.Granted, c.Funded-held.GrantedAmount
	return held, pool, waiting, err
}

// strays counts the grants that the close can't have counted: it stands behind every grant of its campaign, on the same shard.
func strays(ctx context.Context, t txn, closed *hongbao.Entry) (n, packet int64, err error) {
	err = t.query(ctx, `SELECT COUNT(*), COALESCE(MIN(packet), 0) FROM grants WHERE campaign = $1 AND (shard <> $2 OR seq >= $3)`,
		[]any{closed.Campaign, int64(closed.Shard), closed.Seq}, func(s scan) error { return s(&n, &packet) })
	return n, packet, err
}

// refund compares the close with what the ledger holds, and tells what is to be moved.
func (c *StoredCampaign) refund(ctx context.Context, t txn, closed *hongbao.Entry, missing int64) (hongbao.Refund, error) {
	held, pool, waiting, err := c.held(ctx, t)
	if err != nil {
		return hongbao.Refund{}, err
	}
	late, packet, err := strays(ctx, t, closed)
	if err != nil {
		return hongbao.Refund{}, err
	}
	want, id := closed.Close, c.Spec.ID
	switch {
	case closed.Kind != hongbao.EntryClose || closed.Seq < 1 || missing < 0:
		return hongbao.Refund{}, hongbao.Errorf(hongbao.Permanent, "entry %s is no close, or %d missing grants are no number", closed.ID, missing)
	case want.Granted+want.Left != c.Spec.Packets || want.GrantedAmount+want.LeftAmount != c.Funded:
		return hongbao.Refund{}, hongbao.Errorf(hongbao.Conflict, "the close tells of %d packets with amount %d, the ledger has funded %d with %d: "+
			"run `hongbao audit --campaign %s`", want.Granted+want.Left, want.GrantedAmount+want.LeftAmount, c.Spec.Packets, c.Funded, id)
	case late > 0:
		return hongbao.Refund{}, hongbao.Errorf(hongbao.Conflict, "the ledger has paid %d grants (packet %d for one) that the close, event %d-%d, can't have counted: "+
			"they stand behind it or are of another shard. Somebody wrote to Redis or to the ledger: run `hongbao audit --campaign %s`",
			late, packet, closed.Shard, closed.Seq, id)
	case held.Granted+missing < want.Granted:
		return hongbao.Refund{}, hongbao.Errorf(hongbao.Transient, "%w: the ledger holds %d of %d grants", hongbao.ErrSettling, held.Granted, want.Granted)
	case held.Granted+missing > want.Granted || held.GrantedAmount > want.GrantedAmount || missing == 0 && held != want:
		return hongbao.Refund{}, hongbao.Errorf(hongbao.Conflict, "the close tells of %d grants with amount %d, the ledger has %d with %d, and %d are said to be missing: "+
			"run `hongbao audit --campaign %s`", want.Granted, want.GrantedAmount, held.Granted, held.GrantedAmount, missing, id)
	case missing > 0 && waiting > 0:
		return hongbao.Refund{}, hongbao.Errorf(hongbao.Conflict, "%d grants are missing, and %d wait in quarantine: decide these first", missing, waiting)
	case c.Granted != held.GrantedAmount || pool != held.LeftAmount:
		return hongbao.Refund{}, hongbao.Errorf(hongbao.Broken, "the ledger does not agree with itself: granted %d, its grants come to %d, pool %d: "+
			"it was written by hand", c.Granted, held.GrantedAmount, pool)
	}
	return hongbao.Refund{
		Campaign: id, Currency: c.Spec.Currency, Sponsor: c.Spec.Sponsor, Amount: held.LeftAmount, Packets: held.Left,
		Shard: closed.Shard, Seq: closed.Seq, Created: time.Now().UTC().Truncate(time.Millisecond),
	}, nil
}

// Held tells what the ledger has granted of a campaign, and what is left. It reads every grant of the campaign.
func (l *Ledger) Held(ctx context.Context, campaign string) (held hongbao.Closing, err error) {
	err = l.read(ctx, func(ctx context.Context, t txn) error {
		c, found, err := readCampaign(ctx, t, campaign)
		if err == nil && !found {
			err = hongbao.Errorf(hongbao.Permanent, "%w; look at the id", ErrNoCampaign)
		}
		if err == nil {
			held, _, _, err = c.held(ctx, t)
		}
		return err
	})
	if err != nil {
		return hongbao.Closing{}, fmt.Errorf("sum up campaign %s: %w", campaign, err)
	}
	return held, nil
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
