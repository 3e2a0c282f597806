package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	sqlitedb "github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/sinks/remote"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// settlementImpl is an implementation of settlement: the ledger on one of its databases, or a remote balance system.
// The suite in settling_cases_test.go runs on each. Package ledger tests what only the ledger has.
type settlementImpl interface {
	// create creates a campaign with enough money for all of its packets.
	create(t *testing.T, id, currency string, packets int64)
	// worker returns another handler, as if in another process.
	worker(t *testing.T) hongbao.Handler
	// aside returns the packets of those grants that wait for a person. errs are the errors that a worker returned.
	aside(t *testing.T, grants []hongbao.Grant, errs []error) []int64
	// statement returns the credits of a user, and balance their sum.
	statement(t *testing.T, user, currency string) []hongbao.Amount
	balance(t *testing.T, user, currency string) hongbao.Amount
	// agrees checks that the accounts are consistent.
	agrees(t *testing.T)
}

// planned has the planned amounts of all packets, and the currencies of all campaigns.
type planned struct {
	mu     sync.Mutex
	forged map[string]hongbao.Amount // by campaign and packet
	down   bool
	money  map[string]string // currencies by campaign
}

func planKey(campaign string, packet int64) string { return fmt.Sprintf("%s %d", campaign, packet) }

func amountOf(packet int64) hongbao.Amount { return hongbao.Amount(100 + packet%7) }

func (p *planned) Amount(_ context.Context, id string, packet int64) (hongbao.Amount, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return 0, false, hongbao.Outagef(hongbao.ClassTransient, "the plans can't be read")
	}
	if a, ok := p.forged[planKey(id, packet)]; ok {
		return a, true, nil
	}
	_, ok := p.money[id]
	return amountOf(packet), ok && packet <= 1_000, nil
}

func (p *planned) Currency(_ context.Context, id string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.money[id], nil
}

func (p *planned) set(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
}

// inLedger is the settlement in the ledger.
type inLedger struct {
	plan      *planned
	ledger    *ledger.Ledger
	campaigns []string
}

func newLedger(t *testing.T, plan *planned, tables db.Database) *inLedger {
	t.Helper()
	l := newDatabase(t, ledger.Config{Database: tables, Retries: 10, Limits: db.Limits{Conns: 8,
		ConnectTimeout: 5 * time.Second, LockTimeout: 10 * time.Second, Timeout: 30 * time.Second}})
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return &inLedger{plan: plan, ledger: l}
}

func (l *inLedger) create(t *testing.T, id, currency string, packets int64) {
	t.Helper()
	c := spec(id, packets, 200*hongbao.Amount(packets))
	c.Currency = currency
	if currency == "" {
		c.Kind, c.Total, c.Split = hongbao.KindCoupon, 0, hongbao.Split{}
	}
	_, err := l.ledger.CreateCampaign(t.Context(), rowOf(c))
	require.NoError(t, err)
	l.plan.set(func() { l.plan.money[id] = currency })
	l.campaigns = append(l.campaigns, id)
}

func (l *inLedger) worker(t *testing.T) hongbao.Handler { return l.settler(t) }

func (l *inLedger) settler(t *testing.T) *ledger.Settler {
	t.Helper()
	s, err := ledger.NewSettler(ledger.SettlerConfig{Ledger: l.ledger, Plan: l.plan, Log: zap.NewNop()})
	require.NoError(t, err)
	return s
}

func (l *inLedger) aside(t *testing.T, grants []hongbao.Grant, errs []error) []int64 {
	t.Helper()
	require.Nil(t, errs, "quarantine ends a delivery")
	list, err := l.ledger.Quarantine(t.Context(), 0, 10_000)
	require.NoError(t, err)
	var packets []int64
	for i := range list {
		list[i].Grant.Currency = "" // clear the currency, which the ledger has added
	}
	for _, g := range grants {
		if slices.ContainsFunc(list, func(q model.Quarantined) bool { return q.Grant == g }) {
			packets = append(packets, g.Packet)
		}
	}
	return packets
}

func (l *inLedger) statement(t *testing.T, user, currency string) (list []hongbao.Amount) {
	t.Helper()
	for _, id := range l.campaigns {
		if l.plan.money[id] != currency {
			continue
		}
		require.NoError(t, l.ledger.EachGrant(t.Context(), id, func(g hongbao.Grant) error {
			if g.User == user {
				list = append(list, g.Amount)
			}
			return nil
		}))
	}
	return list
}

func (l *inLedger) balance(t *testing.T, user, currency string) hongbao.Amount {
	t.Helper()
	b, _, err := l.ledger.Balance(t.Context(), tables.UserAccount(user, currency))
	require.NoError(t, err)
	return b
}

