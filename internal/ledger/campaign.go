package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// ErrCampaignExists says that the ledger has a campaign with this id and another specification, plan hash or seed.
// Errors that wrap it are Conflicts.
var ErrCampaignExists = errors.New("campaign_exists_with_other_spec")

// Campaign is what the ledger must know before the first grab.
type Campaign struct {
	Spec hongbao.Campaign
	// Canonical is the specification as JSON: exactly the bytes that the plan's hash covers.
	Canonical []byte
	// Seed determines every packet's amount. It is secret until it is revealed after the refund.
	Seed [32]byte `json:"-"`
	// Hash is the plan's hash, which is published before the start.
	Hash string
}

// String leaves out the seed.
func (c Campaign) String() string { return "campaign " + c.Spec.ID + ", plan " + c.Hash }

// GoString leaves out the seed.
func (c Campaign) GoString() string { return c.String() }

// StoredCampaign is a campaign as the ledger has it.
type StoredCampaign struct {
	Campaign
	State                     model.MoneyState
	Funded, Granted, Refunded hongbao.Amount
	// Packets counts the packets of the specification and of every top-up. Grants counts those that were granted.
	Packets, Grants int64
	Created         time.Time
	// Loading is when loading into Redis began. While it is zero the campaign may be cancelled.
	Loading time.Time
	// Closing is when closing first began. While it is zero the campaign may be topped up.
	Closing time.Time
	// Revealed is when the seed was published; zero while it is secret.
	Revealed time.Time
}

func (c *Campaign) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	s := &c.Spec
	if err := hongbao.CheckCampaignID(s.ID); err != nil {
		bad("id: %w", err)
	}
	if err := hongbao.CheckID(s.Sponsor); err != nil {
		bad("sponsor: %w", err)
	}
	errs = append(errs, checkPlan(s.Packets, s.Total, c.Hash, c.Seed)...)
	var has hongbao.Campaign
	if err := json.Unmarshal(c.Canonical, &has); err != nil {
		bad("the canonical form is not JSON: %w", err)
	} else if has.ID != s.ID || has.Total != s.Total || has.Packets != s.Packets || has.Currency != s.Currency ||
		has.Sponsor != s.Sponsor || has.Kind != s.Kind {
		bad("the canonical form does not match the specification")
	}
	if len(errs) == 0 {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "campaign %.80q can't be put into the ledger: %w", s.ID,
		errors.Join(errs...))
}

// checkPlan checks the fields that a specification and a top-up have in common.
func checkPlan(packets int64, total hongbao.Amount, hash string, seed [32]byte) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if total < 0 || total > hongbao.MaxAmount {
		bad("the total is %d: want 0 to %d", total, hongbao.MaxAmount)
	}
	if packets < 1 || packets > hongbao.MaxPackets {
		bad("%d packets: want 1 to %d", packets, hongbao.MaxPackets)
	}
	if hash == "" {
		bad("the plan's hash is empty")
	}
	if seed == [32]byte{} {
		bad("the seed is all zeros: draw 32 random bytes")
	}
	return errs
}

// CreateCampaign stores a campaign and funds its pool from its sponsor's account, in one transaction. A repeated call
// returns the same result and moves no money. If the id exists with another specification, hash or seed, the error is
// ErrCampaignExists.
func (l *Ledger) CreateCampaign(ctx context.Context, c Campaign) (StoredCampaign, error) {
	if err := c.check(); err != nil {
		return StoredCampaign{}, err
	}
	var stored StoredCampaign
	err := l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		var found bool
		var err error
		if stored, found, err = campaignByID(c.Spec.ID).First(ctx, t); err != nil {
			return nil, err
		}
		if found {
			return nil, c.same(&stored)
		}
		now := time.Now().UnixMilli()
		if err := t.Run(ctx, c.insert(now)); err != nil {
			return nil, err
		}
		if stored, found, err = campaignByID(c.Spec.ID).First(ctx, t); err != nil || !found {
			return nil, errors.Join(err, mustExist(found, c.Spec.ID))
		}
		return l.fundPool(&c.Spec, now), nil
	})
	if err != nil {
		return StoredCampaign{}, fmt.Errorf("create campaign %s in the ledger: %w", c.Spec.ID, err)
	}
	return stored, nil
}

