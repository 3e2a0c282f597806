package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hongbao-project/hongbao"
)

// baseRows is how many grants one transaction adds to the bases of their accounts.
const baseRows = 5_000

// basedAll is the value of seal.based once the bases include all grants of the campaign.
const basedAll = math.MaxInt64

// addBases adds the grants of a sealed campaign to the bases of their accounts, in transactions of some rows. Concurrent calls add each
// row once. It changes nothing if the campaign has no seal, or if it is archived: then the grants may be deleted.
func (l *Ledger) addBases(ctx context.Context, c *Totals, rows int) error {
	for done := false; !done; {
		err := l.write(ctx, func(ctx context.Context, t txn) (none []stmt, err error) {
			done, err = l.addBaseChunk(ctx, t, c, rows)
			return nil, err
		})
		if err != nil {
			return fmt.Errorf("add the grants of campaign %s to the bases of their accounts: %w", c.Campaign, err)
		}
	}
	return nil
}

// finishSeal adds what the bases lack of a sealed campaign, because the grants will be deleted.
func (l *Ledger) finishSeal(ctx context.Context, campaign string) error {
	c, found, err := l.Totals(ctx, campaign)
	if err != nil || !found || !c.Sealed || c.Based {
		return err
	}
	return l.addBases(ctx, &c, baseRows)
}

func (l *Ledger) addBaseChunk(ctx context.Context, t txn, c *Totals, rows int) (done bool, err error) {
	based, found, err := rowQuery[int64]{sql: `SELECT based FROM seal WHERE campaign = $1
		AND NOT EXISTS (SELECT 1 FROM archive WHERE archive.campaign = $1)`, args: []any{c.Campaign}, row: number}.first(ctx, t)
	if err != nil || !found || based == basedAll {
		return true, err
	}
	page, err := rowQuery[paidGrant]{sql: selectPaid, args: []any{c.Campaign, based, int64(rows)}, row: scanPaid}.in(ctx, t)
	if err != nil {
		return false, err
	}
	next := int64(basedAll)
	if len(page) == rows {
		next = page[rows-1].packet
	}
	var changed int64
	err = t.run(ctx, stmt{sql: `UPDATE seal SET based = $3 WHERE campaign = $1 AND based = $2`,
		args: []any{c.Campaign, based, next}, changed: &changed})
	if err != nil || changed == 0 { // another process has added the chunk
		return false, err
	}
	return next == basedAll, l.addToBases(ctx, t, c, page)
}

// hasBases reports whether the bases can be used. They can't if they have only a part of a campaign whose other grants are
// deleted: a build that knows no bases archived it.
func hasBases(ctx context.Context, t txn, seals bool) (bool, error) {
	part := ""
	err := t.query(ctx, `SELECT campaign FROM seal WHERE based > 0 AND based < $1
		AND EXISTS (SELECT 1 FROM archive WHERE archive.campaign = seal.campaign) LIMIT 1`, []any{int64(basedAll)},
		func(s scan) error { return s(&part) })
	return seals && part == "", err
}

// TopicBase says where the next audit begins to read a partition of the topic. Each record before Next was judged. Each
// record before First also belongs to a sealed campaign.
type TopicBase struct {
	Part        int
	First, Next int64
	// Last is the offset of the last grant before Next, and Event identifies the grant. Last is -1 if there is none.
	Last  int64
	Event string
}

// TopicBases returns the bases of a topic, in the order of the partitions; none if no audit has stored them.
func (l *Ledger) TopicBases(ctx context.Context, topic string) ([]TopicBase, error) {
	return rowQuery[TopicBase]{"read where audits begin in topic " + topic, `SELECT part, first_offset, next_offset,
		last_offset, last_event FROM topic_base WHERE topic = $1 ORDER BY part`, []any{topic},
		func(s scan) (b TopicBase, err error) {
			var part int64
			err = s(&part, &b.First, &b.Next, &b.Last, &b.Event)
			b.Part = int(part)
			return b, err
		}}.all(ctx, l)
}

var errNewerBases = errors.New("another audit has stored bases")

// SetTopicBases replaces the bases of a topic, unless they are not those in was any more: then another audit has stored
// newer ones, and SetTopicBases changes nothing. Call it only after the campaigns that the bases count as sealed are
// sealed.
func (l *Ledger) SetTopicBases(ctx context.Context, topic string, was, bases []TopicBase) error {
	err := l.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) {
		var others int64
		if err := t.query(ctx, `SELECT COUNT(*) FROM topic_base WHERE topic = $1`, []any{topic},
			func(s scan) error { return s(&others) }); err != nil {
			return nil, err
		}
		if others != int64(len(was)) {
			return nil, errNewerBases
		}
		for _, b := range was {
			var deleted int64
			err := t.run(ctx, stmt{sql: `DELETE FROM topic_base WHERE topic = $1 AND part = $2 AND next_offset = $3
				AND last_event = $4`, args: []any{topic, int64(b.Part), b.Next, b.Event}, changed: &deleted})
			if err == nil && deleted == 0 {
				err = errNewerBases
			}
			if err != nil {
				return nil, err
			}
		}
		var stmts []stmt
		for _, b := range bases {
			stmts = append(stmts, stmt{sql: `INSERT INTO topic_base (topic, part, first_offset, next_offset, last_offset,
				last_event) VALUES ($1, $2, $3, $4, $5, $6)`, args: []any{topic, int64(b.Part), b.First, b.Next, b.Last, b.Event}})
		}
		return stmts, nil
	})
	if err != nil && !errors.Is(err, errNewerBases) {
		return fmt.Errorf("store where audits begin in topic %s: %w", topic, err)
	}
	return nil
}

func (l *Ledger) addToBases(ctx context.Context, t txn, c *Totals, page []paidGrant) error {
	slices.SortFunc(page, func(a, b paidGrant) int { return cmp.Compare(a.user, b.user) })
	var ids []string
	var amounts []int64
	for _, g := range page {
		id := UserAccount(g.user, c.Currency)
		switch n := len(ids); {
		case g.amount == 0:
		case n > 0 && ids[n-1] == id:
			amounts[n-1] += int64(g.amount)
		default:
			ids, amounts = append(ids, id), append(amounts, int64(g.amount))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	packed, err := l.dialect.pack(ids, amounts)
	if err != nil {
		return err
	}
	var changed int64
	err = t.run(ctx, stmt{sql: l.dialect.addToBases, args: packed, changed: &changed})
	if err == nil && changed != int64(len(ids)) {
		err = hongbao.Errorf(hongbao.ClassBroken, "%d accounts were paid, but the ledger has only %d of them: run "+
			"`hongbao audit --full`", len(ids), changed)
	}
	return err
}
