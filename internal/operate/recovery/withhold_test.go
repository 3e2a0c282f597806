package recovery_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/load"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// guarded returns a recoverer with a Margin, which withholds packets for silent processes.
func (w *world) guarded(change ...func(*recovery.Config)) *recovery.Recoverer {
	return w.recoverer(func(c *recovery.Config) {
		c.Gather, c.Settle, c.Margin = time.Second, 30*time.Millisecond, 2*time.Second
		for _, f := range change {
			f(c)
		}
	})
}

// long gives a process that watches the shard time to report on a busy machine.
func long(c *recovery.Config) { c.Gather = 5 * time.Second }

// pair returns a process that watches the shard and one that does not. The first has granted ten packets, and the
// second one.
func (w *world) pair(t *testing.T) (p, silent *process) {
	t.Helper()
	p, silent = w.process(t), w.process(t)
	p.watch(t)
	p.wins(t, 10)
	silent.wins(t, 1)
	return p, silent
}

// withheld returns the amounts of the withheld packets, by packet number.
func (w *world) withheld(t *testing.T) map[int64]hongbao.Amount {
	t.Helper()
	list, err := w.shard().Place(id).Withheld(t.Context())
	require.NoError(t, err)
	all := map[int64]hongbao.Amount{}
	for _, p := range list {
		all[p.Number] = p.Amount
	}
	require.Len(t, all, len(list), "no packet is withheld twice")
	return all
}

// wakes lets a silent process watch the shard. It requires that each user then has exactly the packet that this process
// reported to them.
func (w *world) wakes(t *testing.T, silent *process, won map[string]hongbao.Receipt) {
	t.Helper()
	silent.watch(t)
	w.keepsPackets(t, won)
}

func (w *world) keepsPackets(t *testing.T, won map[string]hongbao.Receipt) {
	t.Helper()
	users := make([]string, 0, len(won))
	for user := range won {
		users = append(users, user)
	}
	testkit.Eventually(t, 10*time.Second, func() bool {
		has, err := w.shard().Place(id).ReceiptsOf(t.Context(), users)
		require.NoError(t, err)
		for user, r := range won {
			if len(has[user]) != 1 || has[user][0].Packet != r.Packet || has[user][0].Amount != r.Amount {
				return false
			}
		}
		return true
	}, "users have their packets")
}

// adds requires that no packet is granted twice, or withheld and granted, and that the granted count is right.
func (w *world) adds(t *testing.T) {
	t.Helper()
	f, err := w.shard().Place(id).CampaignFields(t.Context())
	require.NoError(t, err)
	var receipts int64
	packets := map[int64]bool{}
	require.NoError(t, w.shard().Place(id).EachReceipts(t.Context(), func(_ string, list []hongbao.Receipt) error {
		for i := range list {
			require.False(t, packets[list[i].Packet], "packet %d was granted twice", list[i].Packet)
			packets[list[i].Packet] = true
			receipts++
		}
		return nil
	}))
	require.Equal(t, receipts, f.Granted)
	for number := range w.withheld(t) {
		require.False(t, packets[number], "packet %d is withheld and granted", number)
	}
}

// A process that answered users for some of the lost grants is silent. The shard opens without a person, with all known
// grants. The packets that the silent process granted are withheld, and its users get them once it reports.
func TestPacketsOfASilentProcessAreWithheld(t *testing.T) {
	t.Parallel()
	for name, silentFirst := range map[string]bool{"the last grants": false, "grants before known ones": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			p, silent := w.process(t), w.process(t)
			p.watch(t)
			won := []map[string]hongbao.Receipt{p.wins(t, 10)}
			silent.wins(t, 1)
			old := w.older(t)
			var unreported map[string]hongbao.Receipt
			if silentFirst {
				unreported = silent.wins(t, 5)
			}
			won = append(won, p.wins(t, 5))
			if !silentFirst {
				unreported = silent.wins(t, 5)
			}
			w.restart(t, old)
			w.restores(t, w.guarded(), won...)
			withheld := w.withheld(t)
			for user, r := range unreported {
				require.Equal(t, r.Amount, withheld[r.Packet], "the packet of %s is withheld", user)
			}
			fences, err := w.ledger.Fences(t.Context(), 0)
			require.NoError(t, err)
			require.NotEmpty(t, w.logs.FilterMessageSnippet(fmt.Sprintf("packets withheld: %d, see `hongbao hole list`",
				len(withheld))).All())
			ids, err := w.ledger.Withholding(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{"rain"}, ids)
			n, err := w.store.Undecided(t.Context(), ids)
			require.NoError(t, err)
			require.EqualValues(t, len(withheld), n)
			require.Contains(t, fences[0].Note, fmt.Sprintf(`"withheld":%d`, len(withheld)))
			require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len(), "the shard opened without a person")
			for _, r := range p.wins(t, 100) {
				require.NotContains(t, withheld, r.Packet)
			}
			w.adds(t)

			w.wakes(t, silent, unreported)
			require.Len(t, w.withheld(t), len(withheld)-5)
			require.Empty(t, silent.alarms)
			w.adds(t)
			require.EqualValues(t, 10+1+5+100+5, w.settles(t))
			c, err := w.shard().Place(id).Close(t.Context(), true, 0)
			require.NoError(t, err)
			require.EqualValues(t, 1000-121, c.Close.Left, "withheld packets count as left")
		})
	}
}