func mustExist(found bool, id string) error {
	if found {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassBroken, "campaign %s is in the ledger and can't be read: was a row deleted by "+
		"hand?", id)
}

// insert fails with db.ErrAgain if a concurrent call has created the campaign.
func (c *Campaign) insert(now int64) db.Stmt {
	s := &c.Spec
	return db.Stmt{SQL: `INSERT INTO campaign (id, spec, plan_hash, seed, kind, currency, packets, funded, state,
			created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		Args: []any{s.ID, string(c.Canonical), c.Hash, c.Seed[:], string(s.Kind), s.Currency, s.Packets,
			int64(s.Total), string(model.MoneyFunded), now}}
}

// fundPool returns the statements that move the campaign's total from the sponsor's account to the pool.
func (l *Ledger) fundPool(s *hongbao.Campaign, now int64) []db.Stmt {
	post := l.tables.Dialect.AddToAccount
	sponsor, pool := tables.SponsorAccount(s.Sponsor, s.Currency), tables.PoolAccount(s.ID)
	return []db.Stmt{
		{SQL: post, Args: []any{pool, "pool", s.Currency, int64(s.Total)}},
		{SQL: post, Args: []any{sponsor, "sponsor", s.Currency, -int64(s.Total)}},
		{SQL: insertTransfer, Args: []any{
			"funding:" + s.ID, "funding", s.ID, sponsor, pool, int64(s.Total), int64(0), int64(0), now}},
	}
}

const (
	moveMoney      = `UPDATE account SET balance = balance + $2 WHERE id = $1`
	insertTransfer = `INSERT INTO transfer (id, kind, campaign, debit, credit, amount, grants, batch, created_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
)

// same returns an error if the stored campaign differs from c. The error never shows the seeds.
func (c *Campaign) same(has *StoredCampaign) error {
	if bytes.Equal(c.Canonical, has.Canonical) && c.Hash == has.Hash && c.Seed == has.Seed {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassConflict, "%w: the ledger has it with plan %s, this call with plan %s; choose "+
		"another id",
		ErrCampaignExists, has.Hash, c.Hash)
}

const campaignColumns = `spec, plan_hash, seed, state, funded, granted, refunded, packets, grants, created_at,
	revealed_at, closing_at, loading_at`

func scanCampaign(s db.Scan) (StoredCampaign, error) {
	var c StoredCampaign
	var spec, state string
	var seed []byte
	var created, revealed, closing, loading int64
	if err := s(&spec, &c.Hash, &seed, &state, &c.Funded, &c.Granted, &c.Refunded, &c.Packets, &c.Grants, &created,
		&revealed, &closing, &loading); err != nil {
		return c, err
	}
	c.Canonical, c.State, c.Created = []byte(spec), model.MoneyState(state), tables.At(created)
	c.Revealed, c.Closing, c.Loading = tables.At(revealed), tables.At(closing), tables.At(loading)
	copy(c.Seed[:], seed)
	if err := json.Unmarshal(c.Canonical, &c.Spec); err != nil {
		return c, hongbao.Errorf(hongbao.ClassBroken, "the ledger's specification of a campaign can't be read: %w", err)
	}
	return c, nil
}

func campaignByID(id string) tables.Query[StoredCampaign] {
	return tables.Ask("read campaign "+id+" from the ledger",
		`SELECT `+campaignColumns+` FROM campaign WHERE id = $1`, []any{id}, scanCampaign)
}

// mustRead reads a campaign within a transaction. If the ledger does not have it, the error is ErrNoCampaign.
func mustRead(ctx context.Context, t db.Txn, id string) (StoredCampaign, error) {
	c, found, err := campaignByID(id).First(ctx, t)
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.ClassPermanent, "%w; check the id", ErrNoCampaign)
	}
	return c, err
}

