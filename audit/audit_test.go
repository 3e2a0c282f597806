package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/audit"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/lua"
)

func TestAgrees(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.cfg.Plan = w.plans
	w.topic.scan.Foreign = 3
	r := w.audit(t, audit.Options{})
	require.Equal(t, audit.Agrees, r.Verdict, "%+v", r.Differences)
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

// What the groups have not finished is in flight: counted, not judged. What one of them has finished is judged.
func TestInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.grab(t, "a", 0, 30)
	w.publish(t)
	r := w.audit(t, audit.Options{})
	require.Equal(t, audit.Agrees, r.Verdict, "%+v", r.Differences)
	require.False(t, r.Quiet)
	require.EqualValues(t, 30, r.Total.InFlight)
	require.EqualValues(t, 30, r.Total.Unsettled)
	require.Zero(t, r.Total.Unpublished)

	// The second of three entries is finished and the first is not: only its grants are judged.
	k := w.keys("a")
	entries := w.read(t, k.Index(), ledgerGroup)
	require.Len(t, entries, 3)
	w.ack(t, k.Index(), ledgerGroup, &entries[1])
	r = w.audit(t, audit.Options{})
	require.Equal(t, map[audit.Kind]int64{audit.Lost: 10}, r.Found)
	require.EqualValues(t, 20, r.Total.InFlight)
}

func TestWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.grab(t, "a", 0, 30)
	w.publish(t)
	locked := &lockedSinks{w: w}
	w.cfg.Ledger, w.cfg.Topic = locked, locked
	begun := time.Now()
	r := w.audit(t, audit.Options{Wait: 120 * time.Millisecond})
	require.False(t, r.Quiet)
	require.GreaterOrEqual(t, time.Since(begun), 120*time.Millisecond)

	done := make(chan *audit.Report)
	go func() {
		defer close(done)
		a, err := audit.New(w.cfg)
		if err != nil {
			t.Error(err)
			return
		}
		r, err := a.Run(t.Context(), audit.Options{Wait: time.Minute})
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
	a, err := audit.New(w.cfg)
	require.NoError(t, err)
	_, err = a.Run(ctx, audit.Options{Wait: time.Minute})
	require.ErrorIs(t, err, context.Canceled)
}

// Audits of a system under load never cry wolf, and their counts fit.
func TestLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	locked := &lockedSinks{w: w}
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
		require.Equal(t, audit.Agrees, r.Verdict, "%+v", r.Differences)
	}
	wg.Wait()
	require.Positive(t, audits)
	locked.settle(t)
	locked.publish(t)
	r := w.audit(t, audit.Options{})
	require.Equal(t, audit.Agrees, r.Verdict, "%+v", r.Differences)
	require.EqualValues(t, 2*packets, r.Total.Settled)
	require.EqualValues(t, 2*packets, r.Total.Published)
}

// lockedSinks are a world's ledger and topic for those that write and audit at once.
type lockedSinks struct {
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
	return l.w.ledger.EachGrant(ctx, id, fn)
}

func (l *lockedSinks) Summary(ctx context.Context) (audit.Summary, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.ledger.Summary(ctx)
}

func (l *lockedSinks) EachQuarantined(ctx context.Context, fn func(audit.Quarantined) error) error {
	return l.w.ledger.EachQuarantined(ctx, fn)
}

func (l *lockedSinks) Each(ctx context.Context, fn func(int, int64, hongbao.Grant) error) (audit.TopicScan, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.topic.Each(ctx, fn)
}

func TestWithoutSinks(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.cfg.Ledger, w.cfg.Topic = nil, nil
	r := w.audit(t, audit.Options{})
	require.Equal(t, audit.Agrees, r.Verdict, "%+v", r.Differences)
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
	require.Equal(t, audit.Agrees, r.Verdict, "%+v", r.Differences)
	require.EqualValues(t, 20, r.Total.Settled)
	require.Contains(t, r.LeftOut[1], "only some campaigns")

	r = w.audit(t, audit.Options{Campaigns: []string{"a", "typo"}})
	require.Equal(t, map[audit.Kind]int64{audit.Different: 1, audit.CampaignMissing: 1}, r.Found)
}

