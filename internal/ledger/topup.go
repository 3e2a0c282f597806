package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Reasons why a top-up is refused. ErrFundedOtherwise and ErrOrderUsed are Conflicts, ErrTopUpOpen is Transient,
// ErrNoTopUp is Permanent.
var (
	ErrFundedOtherwise = errors.New("the campaign is funded with another total")
	ErrOrderUsed       = errors.New("the order's id belongs to another top-up")
	ErrTopUpOpen       = errors.New("a top-up of the campaign is not dealt yet")
	ErrNoTopUp         = errors.New("nothing can be added to the campaign")
)

// maxGenerations is how many generations the table allows for a campaign. The packets of the specification are
// generation 1.
const maxGenerations = 64

// TopUp is an order to add packets to a campaign, as a new generation with its own draw.
type TopUp struct {
	Campaign string
	// ID is chosen by the caller. A repeated order with the same ID changes nothing.
	ID string
	// Expect is the campaign's funding before the top-up. It proves that the caller knows the current state.
	Expect hongbao.Amount
	// Generation must be the campaign's next one: 2 for the first top-up.
	Generation int
	Packets    int64
	Total      hongbao.Amount
	Split      hongbao.Split
	// Seed is secret until the campaign's seed is revealed.
	Seed [32]byte `json:"-"`
	// Hash is the plan's hash, which is published at once.
	Hash string
	stream.Decision
}

// String leaves out the seed.
func (o TopUp) String() string {
	return fmt.Sprintf("generation %d of campaign %s, plan %s", o.Generation, o.Campaign, o.Hash)
}

// GoString leaves out the seed.
func (o TopUp) GoString() string { return o.String() }

// StoredTopUp is a top-up as the ledger has it.
type StoredTopUp struct {
	TopUp
	// First is the number of the top-up's first packet.
	First   int64
	Created time.Time
	// Dealt is when all packets of the top-up were in Redis; zero before that.
	Dealt time.Time
}

func (o *TopUp) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := hongbao.CheckCampaignID(o.Campaign); err != nil {
		bad("campaign: %w", err)
	}
	if err := hongbao.CheckID(o.ID); err != nil {
		bad("the order's id: %w", err)
	}
	if o.Expect < 0 || o.Expect > hongbao.MaxAmount {
		bad("the expected total is %d: want 0 to %d", o.Expect, hongbao.MaxAmount)
	}
	errs = append(errs, checkPlan(o.Packets, o.Total, o.Hash, o.Seed)...)
	if err := o.Decision.Check(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "top up campaign %.80q: %w", o.Campaign, errors.Join(errs...))
}

// TopUp adds packets to a campaign and their money to its pool, in one transaction, and returns the stored top-up. A
// repeated order changes nothing and returns the stored seed and hash. If the campaign's funding is not what the order
// expects, or if the order's ID belongs to another order, the error is a Conflict. While the last top-up is not dealt,
// the error is Transient. Once the campaign is refunded or its close has begun, the error is Permanent.
func (l *Ledger) TopUp(ctx context.Context, o TopUp) (stored StoredTopUp, err error) {
	if err := o.check(); err != nil {
		return StoredTopUp{}, err
	}
	err = l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		c, list, err := lockWithTopUps(ctx, t, o.Campaign)
		if err != nil {
			return nil, err
		}
		for i := range list {
			if list[i].ID == o.ID {
				stored = list[i]
				return nil, o.same(&stored)
			}
		}
		if err := o.Allowed(&c, list); err != nil {
			return nil, err
		}
		stored = StoredTopUp{TopUp: o, First: c.Packets + 1, Created: time.Now().UTC().Truncate(time.Millisecond)}
		return stored.post(&c.Spec)
	})
	if err != nil {
		return StoredTopUp{}, fmt.Errorf("top up campaign %s: %w", o.Campaign, err)
	}
	return stored, nil
}

// lockWithTopUps is like lockCampaign, but also returns the campaign's top-ups.
func lockWithTopUps(ctx context.Context, t db.Txn, id string) (c StoredCampaign, list []StoredTopUp, err error) {
	if c, err = lockCampaign(ctx, t, id); err == nil {
		list, err = topUpsOf(id).In(ctx, t)
	}
	return c, list, err
}

