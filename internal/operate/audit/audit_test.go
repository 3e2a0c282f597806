package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
)

func TestAgrees(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.cfg.Plan = w.plans
	w.topic.scan.Foreign = 3
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.True(t, r.Quiet)
	require.Empty(t, r.Differences)
	require.Empty(t, r.LeftOut)
	n := r.Total
	require.EqualValues(t, 2*packets, n.Packets)
	require.EqualValues(t, 2*total, n.Funded)
	require.EqualValues(t, 60, n.Granted)
	require.EqualValues(t, 60, n.Settled)
	require.EqualValues(t, 60, n.Published)
	require.EqualValues(t, 3, n.Foreign)
	require.Zero(t, n.InFlight+n.Newer)
	require.Equal(t, n.Funded, n.GrantedAmount+n.LeftAmount)
	require.Equal(t, n.GrantedAmount, n.SettledAmount)
	require.Len(t, r.Campaigns, 2)
	require.EqualValues(t, 40, r.Campaigns[0].Granted)
	last := r.Shards[w.keys("a").Index()]
	require.Equal(t, map[string]int64{ledgerGroup: last.Seq, topicGroup: last.Seq}, last.Finished)
}

// Grants that a group has not finished are in flight: they are counted and not judged. Finished grants are judged.
func TestInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.grab(t, "a", 0, 30)
	w.publish(t)
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.False(t, r.Quiet)
	require.EqualValues(t, 30, r.Total.InFlight)
	require.EqualValues(t, 30, r.Total.Unsettled)
	require.Zero(t, r.Total.Unpublished)

	// Of three entries only the second is finished: its ten grants are judged.
	k := w.keys("a")
	entries := w.read(t, k.Index(), ledgerGroup)
	require.Len(t, entries, 3)
	w.ack(t, k.Index(), ledgerGroup, &entries[1])
	r = w.audit(t, audit.Options{})
	require.Equal(t, map[model.DifferenceKind]int64{audit.Lost: 10}, r.Found)
	require.EqualValues(t, 20, r.Total.InFlight)
}

func TestWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.grab(t, "a", 0, 30)
	w.publish(t)
	locked := &lockedSinks{memLedger: w.ledger, w: w}
	w.cfg.Ledger, w.cfg.Topic = locked, locked
	begun := time.Now()
	r := w.audit(t, audit.Options{Wait: 120 * time.Millisecond})
	require.False(t, r.Quiet)
	require.GreaterOrEqual(t, time.Since(begun), 120*time.Millisecond)

	done := make(chan *model.AuditReport)
	go func() {
		defer close(done)
		r, err := audit.Run(t.Context(), w.cfg, audit.Options{Wait: time.Minute})
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	locked.settle(t)
	r = <-done
	require.NotNil(t, r)
	require.True(t, r.Quiet)
	require.EqualValues(t, 30, r.Total.Settled)
	require.Zero(t, r.Total.InFlight)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := audit.Run(ctx, w.cfg, audit.Options{Wait: time.Minute})
	require.ErrorIs(t, err, context.Canceled)
}

// Audits run while grants are made, settled and published. None finds a difference, and the last one counts everything.
func TestLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	locked := &lockedSinks{memLedger: w.ledger, w: w}
	w.cfg.Ledger, w.cfg.Topic = locked, locked
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for at := 0; at < packets && ctx.Err() == nil; at++ {
			w.grab(t, "a", at, 1)
			w.grab(t, "b", at, 1)
			if at%3 == 0 {
				locked.settle(t)
			}
			if at%5 == 0 {
				locked.publish(t)
			}
		}
		cancel()
	})
	audits := 0
	for ; ctx.Err() == nil; audits++ {
		r := w.audit(t, audit.Options{})
		require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	}
	wg.Wait()
	require.Positive(t, audits)
	locked.settle(t)
	locked.publish(t)
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.EqualValues(t, 2*packets, r.Total.Settled)
	require.EqualValues(t, 2*packets, r.Total.Published)
}

// lockedSinks wraps a world's ledger and topic with a lock, for tests that write and audit at the same time.
type lockedSinks struct {
	*memLedger
	mu sync.Mutex
	w  *world
}

func (l *lockedSinks) settle(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.settle(t)
}

func (l *lockedSinks) publish(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.publish(t)
}

func (l *lockedSinks) EachGrant(ctx context.Context, id string, fn func(hongbao.Grant) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.memLedger.EachGrant(ctx, id, fn)
}

func (l *lockedSinks) EachTotals(ctx context.Context, fn func(*books.Totals) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.memLedger.EachTotals(ctx, fn)
}

func (l *lockedSinks) Each(ctx context.Context, bases []model.TopicBase, fn func(int, int64, hongbao.Grant) error) (
	audit.TopicScan, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.topic.Each(ctx, bases, fn)
}