// A campaign that was closed, refunded and has left Redis is judged by the ledger alone.
func TestLeftRedis(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.leave(t, "b")
	r := w.audit(t, audit.Options{})
	require.Equal(t, audit.Agrees, r.Verdict, "%+v", r.Differences)
	require.False(t, r.Campaigns[1].InRedis)
	require.EqualValues(t, 20, r.Campaigns[1].Settled)
	require.EqualValues(t, 1, r.Shards[w.keys("b").Index()].TrimmedCloses)

	w.published("b", "u0003").User = "mallory"
	w.topic.grants = append(w.topic.grants, hongbao.Grant{
		Shard: w.keys("b").Index(), Seq: 1, Campaign: "b", Packet: 99, User: "mallory",
	})
	r = w.audit(t, audit.Options{})
	require.Equal(t, map[audit.Kind]int64{audit.Different: 1, audit.Unfounded: 1}, r.Found, "%+v", r.Differences)
}

// close closes a campaign, and brings the close to the sinks.
func (w *world) close(t *testing.T, id string) hongbao.Entry {
	t.Helper()
	e, err := lua.Close(t.Context(), w.rdb, w.keys(id), id, true)
	require.NoError(t, err)
	w.settle(t)
	w.publish(t)
	return e
}

// refund closes and refunds a campaign.
func (w *world) refund(t *testing.T, id string) {
	t.Helper()
	w.ledger.closed[id] = w.close(t, id)
	_, err := lua.Refunded(t.Context(), w.rdb, w.keys(id), id)
	require.NoError(t, err)
}

// leave closes and refunds a campaign, trims the stream and takes the campaign out of Redis.
func (w *world) leave(t *testing.T, id string) {
	t.Helper()
	w.refund(t, id)
	do(t, w.rdb.XTrimMaxLen(t.Context(), w.keys(id).Events(), 0))
	left, err := lua.Retire(t.Context(), w.rdb, w.keys(id), id, 0)
	require.NoError(t, err)
	require.Zero(t, left)
}

// A campaign agrees at each step of its end, with its close in the stream and without.
func TestClosedRefundedRetired(t *testing.T) {
	t.Parallel()
	for name, bring := range map[string]func(t *testing.T, w *world){
		"closed":                  func(t *testing.T, w *world) { w.close(t, "b") },
		"refunded":                func(t *testing.T, w *world) { w.refund(t, "b") },
		"both":                    func(t *testing.T, w *world) { w.refund(t, "a"); w.refund(t, "b") },
		"retired":                 func(t *testing.T, w *world) { w.leave(t, "b") },
		"one retired, one closed": func(t *testing.T, w *world) { w.leave(t, "b"); w.close(t, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := busy(t)
			bring(t, w)
			r := w.audit(t, audit.Options{})
			require.Equal(t, audit.Agrees, r.Verdict, "%+v", r.Differences)
			for i := range w.space.Len() {
				do(t, w.rdb.XTrimMaxLen(t.Context(), w.space.Shard(i).Events(), 0))
			}
			r = w.audit(t, audit.Options{})
			require.Equal(t, audit.Agrees, r.Verdict, "%+v", r.Differences)
			var trimmed int64
			for _, s := range r.Shards {
				trimmed += s.TrimmedCloses
			}
			require.Positive(t, trimmed)
			r = w.audit(t, audit.Options{Campaigns: []string{"b"}})
			require.Equal(t, audit.Agrees, r.Verdict, "%+v", r.Differences)
		})
	}
}

