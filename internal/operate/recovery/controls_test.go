package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	kept "github.com/hongbao-project/hongbao/internal/ledger/access"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/load"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func (w *world) loader(t *testing.T) *load.Loader {
	t.Helper()
	s, err := load.New(w.store, load.Config{Chunk: 1000, Pause: w.ledger.CampaignPause})
	require.NoError(t, err)
	return s
}

// state returns the campaign's state, and the person who last paused or resumed it.
func (w *world) state(t *testing.T) (state, by string) {
	t.Helper()
	fields, err := w.shard().Place(id).CampaignFields(t.Context())
	require.NoError(t, err)
	return fields.State, fields.PauseBy
}

func (w *world) waiting(t *testing.T) int64 {
	t.Helper()
	return w.rdb.HLen(t.Context(), w.store.Shard(0).Keys.Controls()).Val()
}

// Redis has lost the pauses of a campaign, of a sink and of a campaign for a sink, and a rate limit. They are restored
// from the ledger when the shard opens.
func TestPausesComeBackFromTheLedger(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ctx, seven := t.Context(), 7
	old := w.older(t)
	require.NoError(t, testkit.ErrOf(w.store.Campaign(id).Pause(ctx, by("ann", "the shop is closed"))))
	_, _, err := w.shard().Group("balance").Pause(ctx, by("bob", "the bank is closed"))
	require.NoError(t, err)
	_, _, err = w.shard().Group("kafka").Limit(ctx, &seven, by("cid", "slowly"))
	require.NoError(t, err)
	_, _, err = w.shard().Group("kafka").PauseCampaign(ctx, id, by("dan", "its letters"))
	require.NoError(t, err)
	require.EqualValues(t, 4, w.waiting(t))
	require.NoError(t, w.rec.KeepControls(ctx))
	require.Zero(t, w.waiting(t), "the ledger has all decisions")

	for _, files := range []string{old, ""} { // in the second round Redis has the restored decisions, and keeps them
		w.restart(t, files)
		if files != "" {
			state, _ := w.state(t)
			require.Equal(t, store.StateOpen, state, "the fault fired")
		}
		w.opens(t)
		state, by := w.state(t)
		require.Equal(t, store.StatePaused, state)
		require.Equal(t, "ann", by)
		require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomePaused: 1}, outcomes(w.grab(t, w.rdb, 1)))
		c, err := w.shard().Group("balance").Control(ctx)
		require.NoError(t, err)
		require.True(t, c.Paused)
		require.Equal(t, "bob", c.By)
		require.Equal(t, "the bank is closed", c.Why)
		require.WithinDuration(t, time.Now(), c.At, time.Minute)
		c, err = w.shard().Group("kafka").Control(ctx)
		require.NoError(t, err)
		require.Equal(t, 7, *c.Rate)
		require.Equal(t, "cid", c.Limited.By)
		require.Positive(t, c.Campaigns, "workers read the campaigns again")
		paused, err := w.shard().Group("kafka").PausedCampaigns(ctx)
		require.NoError(t, err)
		require.Len(t, paused, 1)
		require.True(t, paused[0].Paused)
		require.Equal(t, "dan", paused[0].By)
		require.Zero(t, w.waiting(t))
	}
}

// One person pauses a campaign and another one resumes it, or the reverse. A restart leaves only the first decision in
// the ledger or in Redis. After the opening both have the later decision.
func TestTheLaterDecisionCounts(t *testing.T) {
	t.Parallel()
	for _, want := range []string{store.StateOpen, store.StatePaused} {
		for _, redisHasFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, Redis has lost the second decision %t", want, redisHasFirst), func(t *testing.T) {
				t.Parallel()
				first, second := store.Campaign.Pause, store.Campaign.Resume
				if want == store.StatePaused {
					first, second = second, first
				}
				w := setup(t)
				ctx, c := t.Context(), w.store.Campaign(id)
				require.NoError(t, testkit.ErrOf(first(c, ctx, by("ann", "one"))))
				files := w.older(t)
				require.NoError(t, w.rec.KeepControls(ctx))
				require.NoError(t, testkit.ErrOf(second(c, ctx, by("bob", "two"))))
				if redisHasFirst {
					require.NoError(t, w.rec.KeepControls(ctx))
				} else {
					files = ""
				}
				w.restart(t, files)
				w.opens(t)
				state, by := w.state(t)
				require.Equal(t, want, state)
				require.Equal(t, "bob", by)
				require.NoError(t, w.rec.KeepControls(ctx))
				kept, err := w.ledger.CampaignPause(ctx, id)
				require.NoError(t, err)
				require.Equal(t, want, kept.Value)
				require.Equal(t, "two", kept.Why)
			})
		}
	}
}

// Redis has lost the pause of a sink, and a person resumes the sink while its shard is frozen. The resume changes
// nothing in Redis, but it is newer than the pause in the ledger, so the sink is not paused after the opening.
func TestResumeThatChangesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ctx := t.Context()
	old := w.older(t)
	_, _, err := w.shard().Group("balance").Pause(ctx, by("ann", "the bank is closed"))
	require.NoError(t, err)
	require.NoError(t, w.rec.KeepControls(ctx))
	w.restart(t, old)
	changed, _, err := w.shard().Group("balance").Resume(ctx, by("bob", "it is open"))
	require.NoError(t, err)
	require.False(t, changed, "the fault fired")
	w.opens(t)
	c, err := w.shard().Group("balance").Control(ctx)
	require.NoError(t, err)
	require.False(t, c.Paused)
}

