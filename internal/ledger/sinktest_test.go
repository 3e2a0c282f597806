package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/sink/sinktest"
)

// The Settler passes the suite of sinks on each database.
func TestSink(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(*testing.T) (*proxy.Proxy, Config){
		"sqlite":   func(t *testing.T) (*proxy.Proxy, Config) { return nil, sqliteConfig(t) },
		"postgres": behindProxy,
		"mariadb":  mariadbBehindProxy,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &settled{seqs: map[int]int64{}}
			s.proxy, s.config = connect(t)
			s.reader = open(t, s.config)
			s.Store = s.reader.tables.Store
			sinktest.Run(t, func(t testing.TB) sinktest.Subject {
				s.newCampaign(t)
				return sinktest.Subject{Open: s.open, Effects: s.effects, Aside: s.aside, Grants: s.grants, Poison: poison,
					Down: s.down, Lose: s.loss.Lose}
			})
			differences, err := books.Of(s.reader.tables).CheckConservation(t.Context())
			require.NoError(t, err)
			require.Empty(t, differences)
		})
	}
}

// settled is a database that can be down and lose single transactions. Handlers reach it by its Store.
type settled struct {
	db.Store
	config   Config
	proxy    *proxy.Proxy // nil for SQLite
	reader   *Ledger
	cases    int
	campaign string
	packet   int64         // the last one that was granted
	seqs     map[int]int64 // by shard: the last one
	loss     testkit.Loss  // of transactions

	mu     sync.Mutex
	isDown bool
}

const sinkPackets = 2_000

// newCampaign creates the campaign of a case.
func (s *settled) newCampaign(t testing.TB) {
	t.Helper()
	s.cases++
	s.campaign, s.packet = fmt.Sprintf("rain-%d", s.cases), 0
	_, err := s.reader.CreateCampaign(t.Context(), testCampaign(t, s.campaign, sinkPackets))
	require.NoError(t, err)
}

// open returns a settler that shares no memory with the earlier ones, but their connections.
func (s *settled) open(t testing.TB) hongbao.Handler {
	t.Helper()
	l := newLedger(s.config)
	l.tables.Store, l.tables.RefuseNewer = s, s.reader.tables.RefuseNewer
	h, err := NewSettler(SettlerConfig{Ledger: l, Log: zap.NewNop(),
		Plan: ledgertest.Plan(func(_ string, packet int64) (hongbao.Amount, bool, error) { return planned(packet), true, nil })})
	require.NoError(t, err)
	return h
}

// around runs a transaction, unless the database is down or the request is lost.
func (s *settled) around(run func() error) error {
	s.mu.Lock()
	isDown := s.isDown
	s.mu.Unlock()
	request, answer := s.loss.Step()
	if isDown || request {
		return hongbao.Outagef(hongbao.ClassTransient, "no connection")
	}
	err := run()
	if answer && err == nil {
		return hongbao.Outagef(hongbao.ClassUnknown, "the answer is lost")
	}
	return err
}

func (s *settled) Write(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) error {
	return s.around(func() error { return s.Store.Write(ctx, fn) })
}

func (s *settled) Read(ctx context.Context, fn func(db.Txn) error) error {
	return s.around(func() error { return s.Store.Read(ctx, fn) })
}

func (s *settled) down(_ testing.TB, down bool) {
	s.mu.Lock()
	s.isDown = down
	s.mu.Unlock()
	if down && s.proxy != nil {
		s.proxy.CutAll()
	}
}

// effects returns how often the users have the amounts of the grants. In this suite each user has one grant.
func (s *settled) effects(t testing.TB, grants []hongbao.Grant) []int {
	t.Helper()
	counts := make([]int, len(grants))
	testkit.EventuallyOK(t, 30*time.Second, func() error { // connections may have been cut
		var errs []error
		for i, g := range grants {
			has, _, err := s.reader.Balance(t.Context(), tables.UserAccount(g.User, testCurrency))
			counts[i] = int(has / planned(g.Packet))
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}, "the balances are read")
	return counts
}

// aside reports which grants are in quarantine.
func (s *settled) aside(t testing.TB, grants []hongbao.Grant) []bool {
	t.Helper()
	var list []model.Quarantined
	testkit.EventuallyOK(t, 30*time.Second, func() (err error) {
		list, err = s.reader.Quarantine(t.Context(), 0, 10_000)
		return err
	}, "the quarantine is read")
	is := map[string]bool{}
	for _, q := range list {
		is[q.Grant.EventID()+" "+q.Grant.User] = true
	}
	put := make([]bool, len(grants))
	for i := range grants {
		put[i] = is[grants[i].EventID()+" "+grants[i].User]
	}
	return put
}

func (s *settled) grants(t testing.TB, shard, n int) []hongbao.Grant {
	t.Helper()
	list := make([]hongbao.Grant, n)
	for i := range list {
		s.packet++
		s.seqs[shard]++
		list[i] = grant(s.campaign, s.packet)
		list[i].Shard, list[i].Seq = shard, s.seqs[shard]
		list[i].User = fmt.Sprintf("%s-%d", s.campaign, s.packet)
	}
	require.LessOrEqual(t, s.packet, int64(sinkPackets))
	return list
}

// poison makes a grant of an amount that is not planned.
func poison(_ testing.TB, g hongbao.Grant) hongbao.Grant {
	g.Amount++
	return g
}
