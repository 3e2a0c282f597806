package audit_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/store"
)

type memRemote struct {
	mu       sync.Mutex
	credits  map[string]map[int64]audit.RemoteCredit
	asked    int
	now, top int
	fails    error
}

// remotely adds a queryable remote that has paid every grant in the ledger.
func (w *world) remotely() *memRemote {
	m := &memRemote{credits: map[string]map[int64]audit.RemoteCredit{}}
	for id, grants := range w.ledger.grants {
		m.credits[id] = map[int64]audit.RemoteCredit{}
		for _, g := range grants {
			m.credits[id][g.Packet] = audit.RemoteCredit{User: g.User, Currency: "CNY", Amount: g.Amount}
		}
	}
	w.ledger.spoil = func(c *books.Totals) { c.Currency = "CNY" }
	w.cfg.Remote = &audit.Remote{Ask: m.ask, Concurrency: 4}
	return m
}

func (m *memRemote) ask(_ context.Context, campaign string, packet int64) (audit.RemoteCredit, bool, error) {
	m.mu.Lock()
	m.asked++
	m.now++
	m.top = max(m.top, m.now)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.now--
		m.mu.Unlock()
	}()
	c, found := m.credits[campaign][packet]
	return c, found, m.fails
}

func TestRemoteAgrees(t *testing.T) {
	t.Parallel()
	w := busy(t)
	m := w.remotely()
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.EqualValues(t, 60, r.Total.Settled)
	require.Equal(t, r.Total.GrantedAmount, r.Total.SettledAmount)
	require.Equal(t, 60, m.asked, "each grant once")
	require.LessOrEqual(t, m.top, 4)

	w.grab(t, "a", 200, 10) // in flight
	r = w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.EqualValues(t, 10, r.Total.Unsettled)
}

func TestRemoteDiffers(t *testing.T) {
	t.Parallel()
	w := busy(t)
	lost, other, short, foreign := *w.settled("a", user(1)), *w.settled("a", user(2)), *w.settled("b", user(3)),
		*w.settled("b", user(4))
	m := w.remotely()
	delete(m.credits["a"], lost.Packet)
	m.credits["a"][other.Packet] = audit.RemoteCredit{User: "thief", Currency: "CNY", Amount: other.Amount}
	m.credits["b"][short.Packet] = audit.RemoteCredit{User: short.User, Currency: "CNY", Amount: short.Amount - 1}
	m.credits["b"][foreign.Packet] = audit.RemoteCredit{User: foreign.User, Currency: "USD", Amount: foreign.Amount}
	r := w.audit(t, audit.Options{})
	require.Equal(t, map[model.DifferenceKind]int64{audit.Lost: 1, audit.Different: 3}, r.Found)
	for _, d := range r.Differences {
		require.Equal(t, "remote", d.Where)
	}
	require.Equal(t, lost.Packet, r.Differences[0].Packet)
	require.Contains(t, r.Differences[1].Detail, `"thief"`)
}

// The ledger lacks a grant that the remote has paid. The audit reports the grant as lost in the ledger.
func TestLedgerLostWhatTheRemoteHas(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.remotely()
	w.ledger.grants["a"] = w.ledger.grants["a"][1:]
	r := w.audit(t, audit.Options{})
	require.Equal(t, map[model.DifferenceKind]int64{audit.Lost: 1}, r.Found)
	require.Equal(t, "ledger", r.Differences[0].Where)
	w.cfg.Ledger = nil
	_, err := audit.Run(t.Context(), w.cfg, audit.Options{})
	require.ErrorContains(t, err, "a Remote without a Ledger")
}

// A person decided that a grant is not to be paid, or paid it from the reserve, but the remote has paid it. The audit
// reports that, even after the campaign has left Redis.
func TestRemotePaidWhatWasDecidedOtherwise(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		decide func(t *testing.T, w *world) hongbao.Grant
		detail string
	}{
		"a dropped letter":   {dropLetter, "was dropped by ann"},
		"void in quarantine": {putAside("void: forged"), "quarantine 7: \"void: forged\""},
		"paid from the reserve": {putAside("paid from the reserve: the user called"),
			"quarantine 7: \"paid from the reserve: the user called\""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := busy(t)
			m := w.remotely()
			g := c.decide(t, w)
			delete(m.credits["a"], g.Packet)
			r := w.audit(t, audit.Options{})
			require.Equal(t, model.Agrees, r.Verdict, "the remote did not pay: %+v", r.Differences)
			m.credits["a"][g.Packet] = audit.RemoteCredit{User: g.User, Currency: "CNY", Amount: g.Amount}
			check := func() {
				t.Helper()
				r := w.audit(t, audit.Options{})
				require.Equal(t, map[model.DifferenceKind]int64{audit.RemotePaid: 1}, r.Found)
				require.Equal(t, g.Packet, r.Differences[0].Packet)
				require.Contains(t, r.Differences[0].Detail, c.detail)
				require.Zero(t, r.Total.Dropped, "the report lists the grant only as a difference")
			}
			check()
			w.leave(t, "a")
			check()
			m.credits["a"][g.Packet] = audit.RemoteCredit{User: "thief", Currency: "CNY", Amount: g.Amount}
			require.NotEqual(t, model.Agrees, w.audit(t, audit.Options{}).Verdict, "another user was paid")
		})
	}
}

