package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// addTo writes n entries to shard 0, each with one grant of the campaign.
func (b *bundle) addTo(t *testing.T, campaign string, n int) {
	t.Helper()
	k := b.keys()
	for range n {
		b.seqs[0]++
		values := fields(b.seqs[0], 1)
		values[1] = strings.Replace(values[1].(string), "grant rain ", "grant "+campaign+" ", 1)
		require.NoError(t, b.rdb.HSet(t.Context(), k.Keys.Receipts(campaign), receipts(b.seqs[0], 1)...).Err())
		require.NoError(t, b.rdb.HSet(t.Context(), k.Keys.Campaign(campaign), "state", "open").Err())
		require.NoError(t, b.rdb.HSet(t.Context(), k.Keys.Meta(), "seq", b.seqs[0]).Err())
		b.raw(t, values...)
	}
}

// rejectsRain returns a sink that permanently rejects the grants of campaign rain until fixed is closed. why returns
// the text of each error.
func rejectsRain(fixed <-chan struct{}, why func(g *hongbao.Grant) string) *sink {
	return newSink(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		errs := make([]error, len(grants))
		for i := range grants {
			select {
			case <-fixed:
			default:
				if grants[i].Campaign == "rain" {
					errs[i] = hongbao.Errorf(hongbao.ClassPermanent, "%s", why(&grants[i]))
				}
			}
		}
		return errs
	})
}

// closedAccount returns error texts that differ only in the user and in words with digits, so they count as one
// reason.
func closedAccount(g *hongbao.Grant) string {
	return fmt.Sprintf("the bank answers 422: no account for %s (request 7f%02xab-c0de)", g.User, g.Seq)
}

// holds waits until n entries of shard 0 are parked and all other entries are finished.
func (b *bundle) holds(t *testing.T, sink string, n int64) {
	t.Helper()
	testkit.EventuallyOK(t, soon, func() error {
		st, err := b.keys().Group(sink).Status(t.Context())
		if err == nil && (st.Waiting != n || st.Parked != n) {
			err = fmt.Errorf("%d wait, %d are parked, want %d", st.Waiting, st.Parked, n)
		}
		return err
	}, "the rest waits")
}

func (b *bundle) pausedCampaigns(t *testing.T, shard int, sink string) (all []store.CampaignPause) {
	t.Helper()
	list, err := b.store.Shard(shard).Group(sink).PausedCampaigns(t.Context())
	require.NoError(t, err)
	for i := range list {
		if list[i].Paused {
			all = append(all, list[i])
		}
	}
	return all
}

func (b *bundle) resumeCampaign(t *testing.T, campaign string) {
	t.Helper()
	for shard := range b.store.Len() {
		_, _, err := b.store.Shard(shard).Group(group).ResumeCampaign(t.Context(), campaign, annSays("fixed"))
		require.NoError(t, err)
	}
}

// Three dead letters with the same reason pause the campaign for that sink on every shard. The campaign's other grants
// wait and lose no attempt. Another campaign and another sink continue. The dead letters do not count any more after
// an operator resumes the campaign.
func TestLettersPauseTheirCampaign(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	fixed := make(chan struct{})
	s := rejectsRain(fixed, closedAccount)
	cfg := b.config(t, "w", s)
	cfg.PauseLetters, cfg.BatchGrants = 3, 2
	w := start(t, cfg)
	b.addTo(t, "rain", 3)
	testkit.Eventually(t, soon, func() bool { return len(b.pausedCampaigns(t, 1, group)) == 1 }, "both shards have the pause")
	b.addTo(t, "rain", 5)
	b.addTo(t, "snow", 4)
	b.holds(t, group, 5)
	require.Equal(t, 4, s.size(), "the other campaign continued")
	letters := b.dead(t)
	require.Len(t, letters, 3)
	for seq := int64(4); seq <= 8; seq++ {
		came, _ := s.times(seq)
		require.Zero(t, came, "event %d was not tried", seq)
	}
	p := b.pausedCampaigns(t, 0, group)
	require.Len(t, p, 1)
	require.Equal(t, []any{"rain", "hongbao"}, []any{p[0].Campaign, p[0].By})
	require.Contains(t, p[0].Why, "3 dead letters within a minute: the bank answers 422")
	require.WithinDuration(t, time.Now(), p[0].At, time.Minute)
	require.EqualValues(t, 1, b.rdb.HLen(t.Context(), b.keys().Keys.Controls()).Val(), "the pause is queued for the ledger")
	require.Equal(t, 1, w.logs.FilterMessageSnippet("ALARM: too many grants of a campaign").Len())

	other := newSink(nil)
	ocfg := b.config(t, "other", other)
	ocfg.Group = "kafka"
	start(t, ocfg)
	testkit.Eventually(t, soon, func() bool { return other.size() == 12 }, "the other sink gets all grants")

	require.EqualValues(t, 5, w.Stats().Parked, "no worker looks at the grants before the resume")
	pending, err := b.rdb.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: b.keys().Keys.Events(), Group: group,
		Start: "-", End: "+", Count: 100}).Result()
	require.NoError(t, err)
	require.Len(t, pending, 5)
	for _, row := range pending {
		require.LessOrEqual(t, row.RetryCount, int64(1), "no attempt is lost")
	}

	b.resumeCampaign(t, "rain")
	// The cause is not fixed, so three more letters pause the campaign again. The letters before the resume do not
	// count.
	testkit.Eventually(t, soon, func() bool { return len(b.dead(t)) == 6 && len(b.pausedCampaigns(t, 0, group)) == 1 },
		"three more letters")
	b.holds(t, group, 2)
	close(fixed)
	b.resumeCampaign(t, "rain")
	b.idle(t, 0)
	require.Equal(t, 6, s.size())
	require.Len(t, b.dead(t), 6)
	require.NoError(t, w.stop())
}