// same returns an error if the order differs from the stored order with its ID.
func (o *TopUp) same(has *StoredTopUp) error {
	mine, err := json.Marshal(o.Split)
	if err != nil {
		return err
	}
	its, err := json.Marshal(has.Split)
	if err != nil {
		return err
	}
	if o.Packets == has.Packets && o.Total == has.Total && o.Expect == has.Expect && string(mine) == string(its) {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassConflict, "%w: order %.140q added %d packets and %d minor units to a total of "+
		"%d; a new top-up needs a new id", ErrOrderUsed, o.ID, has.Packets, has.Total, has.Expect)
}

// Allowed returns an error if the state of the campaign and its top-ups does not allow the order.
func (o *TopUp) Allowed(c *StoredCampaign, list []StoredTopUp) error {
	next := len(list) + 2
	switch {
	case c.State == model.MoneyRefunded:
		return hongbao.Errorf(hongbao.ClassPermanent, "%w: it is refunded; create one with another id", ErrNoTopUp)
	case !c.Closing.IsZero():
		return hongbao.Errorf(hongbao.ClassPermanent, "%w: it is closed, or a close has begun; create one with another id",
			ErrNoTopUp)
	case c.Spec.Codes != nil:
		return hongbao.Errorf(hongbao.ClassPermanent, "%w: its packets have codes, which are stored when it is created; "+
			"create another campaign for more", ErrNoTopUp)
	case o.Expect != c.Funded:
		return hongbao.Errorf(hongbao.ClassConflict, "%w: it is %d minor units now, and the order expects %d; nothing was "+
			"changed", ErrFundedOtherwise, c.Funded, o.Expect)
	case len(list) > 0 && list[len(list)-1].Dealt.IsZero():
		return hongbao.Errorf(hongbao.ClassTransient, "%w: generation %d; a worker finishes it", ErrTopUpOpen, next-1)
	case next > maxGenerations:
		return hongbao.Errorf(hongbao.ClassPermanent, "%w: it has had %d top-ups, and no more are allowed", ErrNoTopUp,
			len(list))
	case c.Packets+o.Packets > hongbao.MaxPackets || c.Funded+o.Total > hongbao.MaxAmount:
		return hongbao.Errorf(hongbao.ClassPermanent, "%w: it would have %d packets and %d minor units, and at most %d "+
			"and %d are allowed", ErrNoTopUp, c.Packets+o.Packets, c.Funded+o.Total, hongbao.MaxPackets, hongbao.MaxAmount)
	case o.Generation != next:
		return hongbao.Errorf(hongbao.ClassTransient, "its next generation is %d, not %d: another top-up was faster; run "+
			"it again", next, o.Generation)
	}
	return nil
}

// post returns the statements that move the money and write the row.
func (s *StoredTopUp) post(spec *hongbao.Campaign) ([]db.Stmt, error) {
	split, err := json.Marshal(s.Split)
	if err != nil {
		return nil, err
	}
	sponsor, pool := tables.SponsorAccount(spec.Sponsor, spec.Currency), tables.PoolAccount(spec.ID)
	total, now := int64(s.Total), s.Created.UnixMilli()
	return []db.Stmt{
		{SQL: moveMoney, Args: []any{pool, total}},
		{SQL: `UPDATE campaign SET packets = packets + $2, funded = funded + $3 WHERE id = $1`,
			Args: []any{spec.ID, s.Packets, total}},
		{SQL: `INSERT INTO generation (campaign, generation, order_id, expected, first_packet, packets, total, split, seed,
			plan_hash, state, decided_by, why, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'announced', $11, $12, $13)`,
			Args: []any{spec.ID, int64(s.Generation), s.ID, int64(s.Expect), s.First, s.Packets, total, string(split),
				s.Seed[:], s.Hash, s.By, s.Why, now}},
		{SQL: insertTransfer, Args: []any{fmt.Sprintf("funding:%s:%d", spec.ID, s.Generation), "funding", spec.ID, sponsor,
			pool, total, int64(0), int64(0), now}},
		{SQL: moveMoney, Args: []any{sponsor, -total}},
	}, nil
}