func (l *inLedger) agrees(t *testing.T) {
	t.Helper()
	differences, err := books.Of(l.ledger.Tables()).CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
}

// atRemote is the settlement at a balance server over HTTP.
type atRemote struct {
	*bundle
	*inLedger // the ledger that records the credits
	url       string
	bank      *ledger.Ledger
	batch     int
	workers   int
}

func (r *atRemote) worker(t *testing.T) hongbao.Handler {
	t.Helper()
	r.workers++
	h, err := remote.New(remote.Config{
		URL: r.url, Token: balanceToken, Deployment: "test", ConnectTimeout: 2 * time.Second, HeaderTimeout: 8 * time.Second,
		Timeout:     9 * time.Second,
		IdleTimeout: 5 * time.Second, BodyBytes: 4096, Concurrency: 16, BatchCredits: r.batch, Retention: 24 * time.Hour,
		Margin: time.Minute, Queryable: true,
		ClaimTime: 20 * time.Second, Repeats: 3, Pause: 5 * time.Millisecond, BreakerFailures: 1000,
		BreakerOpen: 50 * time.Millisecond, MaxRetryAfter: time.Second,
	}, r.plan, r.settler(t))
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

func (r *atRemote) aside(t *testing.T, grants []hongbao.Grant, errs []error) []int64 {
	t.Helper()
	var packets []int64
	for i, err := range errs {
		if err != nil {
			require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "%v", err)
			require.ErrorIs(t, err, remote.ErrContradiction)
			packets = append(packets, grants[i].Packet)
		}
	}
	return packets
}

// get sends a query to the balance server, and decodes the answer.
func (r *atRemote) get(t *testing.T, path string, answer any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+path, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+accountText)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", path, body)
	require.NoError(t, json.Unmarshal(body, answer))
}

func (r *atRemote) statement(t *testing.T, user, currency string) (list []hongbao.Amount) {
	t.Helper()
	for after := int64(0); ; {
		var page struct {
			Credits []struct{ Amount hongbao.Amount }
			Next    int64
		}
		r.get(t, fmt.Sprintf("/v1/accounts/%s/statement?currency=%s&limit=50&after=%d", url.PathEscape(user), currency,
			after), &page)
		for _, c := range page.Credits {
			list = append(list, c.Amount)
		}
		if after = page.Next; len(page.Credits) == 0 {
			return list
		}
	}
}

func (r *atRemote) balance(t *testing.T, user, currency string) hongbao.Amount {
	t.Helper()
	var account struct {
		Balances []struct {
			Currency string
			Balance  hongbao.Amount
		}
	}
	r.get(t, "/v1/accounts/"+url.PathEscape(user), &account)
	for _, b := range account.Balances {
		if b.Currency == currency {
			return b.Balance
		}
	}
	return 0
}

func (r *atRemote) agrees(t *testing.T) {
	t.Helper()
	r.inLedger.agrees(t)
	differences, err := books.Of(r.bank.Tables()).CheckCredits(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
}

// TestSettling runs the suite on each implementation of settlementImpl.
func TestSettling(t *testing.T) {
	t.Parallel()
	atBank := func(batch int) func(*testing.T, *planned) settlementImpl {
		return func(t *testing.T, plan *planned) settlementImpl {
			r := &atRemote{bundle: setup(t, 2).farAlong(t), batch: batch, inLedger: newLedger(t, plan,
				sqlitedb.Database{Path: filepath.Join(t.TempDir(), "ledger.db")})}
			r.url, r.bank = remoteBalance(t)
			return r
		}
	}
	for place, open := range map[string]func(*testing.T, *planned) settlementImpl{
		"SQLite": func(t *testing.T, plan *planned) settlementImpl {
			return newLedger(t, plan, sqlitedb.Database{Path: filepath.Join(t.TempDir(), "ledger.db")})
		},
		"PostgreSQL": func(t *testing.T, plan *planned) settlementImpl {
			return newLedger(t, plan, postgres.Database{DSN: testkit.Postgres(t),
				UnsafeAllow: []string{"fsync", "full_page_writes"}})
		},
		"MariaDB": func(t *testing.T, plan *planned) settlementImpl {
			return newLedger(t, plan, mysql.Database{DSN: testkit.MariaDB(t),
				UnsafeAllow: []string{"innodb_doublewrite"}})
		},
		"remote balance":             atBank(0),
		"remote balance, in batches": atBank(40),
	} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			for name, run := range settlingCases {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					plan := &planned{forged: map[string]hongbao.Amount{}, money: map[string]string{}}
					b := &settlementUnderTest{settlementImpl: open(t, plan), plan: plan}
					b.first = b.worker(t)
					run(t, b)
				})
			}
		})
	}
}
