package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
)

// rains returns two campaigns. Callers of "a" were told of three grants, and callers of "b" of one grant.
func rains() []*raining {
	a := newRaining(&hongbao.Campaign{ID: "a", Total: 100, Packets: 5})
	b := newRaining(&hongbao.Campaign{ID: "b", Total: 10, Packets: 1})
	for _, g := range granted() {
		c := a
		if g.Campaign == "b" {
			c = b
		}
		c.announced[g.Packet] = factOf(&g)
	}
	return []*raining{a, b}
}

func granted() []hongbao.Grant {
	return []hongbao.Grant{
		{Campaign: "a", Packet: 1, User: "ann", Amount: 10, Shard: 0, Seq: 1},
		{Campaign: "a", Packet: 2, User: "ben", Amount: 20, Shard: 0, Seq: 2},
		{Campaign: "a", Packet: 3, User: "cid", Amount: 30, Shard: 0, Seq: 3},
		{Campaign: "b", Packet: 1, User: "ann", Amount: 10, Shard: 1, Seq: 1},
	}
}

func TestTally(t *testing.T) {
	t.Parallel()
	type counts struct{ events, duplicates, missing int64 }
	for name, c := range map[string]struct {
		change func([]hongbao.Grant) []hongbao.Grant
		want   counts
	}{
		"all":       {func(g []hongbao.Grant) []hongbao.Grant { return g }, counts{4, 0, 0}},
		"none":      {func([]hongbao.Grant) []hongbao.Grant { return nil }, counts{0, 0, 4}},
		"one less":  {func(g []hongbao.Grant) []hongbao.Grant { return g[1:] }, counts{3, 0, 1}},
		"one twice": {func(g []hongbao.Grant) []hongbao.Grant { return append(g, g[1]) }, counts{5, 1, 0}},
		"one for another": {func(g []hongbao.Grant) []hongbao.Grant {
			g[0] = g[1]
			return g
		}, counts{4, 1, 1}},
		"nobody was told of it": {func(g []hongbao.Grant) []hongbao.Grant {
			return append(g, hongbao.Grant{Campaign: "b", Packet: 2, User: "eve", Amount: 1, Shard: 1, Seq: 2})
		}, counts{5, 0, 0}},
		"of no campaign": {func(g []hongbao.Grant) []hongbao.Grant {
			g[3].Campaign = "c"
			return g
		}, counts{4, 0, 1}},
		"another user": {func(g []hongbao.Grant) []hongbao.Grant {
			g[2].User = "eve"
			return g
		}, counts{4, 0, 1}},
		"another amount": {func(g []hongbao.Grant) []hongbao.Grant {
			g[2].Amount++
			return g
		}, counts{4, 0, 1}},
		"another packet": {func(g []hongbao.Grant) []hongbao.Grant {
			g[2].Packet = 4
			return g
		}, counts{4, 0, 1}},
		"another seq": {func(g []hongbao.Grant) []hongbao.Grant {
			g[2].Seq = 9
			return g
		}, counts{4, 0, 1}},
		"another shard": {func(g []hongbao.Grant) []hongbao.Grant {
			g[2].Shard = 1
			return g
		}, counts{4, 0, 1}},
		"a wrong copy before the right one": {func(g []hongbao.Grant) []hongbao.Grant {
			wrong := g[0]
			wrong.Amount++
			return append([]hongbao.Grant{wrong}, g...)
		}, counts{5, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tally := newTally(rains())
			for _, g := range c.change(granted()) {
				tally.add(&g)
			}
			require.Equal(t, c.want, counts{tally.events, tally.duplicates, tally.missing()})
		})
	}
}

func good() Outcome {
	return Outcome{
		Grabs: 20, Granted: 4, Settled: 4, Published: 4, Kills: minKills, Stops: minStops, Audit: agrees,
		Refunds: 2, Replayed: 4, ReplayKills: replayKills,
	}
}

// A wrong value of any number fails the run.
func TestJudge(t *testing.T) {
	t.Parallel()
	o := good()
	require.NoError(t, o.judge(2, ""))
	require.ErrorContains(t, o.judge(3, ""), "2 refunds for 3 campaigns")
	require.Error(t, (&Outcome{}).judge(0, ""))
	for says, change := range map[string]func(*Outcome){
		"1 grants are lost":                     func(o *Outcome) { o.Lost = 1 },
		"the balance of 1 users differs":        func(o *Outcome) { o.DoubleCredits = 1 },
		"1 grants are in the topic":             func(o *Outcome) { o.Duplicates = 1 },
		"granted, settled and published grants": func(o *Outcome) { o.Settled = 3 },
		"published grants differ":               func(o *Outcome) { o.Published = 5 },
		"0 were granted":                        func(o *Outcome) { o.Granted, o.Settled, o.Published = 0, 0, 0 },
		"the audit differs":                     func(o *Outcome) { o.Audit = "differs" },
		"only 9 kills":                          func(o *Outcome) { o.Kills = 9 },
		"and 2 stops":                           func(o *Outcome) { o.Stops = 2 },
		"1 refunds for 2":                       func(o *Outcome) { o.Refunds = 1 },
		"3 refunds for 2":                       func(o *Outcome) { o.Refunds = 3 },
		"killed only 9 times":                   func(o *Outcome) { o.ReplayKills = 9 },
		"3 events were replayed":                func(o *Outcome) { o.Replayed = 3 },
		"5 events were replayed":                func(o *Outcome) { o.Replayed = 5 },
		"the replay made 1 dup":                 func(o *Outcome) { o.ReplayDuplicates = 1 },
		"the replay misses 1 grants":            func(o *Outcome) { o.ReplayMissing = 1 },
	} {
		o := good()
		change(&o)
		require.ErrorContains(t, o.judge(2, ""), says)
	}
	require.ErrorContains(t, o.judge(2, "replica"), "no replica was promoted")
	o.Failovers = 1
	require.NoError(t, o.judge(2, "replica"))
	require.ErrorContains(t, o.judge(2, "fast"), "no failover lost a grant")
	o.Restored = 1
	require.NoError(t, o.judge(2, "fast"))
}