// What is wrong with an end is found, and named once.
func TestEndsThatDiffer(t *testing.T) {
	t.Parallel()
	set := func(w *world, t *testing.T, pairs ...any) {
		do(t, w.rdb.HSet(t.Context(), w.keys("b").Campaign("b"), pairs...))
	}
	for name, c := range map[string]struct {
		plant func(t *testing.T, w *world)
		want  map[audit.Kind]int64
	}{
		"refunded in Redis only": {func(t *testing.T, w *world) { w.refund(t, "b"); delete(w.ledger.closed, "b") },
			map[audit.Kind]int64{audit.FundingDiffers: 1}},
		"another amount": {func(t *testing.T, w *world) {
			w.refund(t, "b")
			w.ledger.spoil = func(c *audit.LedgerCampaign) {
				if c.ID == "b" {
					c.Refunded, c.Open = c.Refunded-1, 1
				}
			}
		}, map[audit.Kind]int64{audit.LedgerUnbalanced: 1}},
		"Redis went back before the close": {func(t *testing.T, w *world) {
			w.refund(t, "b")
			set(w, t, "state", "open")
		}, map[audit.Kind]int64{audit.FundingDiffers: 1, audit.CampaignBroken: 1}},
		"closed without a close": {func(t *testing.T, w *world) { set(w, t, "state", "closed") },
			map[audit.Kind]int64{audit.CampaignBroken: 1}},
		"another close": {func(t *testing.T, w *world) { e := w.close(t, "b"); set(w, t, "close_seq", e.Seq-1) },
			map[audit.Kind]int64{audit.CounterDrift: 1, audit.AfterClose: 0} /* the last grant may come after it */},
		"the refund knows another close": {func(t *testing.T, w *world) {
			w.refund(t, "b")
			e := w.ledger.closed["b"]
			e.Seq++
			w.ledger.closed["b"] = e
		}, map[audit.Kind]int64{audit.CounterDrift: 1}},
		"the close of a retired campaign has a grant's seq": {func(t *testing.T, w *world) {
			w.leave(t, "b")
			e := w.ledger.closed["b"]
			e.Seq = 3
			w.ledger.closed["b"] = e
		}, map[audit.Kind]int64{audit.DuplicateSeq: 1, audit.SeqGap: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := busy(t)
			c.plant(t, w)
			found := w.audit(t, audit.Options{})
			for kind, n := range c.want {
				if n > 0 {
					require.Equal(t, n, found.Found[kind], "%s: %+v", kind, found.Differences)
				}
			}
			for kind := range found.Found {
				require.Contains(t, c.want, kind, "%+v", found.Differences)
			}
		})
	}
}

func TestGrantAfterClose(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.close(t, "b")
	r := w.audit(t, audit.Options{})
	require.Equal(t, audit.Agrees, r.Verdict, "%+v", r.Differences)

	state := func(s string) { do(t, w.rdb.HSet(t.Context(), w.keys("b").Campaign("b"), "state", s)) }
	state("open") // by hand
	w.grab(t, "b", 900, 1)
	state("closed")
	w.settle(t)
	w.publish(t)
	for range 2 { // with the close in the stream, and without
		r = w.audit(t, audit.Options{})
		require.EqualValues(t, 1, r.Found[audit.AfterClose], "%+v", r.Differences)
		do(t, w.rdb.XTrimMaxLen(t.Context(), w.keys("b").Events(), 0))
	}
}

// A dead letter whose grant the sink has by now is no difference, nor is a quarantine that a person has decided.
func TestMended(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.bury(t, "the account is closed")
	w.ledger.grants["a"] = append(w.ledger.grants["a"], *w.published("a", "u0500"))
	w.ledger.quarantined = []audit.Quarantined{{ID: 1, Reason: "over_funded", Grant: *w.settled("a", "u0003"), Resolution: "not paid"}}
	drop(w.ledger.grants, "a", "u0003")
	r := w.audit(t, audit.Options{})
	require.Equal(t, audit.Agrees, r.Verdict, "%+v", r.Differences)
}

// What the topic's retention has taken is not missing; what is missing behind it is.
func TestTopicRetention(t *testing.T) {
	t.Parallel()
	w := busy(t)
	a := w.keys("a").Index()
	kept := w.topic.grants[:0]
	for _, g := range w.topic.grants {
		if g.Shard != a || g.Seq > 10 && g.Seq != 20 {
			kept = append(kept, g)
		}
	}
	w.topic.grants = kept
	require.EqualValues(t, 11, w.audit(t, audit.Options{}).Found[audit.MissingInTopic])
	w.topic.scan.Starts = []int64{0, 0}
	w.topic.scan.Starts[a] = 10
	r := w.audit(t, audit.Options{})
	require.Equal(t, map[audit.Kind]int64{audit.MissingInTopic: 1}, r.Found)
	require.EqualValues(t, 10, r.Total.Expired)
	w.topic.grants = nil
	r = w.audit(t, audit.Options{})
	require.Equal(t, map[audit.Kind]int64{audit.MissingInTopic: 20}, r.Found, "the other partition has lost nothing by retention")
}