// A silent process reports after its packets were withheld and before the shard opens. Its users get these packets.
func TestSilentProcessSpeaksDuringTheRestore(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p, silent := w.pair(t)
	old := w.older(t)
	unreported := silent.wins(t, 3)
	won := p.wins(t, 5)
	w.restart(t, old)
	for at := int64(1); w.rdb.HGet(t.Context(), w.shard().Keys.Meta(), "seq").Val() != "19"; at++ {
		require.Less(t, at, int64(100))
		client := w.server.Client(t)
		client.AddHook(&breaks{at: at})
		_ = w.guarded(func(c *recovery.Config) { c.Store = w.over(client) }).OpenFrozen(t.Context(), 0)
		require.NoError(t, w.rdb.Del(t.Context(), w.shard().Keys.Lock("recover")).Err()) // as if the lease had expired
	}
	z, err := w.shard().Freeze(t.Context())
	require.NoError(t, err)
	require.True(t, z.Frozen, "the restore is done and the shard is still frozen")
	withheld := w.withheld(t)
	require.Subset(t, withheld, packetsOf(unreported))
	silent.watch(t)
	w.restores(t, w.guarded(), won)
	w.keepsPackets(t, unreported)
	require.Len(t, w.withheld(t), len(withheld)-3)
	w.adds(t)
	require.EqualValues(t, 10+1+5+3, w.settles(t))
}

// A silent process reports after the opening, so its users get their packets under new seqs. Then Redis loses these
// grants, too. The process knows them under their new seqs, and its users keep their packets. Redis may also have lost
// the opening, so the process may report each grant under both seqs.
func TestLateGrantsAreLostOnceMore(t *testing.T) {
	t.Parallel()
	for name, age := range map[string]time.Duration{"after a recent opening": 0, "after an old opening": restore.Overlap + time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			p, silent := w.pair(t)
			old := w.older(t)
			unreported := silent.wins(t, 5)
			won := p.wins(t, 5)
			w.restart(t, old)
			w.restores(t, w.guarded(), won)
			opened := w.rdb.Time(t.Context()).Val()
			testkit.Eventually(t, 30*time.Second, func() bool {
				return w.rdb.Time(t.Context()).Val().Sub(opened) >= age
			}, "the opening has its age")
			old = w.older(t)
			w.wakes(t, silent, unreported)
			withheld := w.withheld(t)
			w.restart(t, old)
			require.Len(t, w.withheld(t), len(withheld)+5, "the fault fired")
			w.restores(t, w.guarded(), won)
			w.keepsPackets(t, unreported)
			require.Equal(t, withheld, w.withheld(t))
			w.adds(t)
			require.EqualValues(t, 10+1+5+5, w.settles(t))
		})
	}
}

func packetsOf(won map[string]hongbao.Receipt) map[int64]hongbao.Amount {
	all := map[int64]hongbao.Amount{}
	for _, r := range won {
		all[r.Packet] = r.Amount
	}
	return all
}

// A process is silent, and a recoverer dies at every third of its commands. Another one continues each time. Packets
// are withheld once, and users keep their packets.
func TestGuardedRecovererDiesAtEachStep(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	w := setup(t)
	p := w.process(t)
	p.watch(t)
	died := 0
	for at := int64(1); ; at += 3 {
		w.finishes(t)
		won := p.wins(t, 2)
		silent := w.process(t)
		silent.wins(t, 1)
		old := w.older(t)
		unreported := silent.wins(t, 1)
		more := p.wins(t, 2)
		before := len(w.withheld(t))
		w.restart(t, old)
		client := w.server.Client(t)
		hook := &breaks{at: at}
		client.AddHook(hook)
		few := func(c *recovery.Config) { c.Margin, c.Gather = time.Millisecond, 1200*time.Millisecond }
		err := w.guarded(few, func(c *recovery.Config) { c.Store = w.over(client) }).OpenFrozen(t.Context(), 0)
		require.NoError(t, w.rdb.Del(t.Context(), w.shard().Keys.Lock("recover")).Err()) // as if the lease had expired
		w.restores(t, w.guarded(few), won, more)
		require.Subset(t, w.withheld(t), packetsOf(unreported))
		require.Less(t, len(w.withheld(t)), before+10, "packets are withheld once")
		w.wakes(t, silent, unreported)
		w.adds(t)
		if err == nil && hook.n.Load() < at {
			break
		}
		died++
	}
	t.Logf("the recoverer died at %d commands", died)
	require.Greater(t, died, 10)
}

