package main

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/local"
)

// A wave has two campaigns, on different shards and with different limits. Each campaign is in one wave.
func TestTurns(t *testing.T) {
	t.Parallel()
	const packets = 1_000
	total := int64(packets * grabsPerPacket * shardCount * perShard)
	waveOf := map[int64]int64{}
	turns := map[int64]int64{}
	for k := range total {
		c, wave := turn(k, total), k*waves/total
		if turns[c]++; turns[c] == 1 {
			waveOf[c] = wave
		}
		require.Equal(t, waveOf[c], wave, "campaign %d", c)
	}
	require.Len(t, turns, shardCount*perShard)
	for c, n := range turns {
		require.EqualValues(t, packets*grabsPerPacket, n, "campaign %d", c)
		for d := range c {
			if waveOf[c] == waveOf[d] {
				require.NotEqual(t, c/perShard, d/perShard, "shard")
				require.NotEqual(t, c%perShard, d%perShard, "kind of limits")
			}
		}
	}
}

// With one packet for each user, packets are granted during nine tenths of the grabs, half of them in the first tenth.
// In the last tenth all users are new, and come too late.
func TestCallersLeaveStockForMostOfTheRun(t *testing.T) {
	t.Parallel()
	for _, packets := range []int64{5_000, 7_500, 37_500} {
		all := packets * grabsPerPacket
		users, requests := map[int64]bool{}, map[int64]int64{}
		var repeats, more int64
		for k := range all {
			user, request := caller(k, all)
			if owner, ok := requests[request]; ok {
				repeats++
				require.Equal(t, owner, user, "a repeat comes from the same user")
			} else if users[user] {
				more++
			}
			require.LessOrEqual(t, user, k)
			requests[request], users[user] = user, true
			switch k + 1 {
			case all / 10:
				require.Len(t, users, int(packets/2))
			case all * 85 / 100:
				require.Less(t, len(users), int(packets))
			case all * 9 / 10:
				require.InDelta(t, packets, len(users), float64(packets)/100)
			}
		}
		require.InDelta(t, float64(packets)*3/2, len(users), float64(packets)/100)
		require.Greater(t, repeats, 3*all/5)
		require.Greater(t, more, all/25)
	}
	for all := range int64(40) { // even a small run has valid callers
		for k := range all {
			user, request := caller(k, all)
			require.True(t, user >= 0 && user <= k && request >= 0 && request <= k)
		}
	}
}

// note reports each answer that contradicts earlier answers.
func TestNote(t *testing.T) {
	t.Parallel()
	first := hongbao.Receipt{Packet: 1, Amount: 10, Shard: 2, Seq: 7, RequestID: "r1"}
	other, wrong := first, first
	other.Packet, wrong.Amount = 2, 11
	granted := func(r hongbao.Receipt) hongbao.Answer {
		return hongbao.Answer{Outcome: hongbao.OutcomeGranted, Receipts: []hongbao.Receipt{r}}
	}
	for name, c := range map[string]struct {
		request, user string
		answer        hongbao.Answer
		known         bool
		says          string
	}{
		"repeated":        {"r1", "ann", granted(first), true, ""},
		"another packet":  {"r1", "ann", granted(other), true, "and when repeated"},
		"another at once": {"r1", "ann", granted(other), false, "and when repeated"},
		"refused when repeated": {"r1", "ann", hongbao.Answer{Outcome: hongbao.OutcomeSoldOut}, true,
			"and when repeated sold_out"},
		"refused": {"r2", "ben", hongbao.Answer{Outcome: hongbao.OutcomeSoldOut}, false, ""},
		"has it already": {"r2", "ann",
			hongbao.Answer{Outcome: hongbao.OutcomeAlreadyGranted, Receipts: []hongbao.Receipt{first}}, false, ""},
		"one packet to two": {"r2", "ben", granted(first), false, "packet 1 was given to"},
		"another amount of it": {"r2", "ann", hongbao.Answer{Outcome: hongbao.OutcomeAlreadyGranted,
			Receipts: []hongbao.Receipt{wrong}}, false, "packet 1 was given to"},
		"what nobody may get": {"r2", "ben", hongbao.Answer{Outcome: hongbao.OutcomePaused}, false,
			"unexpected outcome paused"},
		"one more for the user":  {"r2", "ann", granted(other), false, ""},
		"one more for all users": {"r2", "ben", granted(other), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRaining(&hongbao.Campaign{ID: "a", Total: 100, Packets: 5})
			a := granted(first)
			require.False(t, r.knows("r1"))
			r.note(&hongbao.Grab{Campaign: "a", User: "ann", RequestID: "r1"}, &a, false)
			require.True(t, r.knows("r1"))
			require.Empty(t, r.trouble)
			r.note(&hongbao.Grab{Campaign: "a", User: c.user, RequestID: c.request}, &c.answer, c.known)
			if c.says == "" {
				require.Empty(t, r.trouble)
				return
			}
			require.NotEmpty(t, r.trouble)
			require.ErrorContains(t, r.trouble[0], c.says)
		})
	}
}

func TestHasWork(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pending, lag int64
		want         bool
	}{{0, 0, false}, {1, 0, true}, {0, 1, true}, {0, -1, false}, {1, -1, true}} {
		groups := []redis.XInfoGroup{{Name: "kafka"}, {Name: "balance", Pending: c.pending, Lag: c.lag}}
		require.Equal(t, c.want, hasWork(groups, "balance"), "%+v", c)
		require.False(t, hasWork(groups, "kafka"), "another group's")
		require.False(t, hasWork(groups, "push"), "no such group")
	}
}

func TestJudgeBusy(t *testing.T) {
	t.Parallel()
	require.NoError(t, judgeBusy(17, 34))
	require.NoError(t, judgeBusy(18, 35))
	require.ErrorContains(t, judgeBusy(16, 34), "only 16 of 34 kills hit a worker whose group had work")
	require.Error(t, judgeBusy(17, 35))
}

// If a worker was restarted more often than it was killed, it has ended without a kill.
func TestJudgeStarts(t *testing.T) {
	t.Parallel()
	all := []local.Worker{{Number: 1, Starts: 4}, {Number: 2, Starts: 1}}
	require.NoError(t, judgeStarts(all, 3))
	require.NoError(t, judgeStarts(all, 4), "the last killed worker was not restarted")
	require.ErrorContains(t, judgeStarts(all, 2), "started again 3 times after 2 kills")
}
