package audit_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	ledgerGroup = "balance"
	topicGroup  = "kafka"
	packets     = 100
	total       = 5_000
)

// world is a deployment of two shards with campaigns a and b, and with a ledger and a topic in memory.
type world struct {
	rdb    redis.UniversalClient
	store  *store.Store
	ledger *memLedger
	topic  *memTopic
	plans  plans
	cfg    audit.Config
	places int // number of shards over which each campaign is dealt
}

// memLedger is a ledger in memory. It keeps every grant that it gets, duplicates too.
type memLedger struct {
	grants      map[string][]hongbao.Grant
	closed      map[string]stream.Entry // the closes of refunded campaigns
	quarantined []model.Quarantined
	problems    []books.Difference
	spoil       func(*books.Totals)
	sealed      map[string]map[int][]stream.SeqRange
}

func (l *memLedger) EachGrant(_ context.Context, id string, fn func(hongbao.Grant) error) error {
	for _, g := range l.grants[id] {
		if err := fn(g); err != nil {
			return err
		}
	}
	return nil
}

func (l *memLedger) EachTotals(_ context.Context, fn func(*books.Totals) error) error {
	for id, grants := range l.grants {
		e, closed := l.closed[id]
		c := books.Totals{Campaign: id, Funded: total, Grants: int64(len(grants)), Closed: closed}
		if closed {
			c.Closes = []payment.Close{{Shard: e.Shard, Seq: e.Seq}}
		}
		for _, g := range grants {
			c.Granted += g.Amount
		}
		c.Pool = c.Funded - c.Granted
		if c.Closed {
			c.Refunded, c.Pool = c.Pool, 0
		}
		if l.spoil != nil {
			l.spoil(&c)
		}
		if err := fn(&c); err != nil {
			return err
		}
	}
	return nil
}

func (l *memLedger) CheckConservation(context.Context) ([]books.Difference, error) {
	return l.problems, nil
}

func (l *memLedger) CheckEveryAccount(context.Context) ([]books.Difference, error) {
	return l.problems, nil
}

func (l *memLedger) CheckCredits(context.Context) ([]books.Difference, error) { return nil, nil }

func (l *memLedger) SealedSeqs(_ context.Context, id string) (map[int][]stream.SeqRange, error) {
	return l.sealed[id], nil
}

func (l *memLedger) EachQuarantined(_ context.Context, fn func(*model.Quarantined)) error {
	for i := range l.quarantined {
		fn(&l.quarantined[i])
	}
	return nil
}

type memTopic struct {
	grants []hongbao.Grant
	scan   audit.TopicScan
}

func (t *memTopic) Each(_ context.Context, bases []model.TopicBase, fn func(int, int64, hongbao.Grant) error) (
	audit.TopicScan, error) {
	t.scan.Next = slices.Repeat([]int64{int64(len(t.grants))}, 2)
	for i, g := range t.grants {
		if bases != nil && int64(i) < bases[g.Shard].First {
			continue
		}
		if err := fn(g.Shard, int64(i), g); err != nil {
			return t.scan, err
		}
	}
	return t.scan, nil
}

type plans map[string]*campaign.Plan

func (p plans) Amount(_ context.Context, id string, packet int64) (hongbao.Amount, bool, error) {
	plan, ok := p[id]
	switch {
	case !ok:
		return 0, false, fmt.Errorf("plan of %s: %w", id, ledger.ErrNoCampaign)
	case plan == nil:
		return 0, false, fmt.Errorf("no plan of %s", id)
	}
	a, ok := plan.Amount(packet)
	return a, ok, nil
}

// newWorld returns a world with both campaigns loaded and nothing granted.
func newWorld(t *testing.T) *world { return newWorldOn(t, 1) }

func newWorldOn(t *testing.T, places int) *world {
	t.Helper()
	st := storetest.Initialized(t, 2)
	w := &world{
		rdb: st.Redis(), store: st, topic: &memTopic{}, plans: plans{}, places: places,
		ledger: &memLedger{grants: map[string][]hongbao.Grant{}, closed: map[string]stream.Entry{}},
	}
	for _, k := range st.Shards() {
		for _, group := range []string{ledgerGroup, topicGroup} {
			_, err := k.Group(group).Create(t.Context())
			require.NoError(t, err)
		}
	}
	w.load(t, "a")
	w.load(t, "b")
	w.cfg = audit.Config{
		Store: st, Ledger: w.ledger, LedgerGroup: ledgerGroup, Topic: w.topic, TopicGroup: topicGroup,
		MaxListed: 50,
	}
	return w
}

