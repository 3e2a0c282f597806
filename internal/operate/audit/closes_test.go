package audit_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/store"
)

// A campaign was closed and refunded, and has left Redis. The audit compares its grants in the ledger with the topic.
func TestLeftRedis(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.leave(t, "b")
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.False(t, r.Campaigns[1].InRedis)
	require.EqualValues(t, 20, r.Campaigns[1].Settled)
	require.EqualValues(t, 1, r.Shards[w.keys("b").Index()].TrimmedCloses)

	w.published("b", "u0003").User = "mallory"
	w.topic.grants = append(w.topic.grants, hongbao.Grant{
		Shard: w.keys("b").Index(), Seq: 1, Campaign: "b", Packet: 99, User: "mallory",
	})
	r = w.audit(t, audit.Options{})
	require.Equal(t, map[model.DifferenceKind]int64{audit.Different: 1, audit.Unfounded: 1}, r.Found, "%+v", r.Differences)
}

type unread struct {
	*memLedger
	campaign string
	read     int
}

func (l *unread) EachGrant(ctx context.Context, id string, fn func(hongbao.Grant) error) error {
	if id == l.campaign {
		l.read++
	}
	return l.memLedger.EachGrant(ctx, id, fn)
}

// A refunded campaign that has left Redis may be sealed after an audit of everything. Later audits do not read its
// grants.
func TestSealedCampaignIsNotReadAgain(t *testing.T) {
	t.Parallel()
	w := busy(t)
	unsealed := &unread{memLedger: w.ledger, campaign: "b"}
	w.cfg.Ledger = unsealed
	require.False(t, w.audit(t, audit.Options{}).Campaigns[1].Sealable, "it is open")
	w.leave(t, "b")
	require.False(t, w.audit(t, audit.Options{Campaigns: []string{"b"}}).Campaigns[0].Sealable, "only b was audited")
	r := w.audit(t, audit.Options{})
	require.True(t, r.Campaigns[1].Sealable)
	require.False(t, r.Campaigns[0].Sealable)
	require.Equal(t, 3, unsealed.read)

	w.ledger.spoil = func(c *books.Totals) { c.Sealed = c.Campaign == "b" }
	r = w.audit(t, audit.Options{})
	require.Contains(t, r.Found, audit.SeqGap, "the ledger has not stored the seqs of the seal")
	w.seal("b")
	r = w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.Equal(t, 3, unsealed.read, "the grants of a sealed campaign are not read again")
	b := r.Campaigns[1]
	require.Equal(t, []bool{true, false}, []bool{b.Sealed, b.Sealable})
	require.Equal(t, []int64{20, 20}, []int64{b.Settled, b.Published})

	w.settled("b", "u0003").User = "mallory"
	require.Empty(t, w.audit(t, audit.Options{}).Found)
	r = w.audit(t, audit.Options{Campaigns: []string{"b"}})
	require.Equal(t, map[model.DifferenceKind]int64{audit.Different: 1}, r.Found, "--campaign b reads its grants")
	require.Equal(t, 4, unsealed.read)
}

// seal seals a campaign in the ledger.
func (w *world) seal(id string) {
	w.ledger.spoil = func(c *books.Totals) { c.Sealed = c.Campaign == id }
	var runs []stream.SeqRange
	for _, g := range w.ledger.grants[id] {
		runs = append(runs, stream.SeqRange{First: g.Seq, Last: g.Seq})
	}
	w.ledger.sealed = map[string]map[int][]stream.SeqRange{id: {w.keys(id).Index(): runs}}
}

// close closes a campaign, and makes the sinks finish the close.
func (w *world) close(t *testing.T, id string) stream.Entry {
	t.Helper()
	e, err := w.keys(id).Place(id).Close(t.Context(), true, 0)
	require.NoError(t, err)
	w.settle(t)
	w.publish(t)
	return e
}

func (w *world) refund(t *testing.T, id string) {
	t.Helper()
	w.ledger.closed[id] = w.close(t, id)
	_, err := w.keys(id).Place(id).Refunded(t.Context())
	require.NoError(t, err)
}

// leave closes and refunds a campaign, trims the stream and takes the campaign out of Redis.
func (w *world) leave(t *testing.T, id string) {
	t.Helper()
	w.refund(t, id)
	do(t, w.rdb.XTrimMaxLen(t.Context(), w.keys(id).Keys.Events(), 0))
	left, err := w.keys(id).Place(id).PurgeCampaign(t.Context(), 0)
	require.NoError(t, err)
	require.Zero(t, left)
}

// The audit finds no difference at any step of a campaign's end, before and after the close is trimmed from the stream.
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
			require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
			for i := range w.store.Len() {
				do(t, w.rdb.XTrimMaxLen(t.Context(), w.store.Shard(i).Keys.Events(), 0))
			}
			r = w.audit(t, audit.Options{})
			require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
			var trimmed int64
			for _, s := range r.Shards {
				trimmed += s.TrimmedCloses
			}
			require.Positive(t, trimmed)
			r = w.audit(t, audit.Options{Campaigns: []string{"b"}})
			require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
		})
	}
}

