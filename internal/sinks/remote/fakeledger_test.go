package remote

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
)

// fakeLedger is a ledger in memory that behaves like package ledger's Settler.
type fakeLedger struct {
	mu     sync.Mutex
	grants map[string]hongbao.Grant // by event
	rows   map[string]*row          // pending, by reference
	calls  int
	fail   func(g *hongbao.Grant) error // if not nil, returns the error of recording a grant
	// unread is the error that Begin returns. If noted is set, Begin stores the grants although it returns unread.
	// unforgotten is the error that Forget returns without deleting anything.
	unread, unforgotten error
	noted               bool
}

// row is a row of the table pending.
type row struct {
	grant hongbao.Grant
	owner string
	batch int64
	since time.Time
	asked time.Time
}

func newBooks() *fakeLedger {
	return &fakeLedger{grants: map[string]hongbao.Grant{}, rows: map[string]*row{}}
}

func testKey(g *hongbao.Grant) string { return Key("prod", g.Campaign, g.Packet) }

func (b *fakeLedger) Begin(
	_ context.Context, call payment.CreditCall, batch hongbao.Batch,
) (held []payment.AlreadyInLedger, before []payment.Pending, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unread != nil && !b.noted {
		return nil, nil, b.unread
	}
	now := time.Now()
	for _, g := range batch.Grants {
		key := testKey(&g)
		if has := b.recorded(&g); has != nil {
			held = append(held, payment.AlreadyInLedger{Grant: *has})
			delete(b.rows, key)
			continue
		}
		r := b.rows[key]
		if r == nil {
			since := now
			if call.SinceGrant && g.Time.Before(now) {
				since = g.Time
			}
			b.rows[key] = &row{g, call.Owner, call.Batch, since, now}
			continue
		}
		p := payment.Pending{Grant: r.grant, Owner: r.owner, Batch: r.batch, Age: now.Sub(r.since), Idle: now.Sub(r.asked)}
		same := r.grant.User == g.User && r.grant.Seq == g.Seq && r.grant.Shard == g.Shard && r.grant.Amount == g.Amount
		if p.Taken = same && (r.owner == call.Owner || p.Idle >= call.OwnedFor); p.Taken {
			r.owner, r.batch, r.asked = call.Owner, call.BatchOf(&p), now
		}
		before = append(before, p)
	}
	if b.unread != nil {
		return nil, nil, b.unread
	}
	return held, before, nil
}

func (b *fakeLedger) recorded(g *hongbao.Grant) *hongbao.Grant {
	for _, has := range b.grants {
		if has.Campaign == g.Campaign && has.Packet == g.Packet {
			return &has
		}
	}
	return nil
}

func (b *fakeLedger) Forget(_ context.Context, batch int64, asked time.Time, grants []hongbao.Grant) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unforgotten != nil {
		return b.unforgotten
	}
	for _, g := range grants {
		if r := b.rows[testKey(&g)]; r != nil && r.batch == batch && (asked.IsZero() || r.asked.Equal(asked)) {
			delete(b.rows, testKey(&g))
		}
	}
	return nil
}

func (b *fakeLedger) Record(_ context.Context, batch hongbao.Batch) []error {
	grants := batch.Grants
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	errs := make([]error, len(grants))
	for i, g := range grants {
		if b.fail != nil {
			errs[i] = b.fail(&g)
		}
		if errs[i] == nil {
			b.grants[g.EventID()] = g
			delete(b.rows, testKey(&g))
		}
	}
	return errs
}

func (b *fakeLedger) Pending(_ context.Context, idle time.Duration, after hongbao.Grant,
	limit int) (list []payment.Pending, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rows {
		if p := (payment.Pending{Grant: r.grant, Owner: r.owner, Batch: r.batch, Asked: r.asked, Age: time.Since(r.since),
			Idle: time.Since(r.asked)}); p.Idle >= idle &&
			r.grant.Packet > after.Packet {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b payment.Pending) int { return cmp.Compare(a.Grant.Packet, b.Grant.Packet) })
	return list[:min(len(list), limit)], b.unread
}

// left returns the number of pending credits.
func (b *fakeLedger) left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rows)
}

// ages makes all rows older and returns their number.
func (b *fakeLedger) ages(by time.Duration) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rows {
		r.since, r.asked = r.since.Add(-by), r.asked.Add(-by)
	}
	return len(b.rows)
}

// died makes all rows older than ClaimTime, as if their owners had died, so that other workers may take them over.
func (b *fakeLedger) died() { b.ages(testClaimTime) }

func (b *fakeLedger) fails(fail func(*hongbao.Grant) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = fail
}

// has checks that exactly these grants are recorded in the ledger.
func (b *fakeLedger) has(t *testing.T, grants []hongbao.Grant) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Len(t, b.grants, len(grants))
	for _, g := range grants {
		require.Equal(t, g, b.grants[g.EventID()])
	}
}

func ledgerDown(*hongbao.Grant) error {
	return hongbao.Outagef(hongbao.ClassTransient, "the ledger is down")
}

// kinds configures a Handler for each kind of remote.
var kinds = map[string]func(*Config){
	"idempotent": repeats, "queryable": queryable, "neither": neither, "batches": func(c *Config) { c.BatchCredits = 7 },
}