func (w *world) load(t *testing.T, id string) {
	t.Helper()
	c := loaded.Rain(id, packets, total)
	c.Split, c.Shards = hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: total}, w.places
	plan, err := loaded.Seeded(t.Context(), w.store, c, campaign.NewSeed())
	require.NoError(t, err)
	w.plans[id] = plan
	w.ledger.grants[id] = nil
}

// keys returns the shard that is the campaign's home.
func (w *world) keys(id string) *store.Shard { return w.store.Home(id).Shard }

// other returns the shard that is the campaign's second place.
func (w *world) other(id string) *store.Shard { return w.store.Places(id, w.places)[1].Shard }

// placeOf returns the shard on which user i grabs: every fourth user grabs at the campaign's second place, if there is
// one.
func (w *world) placeOf(id string, i int) *store.Shard {
	if i%4 == 2 && w.places > 1 {
		return w.other(id)
	}
	return w.keys(id)
}

// grab grants packets to users first..first+n-1, ten users a call.
func (w *world) grab(t *testing.T, id string, first, n int) {
	t.Helper()
	for at := 0; at < n; at += 10 {
		users := map[*store.Shard][]string{}
		for i := first + at; i < first+min(at+10, n); i++ {
			k := w.placeOf(id, i)
			users[k] = append(users[k], fmt.Sprintf("%s/r%d", user(i), i))
		}
		for k, list := range users {
			storetest.Grab(t, k, id, list...)
		}
	}
}

func user(i int) string { return fmt.Sprintf("u%04d", i) }

// read delivers all new entries of a shard to a group, and returns them.
func (w *world) read(t *testing.T, shard int, group string) []stream.Entry {
	t.Helper()
	raw, err := w.store.Shard(shard).Group(group).ReadNew(t.Context(), "w1", 10_000, 0)
	require.NoError(t, err)
	var out []stream.Entry
	for _, r := range raw {
		e, err := stream.ParseEntry(shard, r.ID, r.Values)
		require.NoError(t, err)
		out = append(out, e)
	}
	return out
}

func (w *world) settle(t *testing.T) {
	w.bring(t, ledgerGroup, func(g hongbao.Grant) { w.ledger.grants[g.Campaign] = append(w.ledger.grants[g.Campaign], g) })
}

func (w *world) publish(t *testing.T) {
	w.bring(t, topicGroup, func(g hongbao.Grant) { w.topic.grants = append(w.topic.grants, g) })
}

func (w *world) bring(t *testing.T, group string, put func(hongbao.Grant)) {
	t.Helper()
	for i := range w.store.Len() {
		for _, e := range w.read(t, i, group) {
			for _, g := range e.Grants {
				put(g)
			}
			w.ack(t, i, group, &e)
		}
	}
}

func (w *world) ack(t *testing.T, shard int, group string, e *stream.Entry) {
	t.Helper()
	_, err := w.store.Shard(shard).Group(group).Ack(t.Context(),
		stream.OfCampaign("", stream.SeqRange{First: e.Seq, Last: e.Seq + e.Events() - 1}), []string{e.ID})
	require.NoError(t, err)
}

// busy returns a world in which 40 packets of a and 20 of b are granted, settled and published.
func busy(t *testing.T) *world { return busyOn(t, 1) }

func busyOn(t *testing.T, places int) *world {
	w := newWorldOn(t, places)
	w.grab(t, "a", 0, 30)
	w.grab(t, "b", 0, 20)
	w.grab(t, "a", 100, 10)
	w.settle(t)
	w.publish(t)
	return w
}

func (w *world) audit(t *testing.T, opts audit.Options) *model.AuditReport {
	t.Helper()
	r, err := audit.Run(t.Context(), w.cfg, opts)
	require.NoError(t, err)
	return r
}

func (w *world) receipt(t *testing.T, id, user string) string {
	t.Helper()
	text, err := w.rdb.HGet(t.Context(), w.keys(id).Keys.Receipts(id), user).Result()
	require.NoError(t, err)
	return text
}

func (w *world) settled(id, user string) *hongbao.Grant {
	return &w.ledger.grants[id][slices.IndexFunc(w.ledger.grants[id],
		func(g hongbao.Grant) bool { return g.User == user })]
}

func (w *world) published(id, user string) *hongbao.Grant {
	return &w.topic.grants[slices.IndexFunc(w.topic.grants,
		func(g hongbao.Grant) bool { return g.Campaign == id && g.User == user })]
}