type downLedger struct{ *ledger.Ledger }

var errDown = errors.New("the ledger is down")

func (downLedger) KeepControls(context.Context, ...stream.Control) error { return errDown }

// A decision waits in Redis while the ledger is down. Later another worker copies it to the ledger.
func TestDecisionsWaitForTheLedger(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ctx := t.Context()
	require.NoError(t, testkit.ErrOf(w.store.Campaign(id).Pause(ctx, by("ann", "the shop is closed"))))
	down := w.recoverer(func(c *recovery.Config) { c.Ledger = downLedger{w.ledger} })
	require.ErrorIs(t, down.KeepControls(ctx), errDown)
	require.EqualValues(t, 1, w.waiting(t))
	w.restart(t, "")
	w.opens(t)
	require.Zero(t, w.waiting(t))

	require.NoError(t, testkit.ErrOf(w.store.Campaign(id).Resume(ctx, by("bob", "it is open"))))
	stop := testkit.Go(t, func(ctx context.Context) error { return w.rec.Run(ctx, nil) })
	testkit.Eventually(t, 20*time.Second, func() bool {
		kept, err := w.ledger.CampaignPause(ctx, id)
		require.NoError(t, err)
		return kept.Value == store.StateOpen && kept.By == "bob"
	}, "a worker copies the decision to the ledger")
	stop()
}

// The journal has each pause of a worker once: the worker repeats a pause at each further grant, on each shard, and
// several workers copy it to the ledger.
func TestPausesOfWorkersAreInTheJournal(t *testing.T) {
	t.Parallel()
	w := setupOf(t, 2)
	ctx := t.Context()
	name := w.idAt(1)
	w.order(t, name, time.Hour, 2)
	w.load(t, name)
	campaigns := w.store.Campaign(name)
	pause := func(by stream.Decision) {
		t.Helper()
		for range 2 {
			require.NoError(t, testkit.ErrOf(campaigns.Pause(ctx, by)))
			for shard := range 2 {
				_, _, err := w.store.Shard(shard).Group("kafka").PauseCampaign(ctx, name, by)
				require.NoError(t, err)
			}
			for range 2 {
				require.NoError(t, w.recoverer(func(*recovery.Config) {}).KeepControls(ctx))
			}
		}
	}
	resume := func() {
		t.Helper()
		require.NoError(t, testkit.ErrOf(campaigns.Resume(ctx, by("ann", "repaired"))))
		for shard := range 2 {
			_, _, err := w.store.Shard(shard).Group("kafka").ResumeCampaign(ctx, name, by("ann", "repaired"))
			require.NoError(t, err)
		}
	}
	entries := func() (list []string) {
		t.Helper()
		page, err := kept.Of(w.ledger.Tables()).Journal(ctx, access.JournalQuery{Campaign: name, Limit: 100})
		require.NoError(t, err)
		for _, e := range page.Entries {
			require.Equal(t, access.OutcomeDone, e.Outcome)
			require.WithinDuration(t, time.Now(), e.Time, time.Minute)
			list = append(list, fmt.Sprint(e.Who, " ", e.Action, " ", e.Sink, " ", e.Details["why"]))
		}
		slices.Sort(list)
		return list
	}
	worker := by(stream.ByWorker, "a grant is in quarantine")
	once := []string{"hongbao pause_campaign  a grant is in quarantine", "hongbao pause_sink kafka a grant is in quarantine"}
	pause(worker)
	require.Equal(t, once, entries())
	resume()
	pause(by("ann", "a mistake"))
	require.Equal(t, once, entries(), "commands write the entries of people")
	resume()
	pause(worker)
	require.Equal(t, []string{once[0], once[0], once[1], once[1]}, entries())
}

// Redis lost a paused campaign before its first grant. The campaign is loaded again and is still paused.
func TestAPausedCampaignIsLoadedAgain(t *testing.T) {
	t.Parallel()
	w := setupOf(t, 2)
	ctx := t.Context()
	for shard := range 2 {
		name := w.idAt(shard)
		w.order(t, name, time.Hour, 2)
		w.load(t, name)
		loader := w.loader(t)
		require.NoError(t, testkit.ErrOf(w.store.Campaign(name).Pause(ctx, by("ann", "a mistake"))))
		require.NoError(t, w.rec.KeepControls(ctx))
		for i := range 2 {
			for _, key := range w.rdb.Keys(ctx, w.store.Shard(i).Keys.Campaign(name)+"*").Val() {
				require.NoError(t, w.rdb.Del(ctx, key).Err())
			}
		}
		c, _, err := w.ledger.Campaign(ctx, name)
		require.NoError(t, err)
		plan, err := campaign.NewPlan(c.Spec, c.Seed)
		require.NoError(t, err)
		require.NoError(t, loader.Load(ctx, c.Spec, plan, c.Hash, nil))
		for i := range 2 {
			state, _, err := w.store.Shard(i).Place(name).CampaignState(ctx)
			require.NoError(t, err)
			require.Equal(t, store.StatePaused, state)
		}
	}
}