// Redis, ledger and stream disagree on how a campaign ended. Each disagreement is reported once.
func TestEndsThatDiffer(t *testing.T) {
	t.Parallel()
	set := func(w *world, t *testing.T, pairs ...any) {
		do(t, w.rdb.HSet(t.Context(), w.keys("b").Keys.Campaign("b"), pairs...))
	}
	for name, c := range map[string]struct {
		plant func(t *testing.T, w *world)
		want  map[model.DifferenceKind]int64
	}{
		"refunded in Redis only": {func(t *testing.T, w *world) { w.refund(t, "b"); delete(w.ledger.closed, "b") },
			map[model.DifferenceKind]int64{audit.FundingDiffers: 1}},
		"another amount": {func(t *testing.T, w *world) {
			w.refund(t, "b")
			w.ledger.spoil = func(c *books.Totals) {
				if c.Campaign == "b" {
					c.Refunded, c.Pool = c.Refunded-1, 1
				}
			}
		}, map[model.DifferenceKind]int64{audit.LedgerUnbalanced: 1}},
		"Redis went back before the close": {func(t *testing.T, w *world) {
			w.refund(t, "b")
			set(w, t, "state", "open")
		}, map[model.DifferenceKind]int64{audit.FundingDiffers: 1, audit.CampaignBroken: 1}},
		"closed without a close": {func(t *testing.T, w *world) { set(w, t, "state", "closed") },
			map[model.DifferenceKind]int64{audit.CampaignBroken: 1}},
		"another close": {func(t *testing.T, w *world) { e := w.close(t, "b"); set(w, t, "close_seq", e.Seq-1) },
			map[model.DifferenceKind]int64{audit.CounterDrift: 1, audit.AfterClose: 0} /* the last grant may come after it */},
		"the refund knows another close": {func(t *testing.T, w *world) {
			w.refund(t, "b")
			e := w.ledger.closed["b"]
			e.Seq++
			w.ledger.closed["b"] = e
		}, map[model.DifferenceKind]int64{audit.CounterDrift: 1}},
		"the close of a retired campaign has a grant's seq": {func(t *testing.T, w *world) {
			w.leave(t, "b")
			e := w.ledger.closed["b"]
			e.Seq = 3
			w.ledger.closed["b"] = e
		}, map[model.DifferenceKind]int64{audit.DuplicateSeq: 1, audit.SeqGap: 1}},
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
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)

	state := func(s string) { do(t, w.rdb.HSet(t.Context(), w.keys("b").Keys.Campaign("b"), "state", s)) }
	state("open") // as if someone opened the campaign by hand
	w.grab(t, "b", 900, 1)
	state("closed")
	w.settle(t)
	w.publish(t)
	for range 2 { // first with the close in the stream, then after it was trimmed
		r = w.audit(t, audit.Options{})
		require.EqualValues(t, 1, r.Found[audit.AfterClose], "%+v", r.Differences)
		do(t, w.rdb.XTrimMaxLen(t.Context(), w.keys("b").Keys.Events(), 0))
	}
}

// Redis has lost data of a campaign: the audit reports it until a person ends the campaign from the ledger. Then the
// report names the person and the reason. It lists grants that only the topic has as dropped.
func TestEndedFromTheLedger(t *testing.T) {
	t.Parallel()
	w := busy(t)
	k := w.keys("b")
	w.rdb.HDel(t.Context(), k.Keys.Receipts("b"), "u0003") // now only the ledger and the topic have this grant
	drop(w.ledger.grants, "b", "u0004")                    // now only the topic has this grant
	w.rdb.HDel(t.Context(), k.Keys.Receipts("b"), "u0004")
	do(t, w.rdb.XTrimMaxLen(t.Context(), k.Keys.Events(), 0))
	do(t, w.rdb.HSet(t.Context(), k.Keys.Campaign("b"), "state", "frozen"))
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Differs, r.Verdict)
	require.EqualValues(t, 1, r.Found[audit.CampaignFrozen])
	require.Contains(t, r.Remedies[audit.CampaignFrozen].Do, "`hongbao campaign refund-lost ID`")

	require.NoError(t, k.EndLost(t.Context(),
		&store.LostCampaign{ID: "b", Packets: packets, Total: total, Loaded: packets, LoadedAmount: total,
			Granted: 19}))
	w.ledger.closed["b"] = stream.Entry{Shard: k.Index()}
	w.ledger.spoil = func(c *books.Totals) { c.By, c.Why = "ann", "no file is left" }
	for range 2 { // while the campaign is in Redis, and after it has left
		r = w.audit(t, audit.Options{})
		require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
		b := r.Campaigns[1]
		require.Equal(t, `Redis had lost something of the campaign, and ann ended it from the ledger: "no file is left"`, b.Ended)
		require.Equal(t, []any{false, int64(19), int64(1)}, []any{b.InRedis, b.Settled, b.Dropped})
		require.Equal(t, "b", r.Dropped[0].Campaign)
		require.Empty(t, r.Campaigns[0].Ended)
		_, err := k.Place("b").PurgeCampaign(t.Context(), 0)
		require.NoError(t, err)
	}
}
