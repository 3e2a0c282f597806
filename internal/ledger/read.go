package ledger

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// pageRows is how many grants are read at once. Between pages a long iteration holds neither a connection nor a
// snapshot.
const pageRows = 2_000

// selectGrants reads the columns that scanGrantCode scans. The code is empty if the campaign has none.
const selectGrants = `SELECT ` + tables.GrantColumns + `, batch,
	COALESCE((SELECT code FROM code WHERE code.campaign = grants.campaign AND code.packet = grants.packet), '')
	FROM grants `

func scanGrantCode(s db.Scan) (hongbao.Grant, error) {
	var code string
	g, err := tables.ScanGrant(func(dest ...any) error { return s(append(dest, &code)...) })
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

// ErrArchived says that a campaign's grants are in a file, and no longer in the ledger. Errors that wrap it are
// Permanent.
var ErrArchived = tables.ErrArchived

// refuseArchived returns an error if a campaign has an archive, because its grants may be deleted by now. Call it after
// reading the grants. Grants are deleted only after the archive is recorded, so without an archive the read was
// complete.
func (l *Ledger) refuseArchived(ctx context.Context, campaign string) error {
	a, found, err := tables.ArchiveOf(campaign).One(ctx, l.tables)
	if err != nil || !found {
		return err
	}
	return a.Refusal()
}