const topUpQuery = `SELECT campaign, generation, order_id, expected, first_packet, packets, total, split, seed,
	plan_hash, decided_by, why, created_at, dealt_at FROM generation`

func scanTopUp(s db.Scan) (o StoredTopUp, err error) {
	var generation, created, dealt int64
	var split string
	var seed []byte
	if err := s(&o.Campaign, &generation, &o.ID, &o.Expect, &o.First, &o.Packets, &o.Total, &split, &seed, &o.Hash, &o.By,
		&o.Why, &created, &dealt); err != nil {
		return o, err
	}
	o.Generation, o.Created, o.Dealt = int(generation), tables.At(created), tables.At(dealt)
	copy(o.Seed[:], seed)
	if err := json.Unmarshal([]byte(split), &o.Split); err != nil {
		return o, hongbao.Errorf(hongbao.ClassBroken, "the ledger's split of generation %d of campaign %s can't be read: %w",
			generation, o.Campaign, err)
	}
	return o, nil
}

func topUpsOf(campaign string) tables.Query[StoredTopUp] {
	return tables.Ask("read the top-ups of campaign "+campaign,
		topUpQuery+` WHERE campaign = $1 ORDER BY generation`, []any{campaign}, scanTopUp)
}

// openTopUps selects top-ups that are not dealt yet, of campaigns that are not refunded.
const openTopUps = `state = 'announced' AND
		NOT EXISTS (SELECT 1 FROM campaign AS c WHERE c.id = generation.campaign AND c.state = 'refunded')`

// OpenTopUps lists the top-ups that are not dealt yet, of campaigns that are not refunded.
func (l *Ledger) OpenTopUps(ctx context.Context) ([]StoredTopUp, error) {
	return tables.Ask("look for top-ups that are not dealt", topUpQuery+` WHERE `+openTopUps+`
		ORDER BY created_at, campaign`, nil, scanTopUp).All(ctx, l.tables)
}

// Backlog counts tasks, and has the age of the oldest one; 0 if there is none.
type Backlog struct {
	Count  int64
	Oldest time.Duration
}

// Unfinished counts what waits for a worker or a person.
type Unfinished struct {
	// TopUps are top-ups that are not in Redis yet. Credits are pending credits. Only workers can finish both.
	TopUps, Credits Backlog
	// Paused is the number of campaigns that workers have paused, and that no person has resumed.
	Paused int64
}

// Unfinished counts the unfinished work. It also alarms if the server has fallen back to asynchronous replication.
func (l *Ledger) Unfinished(ctx context.Context) (Unfinished, error) {
	age := func(column string) string { return `COALESCE(MAX(` + l.tables.Dialect.Now + ` - ` + column + `), 0)` }
	one, _, err := tables.Ask("count what waits for a worker or a person", `SELECT t.n, t.age, p.n, p.age,
		(SELECT COUNT(*) FROM control WHERE kind = $1 AND setting = 'paused' AND decided_by = $2
			AND campaign IN (SELECT id FROM campaign WHERE state = 'funded'))
		FROM (SELECT COUNT(*) AS n, `+age("created_at")+` AS age FROM generation WHERE `+openTopUps+`) AS t,
			(SELECT COUNT(*) AS n, `+age("since")+` AS age FROM pending) AS p`,
		[]any{string(stream.ControlCampaign), stream.ByWorker}, func(s db.Scan) (u Unfinished, err error) {
			var topUp, credit int64
			err = s(&u.TopUps.Count, &topUp, &u.Credits.Count, &credit, &u.Paused)
			u.TopUps.Oldest = max(time.Duration(topUp)*time.Millisecond, 0)
			u.Credits.Oldest = max(time.Duration(credit)*time.Millisecond, 0)
			return u, err
		}).One(ctx, l.tables)
	if err == nil {
		l.alarmAsynchronous(ctx)
	}
	return one, err
}