func TestWithoutSinks(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.cfg.Ledger, w.cfg.Topic = nil, nil
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.Equal(t, []string{
		"the ledger: none is configured", "the topic: none is configured", "the planned amounts: no plan is configured",
	}, r.LeftOut)
	require.EqualValues(t, 60, r.Total.Granted)
}

func TestSomeCampaigns(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.settled("a", "u0003").Amount++
	r := w.audit(t, audit.Options{Campaigns: []string{"b"}})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.EqualValues(t, 20, r.Total.Settled)
	require.Contains(t, r.LeftOut[1], "only some campaigns")

	r = w.audit(t, audit.Options{Campaigns: []string{"a", "typo"}})
	require.Equal(t, map[model.DifferenceKind]int64{audit.Different: 1, audit.CampaignMissing: 1}, r.Found)
}

// A dead letter is not reported once its sink has the grant. A grant in quarantine is not reported once a person has
// decided about it.
func TestMended(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.deadLetter(t, "the account is closed")
	w.ledger.grants["a"] = append(w.ledger.grants["a"], *w.published("a", "u0500"))
	w.ledger.quarantined = []model.Quarantined{{ID: 1, Reason: "over_funded", Grant: *w.settled("a", "u0003"),
		Resolution: "not paid"}}
	drop(w.ledger.grants, "a", "u0003")
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
}

// Records that retention has deleted are not reported as missing; later missing records are. The log is not ordered by
// seq: a late requeue puts a low seq after higher ones, so retention may delete higher seqs first.
func TestTopicRetention(t *testing.T) {
	t.Parallel()
	w := busy(t)
	a := w.keys("a").Index()
	old := func(seq int64) bool { return seq <= 10 || seq == 35 }
	receipts := w.keys("a").Keys.Receipts("a")
	for user, text := range w.rdb.HGetAll(t.Context(), receipts).Val() { // text is "packet amount seq ms request-id"
		f := strings.Fields(text)
		if seq, err := strconv.ParseInt(f[2], 10, 64); err == nil && old(seq) {
			do(t, w.rdb.HSet(t.Context(), receipts, user, strings.Join([]string{f[0], f[1], f[2], "0", f[4]}, " ")))
		}
	}
	kept := w.topic.grants[:0]
	for _, g := range w.topic.grants {
		if g.Shard != a || g.Seq == 2 || !old(g.Seq) && g.Seq != 20 {
			kept = append(kept, g)
		}
	}
	w.topic.grants = kept
	require.EqualValues(t, 11, w.audit(t, audit.Options{}).Found[audit.MissingInTopic])
	w.topic.scan.Since = make([]time.Time, 2)
	w.topic.scan.Since[a] = time.Now().Add(-30 * time.Minute)
	r := w.audit(t, audit.Options{})
	require.Equal(t, map[model.DifferenceKind]int64{audit.MissingInTopic: 1}, r.Found)
	require.EqualValues(t, 10, r.Total.Expired)
	w.topic.grants = nil
	w.topic.scan.Since[a] = time.Now().Add(time.Minute)
	r = w.audit(t, audit.Options{})
	require.Equal(t, map[model.DifferenceKind]int64{audit.MissingInTopic: 20}, r.Found,
		"retention has deleted nothing from the other partition")
	require.EqualValues(t, 40, r.Total.Expired)
}

func TestListIsBounded(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.cfg.MaxListed = 3
	w.ledger.grants["a"] = nil
	r := w.audit(t, audit.Options{})
	require.Equal(t, map[model.DifferenceKind]int64{audit.Lost: 40}, r.Found)
	require.EqualValues(t, 40, r.Total.Lost)
	require.EqualValues(t, 40, r.Campaigns[0].Lost)
	require.Zero(t, r.Campaigns[1].Lost)
	require.Len(t, r.Differences, 3)

	var text bytes.Buffer
	require.NoError(t, r.Write(&text))
	require.Contains(t, text.String(), "What to do: if the ledger lacks them, deliver them again")
	require.Contains(t, text.String(), "  and 37 more\n")

	var back model.AuditReport
	b, err := json.Marshal(r)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, r.Differences, back.Differences)
	require.Equal(t, r.Total, back.Total)
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	run := func(w *world) error {
		_, err := audit.Run(t.Context(), w.cfg, audit.Options{})
		return err
	}
	w := busy(t)
	do(t, w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: w.keys("a").Keys.Events(), Values: []string{"4", "x"}}))
	require.ErrorIs(t, run(w), stream.ErrNewerEntry)
	w = busy(t)
	do(t, w.rdb.Set(t.Context(), w.keys("a").Keys.Stock("a"), "x", 0))
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(run(w)))
	w = busy(t)
	do(t, w.rdb.Del(t.Context(), w.keys("b").Keys.Meta()))
	require.ErrorContains(t, run(w), "so Redis has lost the shard")
	w = busy(t)
	w.plans["b"], w.cfg.Plan = nil, w.plans
	require.ErrorContains(t, run(w), "no plan of b")
}