// dealsMore deals the top-up of ordersMore, as a worker does.
func (w *world) dealsMore(t *testing.T) {
	t.Helper()
	c, found, err := w.ledger.Campaign(t.Context(), id)
	require.NoError(t, err)
	require.True(t, found)
	l, err := load.New(w.store, knob.Defaults[load.Config]())
	require.NoError(t, err)
	plan := &campaign.Plan{Amounts: slices.Repeat([]hongbao.Amount{10}, int(c.Packets))}
	require.NoError(t, l.TopUp(t.Context(), &load.Generation{Spec: c.Spec, Hash: c.Hash, PlanHash: "h", Number: 2, Packets: c.Packets,
		Total: hongbao.Amount(c.Packets) * 10, Plan: plan}, func(int64) {}))
}

// A process is silent, and Redis has lost a top-up, of which the process may have granted packets. As many packets are
// withheld as soon as the top-up is dealt again, so no other user gets one of them.
func TestSilentProcessAndALostTopUp(t *testing.T) {
	t.Parallel()
	w := setup(t)
	_, silent := w.pair(t)
	p := w.process(t)
	p.watch(t)
	for left := 1000 - 11; left > 0; left -= 100 { // until all packets are gone
		p.wins(t, min(left, 100))
	}
	old := w.older(t)
	w.ordersMore(t)
	w.dealsMore(t)
	call := storetest.Call(id, "more1/r", "more2/r")
	call.Generation = 2
	answers, err := w.over(silent.rdb).Shard(0).Place(id).Grab(t.Context(), call, nil)
	require.NoError(t, err)
	unreported := map[string]hongbao.Receipt{}
	for i, a := range answers {
		require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
		unreported[fmt.Sprintf("more%d", i+1)] = a.Receipts[0]
	}
	w.restart(t, old)
	w.restores(t, w.guarded())
	require.Empty(t, w.withheld(t))
	require.NotEmpty(t, w.logs.FilterMessageSnippet("packets withheld: 5, see `hongbao hole list`").All(), "all of the top-up")
	w.dealsMore(t)
	withheld := w.withheld(t)
	for user, r := range unreported {
		require.Equal(t, r.Amount, withheld[r.Packet], "the packet of %s is withheld", user)
	}
	w.adds(t)
	w.wakes(t, silent, unreported)
	w.adds(t)
	c, err := w.shard().Place(id).Close(t.Context(), true, 0)
	require.NoError(t, err)
	require.EqualValues(t, 5-2, c.Close.Left, "what is withheld counts as left")
	require.EqualValues(t, 30, c.Close.LeftAmount)
}

// A process is silent, and a campaign over two shards has a place on the restored shard. All remaining packets of this
// place are withheld: users who found it empty may have continued to the other place. The other place continues.
func TestRestOfAPlaceIsWithheld(t *testing.T) {
	t.Parallel()
	w := setupOf(t, 4)
	wide := w.idAt(0)
	w.fundOver(t, wide, 0, 2)
	places := w.store.Places(wide, 2)
	w.grantOn(t, wide, places)
	known, silent := w.process(t), w.process(t)
	known.watch(t)
	for _, k := range places {
		storetest.Grab(t, w.over(known.rdb).Shard(k.Index()), wide, fmt.Sprintf("known%d/r", k.Index()))
	}
	w.looks(t, known) // the last write is later than the grants by more than the margin
	old := w.older(t)
	unreported := map[string]hongbao.Receipt{}
	answers, err := w.over(silent.rdb).Shard(0).Place(wide).Grab(t.Context(), storetest.Call(wide, "s1/r", "s2/r", "s3/r"), nil)
	require.NoError(t, err)
	for i, a := range answers {
		require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
		unreported[fmt.Sprint(i)] = a.Receipts[0]
	}
	_, err = w.over(known.rdb).Shard(0).Place(wide).Grab(t.Context(), storetest.Call(wide, "s4/r"), nil)
	require.NoError(t, err)
	w.restart(t, old)
	r := w.guarded(small)
	for shard := range 4 {
		w.openedBy(t, r, shard)
	}
	require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len())
	require.Equal(t, []string{"open", "open"}, w.states(t, wide, places))
	left := func(k *store.Shard) []int {
		list, err := k.Place(wide).Withheld(t.Context())
		require.NoError(t, err)
		return []int{int(w.rdb.LLen(t.Context(), k.Keys.Stock(wide)).Val()), len(list)}
	}
	home, other := left(places[0].Shard), left(places[1].Shard)
	require.Zero(t, home[0])
	require.Greater(t, home[1], 400)
	require.Greater(t, other[0], 400)
	require.Zero(t, other[1])
	require.Equal(t, w.revisions(t, wide, places[1:]), w.revisions(t, wide, places[:1]), "filters of the winners stay valid")
	list, err := places[0].Withheld(t.Context())
	require.NoError(t, err)
	for _, r := range unreported {
		require.Contains(t, list, store.Packet{Number: r.Packet, Amount: r.Amount})
	}
	for _, k := range places {
		_, err := k.CampaignFields(t.Context())
		require.NoError(t, err)
		e, err := k.Close(t.Context(), true, 0)
		require.NoError(t, err)
		require.EqualValues(t, left(k.Shard)[0]+left(k.Shard)[1], e.Close.Left)
	}
}