// TopUpDealt records that all packets of a top-up are in Redis. epochs are the shards' epochs from before the caller
// found the packets in Redis. If one has changed, Redis may have lost the packets since: the error is Transient, and
// nothing is recorded. A repeated call changes nothing.
func (l *Ledger) TopUpDealt(ctx context.Context, campaign string, generation int, epochs []int64) error {
	err := l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		now, err := epochsOf(l.tables.Dialect.Share).In(ctx, t) // an opening waits for this transaction
		if err == nil && !slices.Equal(now, epochs) {
			err = hongbao.Errorf(hongbao.ClassTransient, "a shard was opened meanwhile and may have lost packets; a worker deals "+
				"what is lost, and records it")
		}
		if err != nil {
			return nil, err
		}
		return []db.Stmt{{SQL: `UPDATE generation SET state = 'dealt', dealt_at = $3 WHERE campaign = $1 AND generation = $2
			AND state = 'announced'`, Args: []any{campaign, int64(generation), time.Now().UnixMilli()}}}, nil
	})
	if err != nil {
		return fmt.Errorf("record that generation %d of campaign %s is dealt: %w", generation, campaign, err)
	}
	return nil
}

// TopUpsLost records that Redis has lost a campaign's packets of all generations above dealt. They must be dealt again.
// A repeated call changes nothing.
func (l *Ledger) TopUpsLost(ctx context.Context, campaign string, dealt int64) error {
	err := l.tables.Write(ctx, func(context.Context, db.Txn) ([]db.Stmt, error) {
		return []db.Stmt{{SQL: `UPDATE generation SET state = 'announced', dealt_at = 0
			WHERE campaign = $1 AND generation > $2 AND state = 'dealt'`, Args: []any{campaign, dealt}}}, nil
	})
	if err != nil {
		return fmt.Errorf("record that Redis has lost the packets of campaign %s after generation %d: %w", campaign, dealt,
			err)
	}
	return nil
}

// BeginClose records that a campaign may be closed in Redis from now on, so no top-up is accepted any more. While a
// top-up is not dealt, the error is ErrTopUpOpen: deal it first. A repeated call changes nothing. If the ledger does
// not have the campaign, BeginClose does nothing.
func (l *Ledger) BeginClose(ctx context.Context, campaign string) error {
	return l.beginClose(ctx, campaign, false)
}

// BeginCloseOfLost is BeginClose for a campaign of which Redis has lost data. A top-up that is not dealt by then will
// never be dealt, and its money is refunded with the rest.
func (l *Ledger) BeginCloseOfLost(ctx context.Context, campaign string) error {
	return l.beginClose(ctx, campaign, true)
}

func (l *Ledger) beginClose(ctx context.Context, campaign string, lost bool) error {
	err := l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		c, list, err := lockWithTopUps(ctx, t, campaign)
		switch {
		case errors.Is(err, ErrNoCampaign):
			return nil, nil
		case err != nil || !c.Closing.IsZero() || c.State == model.MoneyRefunded:
			return nil, err
		case !lost && len(list) > 0 && list[len(list)-1].Dealt.IsZero():
			return nil, hongbao.Errorf(hongbao.ClassTransient, "%w: generation %d", ErrTopUpOpen, len(list)+1)
		}
		return []db.Stmt{{SQL: `UPDATE campaign SET closing_at = $2 WHERE id = $1`,
			Args: []any{campaign, time.Now().UnixMilli()}}}, nil
	})
	if err != nil {
		return fmt.Errorf("begin the close of campaign %s: %w", campaign, err)
	}
	return nil
}

// CampaignWithTopUps returns a campaign and its top-ups, in the order of the generations, read in one snapshot. If the
// ledger does not have the campaign, the error is ErrNoCampaign.
func (l *Ledger) CampaignWithTopUps(ctx context.Context, id string) (c StoredCampaign, list []StoredTopUp, err error) {
	list, err = tables.Snapshot(ctx, l.tables, "read campaign "+id+" and its top-ups",
		func(ctx context.Context, t db.Txn) (list []StoredTopUp, err error) {
			if c, err = mustRead(ctx, t, id); err != nil {
				return nil, err
			}
			return topUpsOf(id).In(ctx, t)
		})
	return c, list, err
}