// Two workers reach the limit of letters at the same time. The campaign is paused once, and only one worker raises the
// alarm.
func TestTwoWorkersPauseACampaignOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	var called [2]sync.Once
	var both sync.WaitGroup
	both.Add(2)
	workers := make([]*worker, 2)
	for i := range workers {
		cfg := b.config(t, fmt.Sprint("w", i), newSink(func(_ context.Context, batch hongbao.Batch) []error {
			grants := batch.Grants
			called[i].Do(both.Done)
			both.Wait() // so that neither worker sees the pause of the other
			errs := make([]error, len(grants))
			for j := range errs {
				errs[j] = hongbao.Errorf(hongbao.ClassPermanent, "no account")
			}
			return errs
		}))
		cfg.PauseLetters, cfg.BatchGrants = 1, 1
		workers[i] = start(t, cfg)
	}
	b.addTo(t, "rain", 40)
	said := func(text string) (n int) {
		for _, w := range workers {
			n += w.logs.FilterMessageSnippet(text).Len()
		}
		return n
	}
	testkit.Eventually(t, soon, func() bool {
		return said("ALARM: too many grants of a campaign")+said("the campaign is paused for the sink already") >= 2
	}, "both have paused it")
	require.Equal(t, 1, said("ALARM: too many grants of a campaign"))
	for shard := range b.store.Len() {
		p := b.pausedCampaigns(t, shard, group)
		require.Len(t, p, 1)
		require.Contains(t, p[0].Why, "1 dead letters within a minute: no account")
	}
	for _, w := range workers {
		require.NoError(t, w.stop())
	}
}

func TestFewLettersPauseNothing(t *testing.T) {
	t.Parallel()
	words := strings.Fields("closed frozen unknown blocked foreign minor")
	for name, c := range map[string]struct {
		limit int64
		why   func(g *hongbao.Grant) string
	}{
		"one fewer":         {7, closedAccount},
		"different reasons": {2, func(g *hongbao.Grant) string { return "the account is " + words[g.Seq-1] }},
		"never":             {0, closedAccount},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1)
			cfg := b.config(t, "w", rejectsRain(nil, c.why))
			cfg.PauseLetters = c.limit
			w := start(t, cfg)
			b.addTo(t, "rain", 6)
			testkit.Eventually(t, soon, func() bool { return len(b.dead(t)) == 6 }, "all are letters")
			b.idle(t, 0)
			require.NoError(t, w.stop())
			require.Empty(t, b.pausedCampaigns(t, 0, group))
		})
	}
}

// The grants of a batch that only a person can decide become dead letters. Their campaign is not paused: its other
// grants do not fail.
func TestUndecidedLettersDoNotPause(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	s := newSink(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		errs := make([]error, len(grants))
		for i := range grants {
			if grants[i].Seq <= 6 {
				errs[i] = hongbao.Undecidedf("a batch of 6 grants: a person has to decide")
			}
		}
		return errs
	})
	cfg := b.config(t, "w", s)
	cfg.PauseLetters = 3
	w := start(t, cfg)
	b.addTo(t, "rain", 9)
	testkit.Eventually(t, soon, func() bool { return len(b.dead(t)) == 6 }, "the batch's grants are letters")
	b.idle(t, 0)
	require.NoError(t, w.stop())
	require.Empty(t, b.pausedCampaigns(t, 0, group))
	require.Equal(t, 3, s.size(), "the other grants are delivered")
}

func TestLetterCounts(t *testing.T) {
	t.Parallel()
	g := func(campaign, user string) *hongbao.Grant { return &hongbao.Grant{Campaign: campaign, User: user} }
	one := kindOf(g("rain", "ann"), errors.New("no account ann, request 3f-aa9, code 17"))
	require.Equal(t, one, kindOf(g("rain", "bob"), errors.New("no account bob, request c0de-1, code 422")))
	require.NotEqual(t, one, kindOf(g("snow", "ann"), errors.New("no account ann, request 3f-aa9, code 17")))
	require.NotEqual(t, one, kindOf(g("rain", ""), errors.New("no such campaign")))

	var c letterCounts
	require.EqualValues(t, 1, c.add(one))
	require.EqualValues(t, 2, c.add(one))
	c.forget("snow")
	require.EqualValues(t, 3, c.add(one))
	c.forget("rain")
	require.EqualValues(t, 1, c.add(one))
	c.since = time.Now().Add(-time.Minute - time.Second)
	require.EqualValues(t, 1, c.add(one), "a minute has passed")
	for i := range maxLetterKinds {
		c.add(letterKind{"rain", fmt.Sprint(i)})
	}
	require.Len(t, c.n, maxLetterKinds)
	require.EqualValues(t, 2, c.add(one), "a known kind is still counted")
}

// A worker delivers the grants of two campaigns, and the sink rejects those of one. The hash of each campaign counts its
// own grants: done, or dead.
func TestGrantsAreCountedByCampaign(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	cfg := b.config(t, "w", rejectsRain(nil, closedAccount))
	cfg.BatchGrants = 2
	w := start(t, cfg)
	b.addTo(t, "snow", 3)
	b.addTo(t, "rain", 2)
	b.addTo(t, "snow", 2)
	b.idle(t, 0)
	require.Equal(t, map[string]string{"state": "open", "done:" + group: "5"},
		b.rdb.HGetAll(t.Context(), b.keys().Keys.Campaign("snow")).Val())
	require.Equal(t, map[string]string{"state": "open", "dead:" + group: "2"},
		b.rdb.HGetAll(t.Context(), b.keys().Keys.Campaign("rain")).Val())
	require.NoError(t, w.stop())
}