// dropLetter makes a dead letter of a grant of campaign a, drops the letter as ann, and returns the grant.
func dropLetter(t *testing.T, w *world) hongbao.Grant {
	w.deadLetter(t, "it is not booked")
	k := w.keys("a")
	letters, err := k.Group(ledgerGroup).Letters(t.Context(), "-", "+", 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	_, err = k.ResolveLetter(t.Context(), &store.Resolution{Sink: ledgerGroup, Letter: letters[0].ID,
		What: model.LetterDropped, Decision: stream.Decision{By: "ann", Why: "not booked"}})
	require.NoError(t, err)
	return *w.published("a", user(500))
}

// putAside moves a grant of campaign a to the ledger's quarantine, resolved with this text.
func putAside(resolution string) func(*testing.T, *world) hongbao.Grant {
	return func(_ *testing.T, w *world) hongbao.Grant {
		g := *w.settled("a", user(3))
		w.ledger.quarantined = []model.Quarantined{{ID: 7, Reason: ledger.AfterRefund, Grant: g, Resolution: resolution}}
		drop(w.ledger.grants, "a", user(3))
		return g
	}
}

// A void grant without a value is not reported as paid by the remote: no worker requests a credit of zero.
func TestVoidWithoutAValue(t *testing.T) {
	t.Parallel()
	w := busy(t)
	m := w.remotely()
	g := putAside("void: forged")(t, w)
	delete(m.credits["a"], g.Packet)
	w.cfg.Plan = freePacket{w.plans, g.Packet}
	require.NotContains(t, w.audit(t, audit.Options{}).Found, audit.RemotePaid)
}

// A person ended a campaign that Redis had lost. The remote has paid a grant that the topic has and the ledger lacks:
// the audit reports it.
func TestRemotePaidOfALostCampaign(t *testing.T) {
	t.Parallel()
	w := busy(t)
	m := w.remotely()
	g := *w.settled("b", user(3))
	drop(w.ledger.grants, "b", user(3))
	w.leave(t, "b")
	w.ledger.spoil = func(c *books.Totals) {
		if c.Currency = "CNY"; c.Campaign == "b" {
			c.By, c.Why = "ann", "Redis lost it"
		}
	}
	r := w.audit(t, audit.Options{})
	require.Equal(t, int64(1), r.Found[audit.RemotePaid], "%+v", r.Differences)
	delete(m.credits["b"], g.Packet)
	r = w.audit(t, audit.Options{})
	require.Zero(t, r.Found[audit.RemotePaid])
	require.EqualValues(t, 1, r.Total.Dropped)
}

// With a remote that can't be queried, the report says that its credits were not compared. It still counts unsettled
// grants.
func TestRemoteThatCantBeAsked(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.remotely()
	w.cfg.Remote.Ask = nil
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.Contains(t, r.LeftOut[0], "the remote balance system: it settles, but can't be asked")
	w.grab(t, "a", 200, 10)
	require.EqualValues(t, 10, w.audit(t, audit.Options{}).Total.Unsettled)
}

func TestRemoteFails(t *testing.T) {
	t.Parallel()
	w := busy(t)
	m := w.remotely()
	m.fails = hongbao.Outagef(hongbao.ClassTransient, "the remote is down")
	_, err := audit.Run(t.Context(), w.cfg, audit.Options{})
	require.ErrorIs(t, err, m.fails)
	require.ErrorContains(t, err, "ask the remote")
	w.cfg.Remote.Concurrency = 0
	_, err = audit.Run(t.Context(), w.cfg, audit.Options{})
	require.ErrorContains(t, err, "Concurrency")
}

// A packet without a value is not lost if the remote lacks it: no worker requests a credit of zero.
func TestRemoteWorthless(t *testing.T) {
	t.Parallel()
	w := busy(t)
	m := w.remotely()
	free := m.any(t)
	delete(m.credits["a"], free)
	w.cfg.Plan = freePacket{w.plans, free}
	r := w.audit(t, audit.Options{})
	require.Zero(t, r.Found[audit.Lost], "%+v", r.Differences)
	w.cfg.Plan = failing{}
	_, err := audit.Run(t.Context(), w.cfg, audit.Options{})
	require.ErrorIs(t, err, errNoPlan)
}

func (m *memRemote) any(t *testing.T) int64 {
	t.Helper()
	for packet := range m.credits["a"] {
		return packet
	}
	t.Fatal("nothing was settled")
	return 0
}

// freePacket is a plan in which one packet of campaign a is worth nothing.
type freePacket struct {
	plans
	packet int64
}

func (p freePacket) Amount(ctx context.Context, id string, packet int64) (hongbao.Amount, bool, error) {
	if id == "a" && packet == p.packet {
		return 0, true, nil
	}
	return p.plans.Amount(ctx, id, packet)
}

var errNoPlan = errors.New("no plan")

type failing struct{}

func (failing) Amount(context.Context, string, int64) (hongbao.Amount, bool, error) {
	return 0, false, errNoPlan
}