func (w *world) revisions(t *testing.T, id string, places []store.Place) (list []string) {
	t.Helper()
	for _, k := range places {
		revision, err := w.rdb.HGet(t.Context(), k.Keys.Campaign(id), "revision").Result()
		require.NoError(t, err)
		list = append(list, revision)
	}
	return list
}

// Redis loses an opening that withheld packets for events that no source knows. No source knows which packets these
// were, so the shard stays frozen for a person.
func TestLostOpeningThatWithheld(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p, silent := w.pair(t)
	old := w.older(t)
	silent.wins(t, 5)
	won := p.wins(t, 5)
	w.restart(t, old)
	w.restores(t, w.guarded(), won)
	p.wins(t, 5)
	w.restart(t, old)
	w.rec = w.guarded()
	w.staysFrozen(t)
	require.Contains(t, fmt.Sprint(w.logs.FilterMessageSnippet("went back").All()[0].ContextMap()), "which withheld packets")
}

// Redis loses an opening that withheld only a margin. The shard opens again by itself, and the packets that the silent
// process reported are still withheld.
func TestLostOpeningThatWithheldAMargin(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p, silent := w.pair(t)
	old := w.older(t)
	won := []map[string]hongbao.Receipt{p.wins(t, 5)}
	unreported := silent.wins(t, 5)
	w.restart(t, old)
	w.restores(t, w.guarded(long), won...)
	won = append(won, p.wins(t, 5))
	w.restart(t, old)
	w.restores(t, w.guarded(long), won...)
	require.Subset(t, w.withheld(t), packetsOf(unreported))
	require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len(), "the shard opened without a person")
	w.adds(t)
	w.wakes(t, silent, unreported)
	w.adds(t)
}

// dying is a ledger that ends its recoverer once the ledger has noted that the opening begins.
type dying struct {
	recovery.Ledger

	kill func()
}

func (d dying) NoteOpening(ctx context.Context, shard int, epoch int64, note string) error {
	err := d.Ledger.NoteOpening(ctx, shard, epoch, note)
	if strings.Contains(note, `"next_seq"`) {
		d.kill()
	}
	return err
}

// A recoverer withholds packets, notes that it opens the shard, and dies. Then Redis restarts with all that it had, so
// nothing is known to be lost, but the opening may have happened. Only a person can decide, and the command that the
// alarm names lets them.
func TestPersonDecidesAlthoughNothingIsKnownToBeLost(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p, silent := w.pair(t)
	old := w.older(t)
	silent.wins(t, 5)
	p.wins(t, 5)
	w.restart(t, old)
	ctx, kill := context.WithCancel(t.Context())
	require.Error(t, w.guarded(over(dying{w.ledger, kill})).OpenFrozen(ctx, 0))
	require.Error(t, ctx.Err(), "the fault fired")
	w.restart(t, "")
	w.rec = w.guarded()
	w.staysFrozen(t)
	reports, err := w.rec.Reports(t.Context())
	require.NoError(t, err)
	require.True(t, reports[0].Lost(), "the report says what the alarm says")
	require.NoError(t, w.rec.Accept(t.Context(), reports[0], by("ann", "no file is left")))
	_, err = w.shard().OpenHead(t.Context())
	require.NoError(t, err)
	accepted, err := w.rec.Accepted(t.Context())
	require.NoError(t, err)
	require.Contains(t, accepted[0].Lost, "which withheld packets")
	state, _, err := w.shard().Place(id).CampaignState(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.StateFrozen, state, "other users might get the withheld packets")
}
