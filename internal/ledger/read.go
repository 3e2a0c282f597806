package ledger

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// pageRows is how many grants are read at once. Between pages a long iteration holds neither a connection nor a
// snapshot.
const pageRows = 2_000

// selectGrants reads the columns that scanGrantCode scans. The code is empty if the campaign has none.
const selectGrants = `SELECT ` + grantColumns + `, batch,
	COALESCE((SELECT code FROM code WHERE code.campaign = grants.campaign AND code.packet = grants.packet), '')
	FROM grants `

func scanGrantCode(s db.Scan) (hongbao.Grant, error) {
	var code string
	g, err := scanGrant(func(dest ...any) error { return s(append(dest, &code)...) })
	g.Code = code
	return g.Grant, err
}

// EachGrant calls fn for every grant of a campaign, in the order of the packets. It stops at the first error of fn, and
// returns it unchanged. For an archived campaign it returns ErrArchived at the end, after it may have called fn for
// some grants. It may miss grants that are settled during the iteration. EntryID and Trace are empty, because the
// ledger does not store them.
func (l *Ledger) EachGrant(ctx context.Context, campaign string, fn func(hongbao.Grant) error) error {
	err := l.eachGrant(ctx, func(last *hongbao.Grant) tables.Query[hongbao.Grant] {
		return tables.Ask(fmt.Sprintf("read the grants of campaign %s after packet %d", campaign, last.Packet),
			selectGrants+`WHERE campaign = $1 AND packet > $2 ORDER BY packet LIMIT $3`,
			[]any{campaign, last.Packet, int64(pageRows)}, scanGrantCode)
	}, hongbao.Grant{}, fn)
	if err != nil {
		return err
	}
	return l.refuseArchived(ctx, campaign)
}

// EachGrantBySeq calls fn for every grant of a shard whose seq is in the range, in the order of the seqs. It stops at
// the first error of fn, and returns it unchanged. A seq is missing if it is not a grant or not settled. If Redis went
// back in time, a seq can occur twice, for different packets. EntryID and Trace are empty, because the ledger does not
// store them.
func (l *Ledger) EachGrantBySeq(ctx context.Context, shard int, seqs stream.SeqRange,
	fn func(hongbao.Grant) error) error {
	begin := hongbao.Grant{Seq: seqs.First} // sorts before every row of that seq, since no campaign has an empty id
	return l.eachGrant(ctx, func(last *hongbao.Grant) tables.Query[hongbao.Grant] {
		return tables.Ask(fmt.Sprintf("read the grants of shard %d after seq %d", shard, last.Seq),
			selectGrants+`WHERE shard = $1 AND seq >= $2 AND seq <= $3 AND (seq, campaign, packet) > ($2, $4, $5)
			ORDER BY seq, campaign, packet LIMIT $6`,
			[]any{int64(shard), last.Seq, seqs.Last, last.Campaign, last.Packet, int64(pageRows)}, scanGrantCode)
	}, begin, fn)
}

// eachGrant queries pages of grants, each after the last grant of the previous page, and calls fn for each grant.
func (l *Ledger) eachGrant(ctx context.Context, behind func(last *hongbao.Grant) tables.Query[hongbao.Grant],
	last hongbao.Grant, fn func(hongbao.Grant) error) error {
	for {
		page, err := behind(&last).All(ctx, l.tables)
		if err != nil {
			return err
		}
		for _, last = range page {
			if err := fn(last); err != nil {
				return err
			}
		}
		if len(page) < pageRows {
			return nil
		}
	}
}