// lockCampaign locks the rows of a campaign and its pool, then reads the campaign. Like every settler it locks the
// pool's row first, so no deadlock arises. The lock on the pool's row stops concurrent grants. The lock on the
// campaign's row stops new credit requests to a remote.
func lockCampaign(ctx context.Context, t db.Txn, id string) (StoredCampaign, error) {
	err := t.Run(ctx,
		db.Stmt{SQL: `UPDATE account SET balance = balance - 0 WHERE id = $1`, Args: []any{tables.PoolAccount(id)}},
		db.Stmt{SQL: `UPDATE campaign SET granted = granted WHERE id = $1`, Args: []any{id}})
	if err != nil {
		return StoredCampaign{}, err
	}
	return mustRead(ctx, t, id)
}

// Campaign returns a campaign; false if the ledger does not have it.
func (l *Ledger) Campaign(ctx context.Context, id string) (StoredCampaign, bool, error) {
	return campaignByID(id).One(ctx, l.tables)
}

// CampaignState returns the currency and the state of a campaign; false if the ledger does not have it. It reads no
// seed, so a server that only answers users needs no right to the seeds.
func (l *Ledger) CampaignState(ctx context.Context, id string) (currency string, state model.MoneyState, found bool,
	err error) {
	_, found, err = tables.Ask("read the state of campaign "+id+" from the ledger",
		`SELECT currency, state FROM campaign WHERE id = $1`, []any{id}, func(s db.Scan) (none struct{}, err error) {
			return none, s(&currency, &state)
		}).One(ctx, l.tables)
	return currency, state, found, err
}

// Unrefunded is a campaign that is not refunded.
type Unrefunded struct {
	Campaign string    `json:"campaign" doc:"The campaign's id."`
	Ends     time.Time `json:"ends" doc:"End of the campaign's window."`
}

// Unrefunded returns the campaigns that are not refunded, in the order in which their windows end. It reads every row
// of the table campaign.
func (l *Ledger) Unrefunded(ctx context.Context) ([]Unrefunded, error) {
	list, err := tables.Ask("list the campaigns that are not refunded",
		`SELECT spec FROM campaign WHERE state = $1 ORDER BY id`, []any{string(model.MoneyFunded)},
		func(s db.Scan) (u Unrefunded, err error) {
			var spec string
			if err = s(&spec); err == nil {
				var c hongbao.Campaign
				err = json.Unmarshal([]byte(spec), &c)
				u = Unrefunded{c.ID, c.To.UTC()}
			}
			return u, err
		}).All(ctx, l.tables)
	slices.SortStableFunc(list, func(a, b Unrefunded) int { return a.Ends.Compare(b.Ends) })
	return list, err
}

// EachCampaign iterates over the ledger's campaigns after an id, in the order of their ids. It stops at the first
// error.
func (l *Ledger) EachCampaign(ctx context.Context, after string) iter.Seq2[*StoredCampaign, error] {
	return l.eachCampaign(ctx, after, 500)
}

// eachCampaign is EachCampaign with page campaigns per query.
func (l *Ledger) eachCampaign(ctx context.Context, after string, page int) iter.Seq2[*StoredCampaign, error] {
	return func(yield func(*StoredCampaign, error) bool) {
		for {
			list, err := tables.Ask("list the ledger's campaigns",
				`SELECT `+campaignColumns+` FROM campaign WHERE id > $1 ORDER BY id LIMIT $2`,
				[]any{after, int64(page)}, scanCampaign).All(ctx, l.tables)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range list {
				if !yield(&list[i], nil) {
					return
				}
			}
			if len(list) < page {
				return
			}
			after = list[page-1].Spec.ID
		}
	}
}
