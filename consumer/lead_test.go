package consumer

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

func (b *bundle) scriptCalls(t *testing.T) int {
	t.Helper()
	text, err := b.rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	m := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(text)
	require.Len(t, m, 2)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}

// Because only one worker leads, twenty workers with their trimmers poll Redis little more than one worker does.
func TestTwentyWorkersPollAsOne(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}), 1)
	s := newSink(nil)
	const poll = 100 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	trimmed := make(chan error, 20)
	for i := range 20 {
		cfg := b.config(t, fmt.Sprint("w", i), s)
		cfg.Poll, cfg.Block = poll, time.Second
		start(t, cfg)
		tc := DefaultTrimmerConfig()
		tc.Deployment, tc.Groups, tc.Every = cfg.Deployment, []string{group}, poll
		tr, err := NewTrimmer(tc)
		require.NoError(t, err)
		go func() { trimmed <- tr.Run(ctx) }()
	}
	k := b.keys()
	testkit.Eventually(t, soon, func() bool {
		st, err := k.Group(group).Status(t.Context())
		return err == nil && len(st.Workers) == 20
	}, "all work")
	begin, before := time.Now(), b.scriptCalls(t)
	testkit.Eventually(t, soon, func() bool { return time.Since(begin) > 4*time.Second }, "a while")
	calls, polls := b.scriptCalls(t)-before, float64(time.Since(begin)/poll)
	t.Logf("%d scripts in %.0f polls", calls, polls)
	// Per poll, the leading worker runs one script (reclaim), and the leading trimmer three (lead, trim,
	// remove_idle_consumers). Each of the 19 others makes about two calls in ten polls.
	require.Less(t, float64(calls), polls*(4*1.3+19*2*0.13), "20 workers without a lead make over 60 calls per poll")
	stop()
	for range 20 {
		require.NoError(t, <-trimmed)
	}
}

// The leading worker is killed. When its lead expires, another worker leads, and reclaims the dead leader's entries
// when their lease expires.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	cmd := b.child(t, childHold, "leader")
	leads := func(who string) func() bool {
		return func() bool { return b.rdb.Get(t.Context(), b.keys().Keys.Lead(group)).Val() == who }
	}
	testkit.Eventually(t, soon, leads("leader"), "it leads")
	s := newSink(nil)
	cfg := b.config(t, "peer", s)
	cfg.Lease = shortLease
	w := start(t, cfg)
	b.add(t, 0, 5)
	testkit.Eventually(t, soon, func() bool { return len(b.notes(t, "leader holds")) == 1 || s.size() == 5 }, "one worker has the entry")
	require.NoError(t, cmd.Process.Kill())
	<-cmd.ended
	b.idle(t, 0)
	testkit.Eventually(t, soon, leads("peer"), "the other worker leads")
	require.NoError(t, w.stop())
	s.onceEach(t, 5)
	require.Empty(t, b.rdb.Get(t.Context(), b.keys().Keys.Lead(group)).Val(), "a worker that stops releases its lead")
}

// A trimmer that gets the lead back discards what it knew from its earlier lead, because that may be outdated.
func TestOneTrimmerLeads(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	one, _ := b.trimmer(t, group)
	two, _ := b.trimmer(t, group)
	one.cfg.Every, two.cfg.Every = time.Minute, time.Minute
	leads := func(tr *Trimmer) bool {
		ok, err := tr.leads(t.Context(), 0)
		require.NoError(t, err)
		return ok
	}
	require.True(t, leads(one))
	require.False(t, leads(two))
	one.at[0] = newTrimming(7)
	require.True(t, leads(one))
	require.EqualValues(t, 7, one.at[0].epoch, "a trimmer that keeps its lead keeps its memory")
	require.NoError(t, one.endLeads(t.Context()))
	two.next[0] = time.Now()
	require.True(t, leads(two))
	require.False(t, leads(one))
	require.NoError(t, two.endLeads(t.Context()))
	one.next[0] = time.Now()
	require.True(t, leads(one))
	require.Zero(t, one.at[0].epoch)
}

func TestTrimmerLeadIsBounded(t *testing.T) {
	t.Parallel()
	lead := func(every time.Duration) time.Duration { return (&Trimmer{cfg: TrimmerConfig{Every: every}}).lead() }
	require.Equal(t, 10*time.Second, lead(time.Second))
	require.Equal(t, 102*time.Second, lead(time.Minute))
	require.Less(t, lead(time.Hour), 75*time.Minute)
}