// UserGrants returns a user's grants in a campaign, sorted by shard and seq. For an archived campaign the error is
// ErrArchived. A user has at most hongbao.MaxUserHold grants.
func (l *Ledger) UserGrants(ctx context.Context, campaign, user string) ([]hongbao.Grant, error) {
	list, err := tables.Ask("read the grants of user "+user+" in campaign "+campaign,
		selectGrants+`WHERE campaign = $1 AND user_id = $2 ORDER BY shard, seq LIMIT $3`,
		[]any{campaign, user, int64(pageRows)}, scanGrantCode).All(ctx, l.tables)
	if err == nil {
		err = l.refuseArchived(ctx, campaign)
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// PacketGrant returns the grant of one packet of a campaign; false if the ledger has none. For an archived campaign the
// error is ErrArchived.
func (l *Ledger) PacketGrant(ctx context.Context, campaign string, packet int64) (hongbao.Grant, bool, error) {
	g, found, err := tables.Ask(fmt.Sprintf("read packet %d of campaign %s", packet, campaign),
		selectGrants+`WHERE campaign = $1 AND packet = $2`, []any{campaign, packet}, scanGrantCode).One(ctx, l.tables)
	if err == nil {
		err = l.refuseArchived(ctx, campaign)
	}
	if err != nil {
		return hongbao.Grant{}, false, err
	}
	return g, found, nil
}

// Totals are the ledger's counters of a campaign, read at one instant. CheckConservation compares them with the rows.
type Totals struct {
	Campaign, Currency string
	// Funded, Granted and Refunded are amounts. Grants is the number of grants.
	Funded, Granted, Refunded hongbao.Amount
	Grants                    int64
	// Pool is the balance of the pool: the money that is neither granted nor refunded.
	Pool hongbao.Amount
	// Codes reports whether the campaign's packets have codes.
	Codes bool
	// Closed reports whether the campaign was refunded. Closes are the closes that the refund is based on, one for each
	// place.
	Closed bool
	Closes []payment.Close
	// By and Why are set if a close was missing because Redis had lost data of the campaign. They say who decided to
	// refund it, and why.
	By, Why string
	// Sealed reports whether Seal has stored the sums of the grants. Archived reports whether the grants are in an
	// archive file; then they are, or will be, deleted from the ledger.
	Sealed, Archived bool
	// Based reports whether the bases of accounts include all grants of the sealed campaign.
	Based bool
	// Places is the number of shards that have packets of the campaign.
	Places int
	// Earlier has what Funded was before each top-up that is not dealt. Top-ups are dealt in their order, so the total in
	// Redis is Funded or one of these.
	Earlier []hongbao.Amount
	open    int64 // number of top-ups that are not dealt
}

// campaignRows is how many campaigns are read at once.
const campaignRows = 500

const totalsQuery = `SELECT c.id, c.spec, c.currency, c.funded, c.granted, c.refunded, c.grants,
	COALESCE((SELECT balance FROM account WHERE id = 'pool:' || c.id), 0),
	CASE WHEN r.campaign IS NULL THEN 0 ELSE 1 END, COALESCE(r.shard, 0), COALESCE(r.close_seq, 0),
	COALESCE(r.decided_by, ''), COALESCE(r.why, ''),
	CASE WHEN s.campaign IS NULL THEN 0 ELSE 1 END, CASE WHEN a.campaign IS NULL THEN 0 ELSE 1 END,
	COALESCE(s.based, 0),
	(SELECT COUNT(*) FROM generation AS g WHERE g.campaign = c.id AND g.state <> 'dealt')
	FROM campaign AS c LEFT JOIN refund AS r ON r.campaign = c.id LEFT JOIN seal AS s ON s.campaign = c.id
	LEFT JOIN archive AS a ON a.campaign = c.id`

func scanTotals(s db.Scan) (t Totals, err error) {
	var spec string
	var closed, shard, seq, sealed, archived, based int64
	err = s(&t.Campaign, &spec, &t.Currency, &t.Funded, &t.Granted, &t.Refunded, &t.Grants, &t.Pool, &closed, &shard,
		&seq, &t.By, &t.Why, &sealed, &archived, &based, &t.open)
	if err != nil {
		return t, err
	}
	var c hongbao.Campaign
	if err := json.Unmarshal([]byte(spec), &c); err != nil {
		return t, hongbao.Errorf(hongbao.ClassBroken, "the ledger's specification of campaign %s can't be read: %w",
			t.Campaign, err)
	}
	t.Codes, t.Closed, t.Sealed, t.Places = c.Codes != nil, closed == 1, sealed == 1, c.Places()
	t.Archived, t.Based = archived == 1, based == basedAll
	if t.Closed {
		t.Closes = []payment.Close{{Shard: int(shard), Seq: seq}}
	}
	return t, nil
}

// Totals returns the ledger's counters of a campaign; false if the ledger does not have it.
func (l *Ledger) Totals(ctx context.Context, campaign string) (Totals, bool, error) {
	t, found, err := tables.Ask("read the counts of campaign "+campaign+" in the ledger",
		totalsQuery+` WHERE c.id = $1`, []any{campaign}, scanTotals).One(ctx, l.tables)
	if err != nil || !found {
		return t, found, err
	}
	one := []Totals{t}
	err = l.addRows(ctx, one)
	return one[0], true, err
}

// addRows adds to campaigns what other tables have of them.
func (l *Ledger) addRows(ctx context.Context, list []Totals) error {
	if err := l.addCloses(ctx, list); err != nil {
		return err
	}
	for i := range list {
		t := &list[i]
		if t.open == 0 {
			continue
		}
		var err error
		t.Earlier, err = tables.Ask("read the top-ups of campaign "+t.Campaign+" that are not dealt",
			`SELECT expected FROM generation WHERE campaign = $1 AND state <> 'dealt' ORDER BY generation`, []any{t.Campaign},
			func(s db.Scan) (before hongbao.Amount, err error) { return before, s(&before) }).All(ctx, l.tables)
		if err != nil {
			return err
		}
	}
	return nil
}

// addCloses adds the closes of all places but the first to campaigns that are sorted by id. These rows and the refund's
// row never change, so they need not be read at one instant.
func (l *Ledger) addCloses(ctx context.Context, list []Totals) error {
	on := map[string]*Totals{}
	for i := range list {
		if t := &list[i]; t.Closed && t.Places > 1 {
			on[t.Campaign] = t
		}
	}
	if len(on) == 0 {
		return nil
	}
	rows, err := tables.PlaceCloses("read the closes that refunds are based on",
		`campaign >= $1 AND campaign <= $2 ORDER BY campaign, place`,
		list[0].Campaign, list[len(list)-1].Campaign).All(ctx, l.tables)
	for _, r := range rows {
		if t := on[r.Campaign]; t != nil {
			t.Closes = append(t.Closes, r.Close)
		}
	}
	return err
}

func totalsAfter(after string) tables.Query[Totals] {
	return tables.Ask(fmt.Sprintf("read the counts of the campaigns after %q in the ledger", after),
		totalsQuery+` WHERE c.id > $1 ORDER BY c.id LIMIT $2`, []any{after, int64(campaignRows)}, scanTotals)
}

// EachTotals calls fn with the totals of every campaign, in the order of the ids. It stops at the first error of fn,
// and returns it unchanged.
func (l *Ledger) EachTotals(ctx context.Context, fn func(*Totals) error) error {
	return eachTotals(func(after string) ([]Totals, error) {
		list, err := totalsAfter(after).All(ctx, l.tables)
		if err == nil {
			err = l.addRows(ctx, list)
		}
		return list, err
	}, fn)
}

// eachTotals calls page for the campaigns after an id until a page is not full, and fn for each campaign.
func eachTotals(page func(after string) ([]Totals, error), fn func(*Totals) error) error {
	for after := ""; ; {
		list, err := page(after)
		if err != nil {
			return err
		}
		for i := range list {
			after = list[i].Campaign
			if err := fn(&list[i]); err != nil {
				return err
			}
		}
		if len(list) < campaignRows {
			return nil
		}
	}
}