func TestJudgeRefunds(t *testing.T) {
	t.Parallel()
	all := []refunded{{"a", 40}, {"b", 0}}
	sum, err := judgeRefunds(all, rains())
	require.NoError(t, err)
	require.EqualValues(t, 40, sum)
	for says, refunds := range map[string][]refunded{
		"campaign a has 0 refunds of 0 in all: want 1 of 40":  {{"b", 0}},
		"campaign b has 0 refunds of 0 in all: want 1 of 0":   {{"a", 40}},
		"campaign a has 1 refunds of 39 in all: want 1 of 40": {{"a", 39}, {"b", 0}},
		"campaign a has 2 refunds of 40 in all: want 1 of 40": {{"a", 20}, {"a", 20}, {"b", 0}},
		"campaign b has 2 refunds of 0 in all: want 1 of 0":   {{"a", 40}, {"b", 0}, {"b", 0}},
		"refunds of 3 campaigns: there are 2":                 {{"a", 40}, {"b", 0}, {"c", 1}},
	} {
		_, err := judgeRefunds(refunds, rains())
		require.ErrorContains(t, err, says)
	}
	none := rains()[1:]
	_, err = judgeRefunds([]refunded{{"b", 0}}, none)
	require.ErrorContains(t, err, "no campaign had money left")
}

func TestJudgeVerified(t *testing.T) {
	t.Parallel()
	a := rains()[0]
	require.NoError(t, judgeVerified([]byte("campaign a verifies\n3 grants, 0.60 CNY in all\n"), a))
	for _, out := range []string{"", "campaign a verifies\n", "campaign a verifies\n2 grants, 0.30 CNY\n",
		"campaign a verifies\n13 grants, 0.60 CNY\n"} {
		require.ErrorContains(t, judgeVerified([]byte(out), a), "other grants than the 3")
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	require.NoError(t, same([]string{"x", "x", "x"}))
	require.Error(t, same([]string{"x", "x", "y"}))
	require.Error(t, same([]string{"y", "x", "x"}))
	require.Error(t, same([]string{"", "", ""}), "they said nothing")
}

func TestJudgeReport(t *testing.T) {
	t.Parallel()
	well := model.ReplayReport{Finished: true, Matched: 100, Before: 93, Delivered: 7}
	require.NoError(t, judgeReport(&well, 100, 93))
	require.NoError(t, judgeReport(&well, 100, 91), "batches in flight at the kill may have arrived")
	// one of the events is a close
	resumed := model.ReplayReport{Finished: true, Resumed: 81, Matched: 20, Before: 13, Delivered: 7}
	require.NoError(t, judgeReport(&resumed, 100, 93))
	resumed.Resumed = 79
	require.Error(t, judgeReport(&resumed, 100, 92), "a grant was left out")
	for what, change := range map[string]func(*model.ReplayReport){
		"not finished":                    func(r *model.ReplayReport) { r.Finished = false },
		"a grant was not there":           func(r *model.ReplayReport) { r.Matched, r.Delivered = 99, 6 },
		"one was not delivered":           func(r *model.ReplayReport) { r.Delivered = 6 },
		"one was delivered a second time": func(r *model.ReplayReport) { r.Delivered = 8 },
		"it began from the start":         func(r *model.ReplayReport) { r.Before, r.Delivered = 0, 100 },
	} {
		r := well
		change(&r)
		require.Error(t, judgeReport(&r, 100, 93), what)
	}
}

// The kills are spread evenly over the replay. Each comes after more grants than the previous one, and the last comes
// before the end.
func TestKillsAreSpread(t *testing.T) {
	t.Parallel()
	for _, all := range []int64{replayKills + 1, 1_000, 38_000, 285_000} {
		before := int64(0)
		for k := int64(1); k <= replayKills; k++ {
			at := killAt(k, all, before)
			require.Greater(t, at, before)
			require.Less(t, at, all)
			require.InDelta(t, float64(k)/(replayKills+1), float64(at)/float64(all), 0.02)
			before = at
		}
		require.Equal(t, all-1, killAt(1, all, all-2), "after a late kill the next kill comes later")
	}
}

// A good verdict of a later audit does not replace a bad one.
func TestFirstBadVerdictStays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ verdicts, want string }{
		{"agrees agrees", agrees}, {"differs agrees", "differs"}, {"agrees differs", "differs"}, {"agrees", agrees},
	} {
		o := Outcome{}
		for _, v := range strings.Fields(c.verdicts) {
			o.audited(v)
		}
		require.Equal(t, c.want, o.Audit)
	}
}