func TestListIsBounded(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.cfg.MaxListed = 3
	w.ledger.grants["a"] = nil
	r := w.audit(t, audit.Options{})
	require.Equal(t, map[audit.Kind]int64{audit.Lost: 40}, r.Found)
	require.EqualValues(t, 40, r.Total.Lost)
	require.EqualValues(t, 40, r.Campaigns[0].Lost)
	require.Zero(t, r.Campaigns[1].Lost)
	require.Len(t, r.Differences, 3)

	var text bytes.Buffer
	require.NoError(t, r.Write(&text))
	require.Contains(t, text.String(), "lost: 40. What to do: replay these grants")
	require.Contains(t, text.String(), "  and 37 more\n")

	var back audit.Report
	b, err := json.Marshal(r)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, r.Differences, back.Differences)
	require.Equal(t, r.Total, back.Total)
}

// What can't be read is an error, not a verdict.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	run := func(w *world) error {
		a, err := audit.New(w.cfg)
		require.NoError(t, err)
		_, err = a.Run(t.Context(), audit.Options{})
		return err
	}
	w := busy(t)
	do(t, w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: w.keys("a").Events(), Values: []string{"v", "2"}}))
	require.ErrorIs(t, run(w), hongbao.ErrNewerEntry)
	w = busy(t)
	do(t, w.rdb.Set(t.Context(), w.keys("a").Stock("a"), "x", 0))
	require.Equal(t, hongbao.Broken, hongbao.ClassOf(run(w)))
	w = busy(t)
	do(t, w.rdb.Del(t.Context(), w.keys("b").Meta()))
	require.ErrorContains(t, run(w), "freeze it")
	w = busy(t)
	w.plans["b"], w.cfg.Plan = nil, w.plans
	require.ErrorContains(t, run(w), "no plan of b")
}

// A million grants are audited in well under a minute. It takes a minute to make them, so it runs only when asked for.
func BenchmarkMillion(b *testing.B) {
	if os.Getenv("HONGBAO_BENCH") == "" {
		b.Skip("set HONGBAO_BENCH=1")
	}
	const n = 1_000_000
	space, err := lua.NewSpace(testkit.Prefix(b), 1)
	require.NoError(b, err)
	rdb := testkit.Redis(b).Client(b)
	require.NoError(b, lua.Init(b.Context(), rdb, space, "bench"))
	k := space.Shard(0)
	fields := []string{"state", "open", "from", "0", "to", "9000000000000", "packets", fmt.Sprint(n), "total", fmt.Sprint(n),
		"user_campaign", "1", "user_day", "", "user_hour", "", "fact_names", "", "fact_limits", "", "zone", "", "loaded", fmt.Sprint(n),
		"granted", "0", "granted_amount", "0", "loaded_amount", fmt.Sprint(n)}
	require.NoError(b, rdb.HSet(b.Context(), k.Campaign("big"), fields).Err())
	ledger := &memLedger{grants: map[string][]hongbao.Grant{}}
	for at := 0; at < n; at += 5000 {
		var stock []any
		for p := at + 1; p <= at+5000; p++ {
			stock = append(stock, fmt.Sprintf("%d 1", p))
		}
		require.NoError(b, rdb.RPush(b.Context(), k.Stock("big"), stock...).Err())
	}
	for at := 0; at < n; at += 128 {
		call := &lua.GrabCall{Campaign: "big", MaxBacklog: 1e9}
		for i := at; i < min(at+128, n); i++ {
			call.Grabs = append(call.Grabs, &hongbao.Grab{Campaign: "big", User: fmt.Sprint("user", i)})
		}
		_, err := lua.Grab(b.Context(), rdb, k, call, nil)
		require.NoError(b, err)
	}
	entries, err := lua.Entries(b.Context(), rdb, k, "-", "+")
	require.NoError(b, err)
	for _, e := range entries {
		ledger.grants["big"] = append(ledger.grants["big"], e.Grants...)
	}
	topic := &memTopic{grants: ledger.grants["big"]}
	_, err = lua.CreateGroup(b.Context(), rdb, k, ledgerGroup)
	require.NoError(b, err)
	_, err = lua.CreateGroup(b.Context(), rdb, k, topicGroup)
	require.NoError(b, err)
	a, err := audit.New(audit.Config{Redis: rdb, Space: space, Ledger: ledger, LedgerGroup: ledgerGroup, Topic: topic, TopicGroup: topicGroup, MaxListed: 10})
	require.NoError(b, err)
	b.ResetTimer()
	b.ReportAllocs()
	for range b.N {
		r, err := a.Run(b.Context(), audit.Options{})
		require.NoError(b, err)
		require.EqualValues(b, n, r.Total.Settled)
		require.EqualValues(b, n, r.Total.Granted)
	}
}
