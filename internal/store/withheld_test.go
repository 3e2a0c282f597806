package store_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/load"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// thaw ends a restore attempt and makes the shard open.
func (b *bundle) thaw(t *testing.T) {
	t.Helper()
	require.NoError(t, b.rdb.HDel(t.Context(), b.k.Keys.Meta(), "frozen", "mend", "seen").Err())
}

var firstWithheld = store.Packet{Number: 1, Amount: 7}

// withheldThree loads a campaign of ten packets and withholds three. The first of them is firstWithheld.
func withheldThree(t *testing.T, b *bundle) {
	t.Helper()
	c := spec("rain", 10)
	c.Split = hongbao.Split{Mode: hongbao.SplitEven}
	c.Total = 10 * firstWithheld.Amount
	b.load(t, c)
	stock := b.rdb.LRange(t.Context(), b.k.Keys.Stock("rain"), 0, -1).Val()
	for i, p := range stock { // moves packet 1 to the front
		if p == firstWithheld.String() {
			require.NoError(t, b.rdb.LSet(t.Context(), b.k.Keys.Stock("rain"), int64(i), stock[0]).Err())
			require.NoError(t, b.rdb.LSet(t.Context(), b.k.Keys.Stock("rain"), 0, p).Err())
		}
	}
	b.begin(t)
	require.NoError(t, b.k.Withhold(t.Context(), attempt, "rain", store.Withholding{Last: 1, Front: []int{3}}))
	b.thaw(t)
}

// stocked makes random grants, restores and releases of packets in a campaign.
type stocked struct {
	*bundle

	t      *testing.T
	c      hongbao.Campaign
	random *rand.Rand
	users  int
	last   int64 // last event for which packets are withheld
}

func (s *stocked) user() string { s.users++; return fmt.Sprint("u", s.users) }

// adds checks that the campaign's counts match its stock and its withheld packets.
func (s *stocked) adds(step string) {
	s.t.Helper()
	count, sum := int64(0), int64(0)
	for _, key := range []string{s.k.Keys.Stock("rain"), s.k.Keys.Withheld("rain")} {
		for _, text := range s.rdb.LRange(s.t.Context(), key, 0, -1).Val() {
			var p, amount int64
			_, err := fmt.Sscan(text, &p, &amount)
			require.NoError(s.t, err)
			count, sum = count+1, sum+amount
		}
	}
	f, err := s.k.Place("rain").CampaignFields(s.t.Context())
	require.NoError(s.t, err, step)
	require.Equal(s.t, []int64{s.c.Packets - count, int64(s.c.Total) - sum}, []int64{f.Granted, int64(f.GrantedAmount)}, step)
}

// restores makes a restore attempt with the given epoch. Of the next packets, some are granted again, and the others
// are withheld.
func (s *stocked) restores(epoch int64) {
	s.t.Helper()
	ctx, a := s.t.Context(), attempt
	a.Epoch = epoch
	s.last++
	front, err := s.k.Place("rain").Front(ctx, 1, int64(1+s.random.IntN(10)))
	require.NoError(s.t, err)
	var stay []store.Packet
	for _, p := range front[0] {
		if s.random.IntN(2) == 0 {
			stay = append(stay, p)
		}
	}
	s.freeze(s.t)
	head, err := s.k.Head(ctx)
	require.NoError(s.t, err)
	require.NoError(s.t, s.k.Begin(ctx, &store.Frozen{Seq: head.Seq, Epoch: head.Epoch}, a))
	before := len(s.withheld())
	for range 2 {
		require.NoError(s.t, s.k.Withhold(ctx, a, "rain", store.Withholding{Last: s.last, Front: []int{len(front[0])}, Stay: stay}))
		require.Len(s.t, s.withheld(), before+len(front[0])-len(stay))
	}
	_, last, err := s.k.Place("rain").CountWithheld(ctx)
	require.NoError(s.t, err)
	require.Equal(s.t, s.last, last)
	s.adds("withhold")
	s.random.Shuffle(len(stay), func(i, j int) { stay[i], stay[j] = stay[j], stay[i] })
	if held := s.withheld(); len(held) > 0 && s.random.IntN(2) == 0 { // evidence for a withheld packet arrives later
		stay = append(stay, held[s.random.IntN(len(held))])
	}
	for i, p := range stay {
		g := hongbao.Grant{Campaign: "rain", User: s.user(), Seq: head.Seq + 1 + int64(i), Packet: p.Number, Amount: p.Amount,
			Time: time.UnixMilli(1_800_000_000_000)}
		require.NoError(s.t, s.k.RestoreGrants(ctx, a, run(g)))
		s.adds("regrant")
	}
	s.thaw(s.t)
}

func (s *stocked) withheld() []store.Packet {
	held, err := s.k.Place("rain").Withheld(s.t.Context())
	require.NoError(s.t, err)
	return held
}

func (s *stocked) step(n int64) {
	s.t.Helper()
	held := s.withheld()
	switch s.random.IntN(4) {
	case 0:
		for range s.random.IntN(6) {
			s.grab(s.t, "rain", s.user())
		}
		s.adds("grabs")
	case 1:
		s.restores(attempt.Epoch + n)
	case 2:
		still, why, err := store.ReleaseSome(s.t.Context(), s.k, "rain", 1+s.random.IntN(4))
		require.NoError(s.t, err)
		require.Empty(s.t, why)
		require.Len(s.t, s.withheld(), int(still))
		s.adds("release")
	case 3:
		if len(held) == 0 {
			return
		}
		p := held[s.random.IntN(len(held))]
		g := hongbao.Grant{Campaign: "rain", User: s.user(), RequestID: "r", Packet: p.Number, Amount: p.Amount}
		why, err := s.k.GrantWithheld(s.t.Context(), &g, store.Room{})
		require.NoError(s.t, err)
		require.Empty(s.t, why)
		s.adds("grant of a withheld packet")
	}
}

// Packets are granted, withheld, granted again, released and granted from the withheld ones at random. The counts
// always match the stock and the withheld packets. The close counts every packet without a user as left.
func TestWithheldPacketsCount(t *testing.T) {
	t.Parallel()
	all := setup(t)
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := &stocked{bundle: setupOn(t, all.rdb), t: t, c: spec("rain", 60), random: rand.New(rand.NewPCG(seed, 1))}
			draw := campaign.NewSeed()
			plan, err := campaign.NewPlan(s.c, draw)
			require.NoError(t, err)
			loader, err := load.New(s.store, load.Config{Chunk: 3 + s.random.IntN(20)})
			require.NoError(t, err)
			require.NoError(t, loader.Load(t.Context(), s.c, plan, campaign.Commit(s.c, draw), nil))
			for n := range int64(12) {
				s.step(n)
			}
			f, err := s.k.Place("rain").CampaignFields(t.Context())
			require.NoError(t, err)
			e, err := s.k.Place("rain").Close(t.Context(), true, 0)
			require.NoError(t, err)
			require.Equal(t, []int64{f.Granted, int64(f.GrantedAmount)},
				[]int64{e.Close.Granted, int64(e.Close.GrantedAmount)})
			require.EqualValues(t, 60, e.Close.Granted+e.Close.Left)
			require.Equal(t, s.c.Total, e.Close.GrantedAmount+e.Close.LeftAmount)
			again, err := s.k.Place("rain").CloseOf(t.Context())
			require.NoError(t, err)
			require.Equal(t, e.Close, again.Close)
		})
	}
}

// More packets are withheld than one load call can have. Repeated releases return all of them, and the counts stay
// correct.
func TestManyWithheldPacketsComeBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const all = 3 * store.MaxChunk
	b.load(t, spec("rain", all))
	b.begin(t)
	require.NoError(t, b.k.Withhold(t.Context(), attempt, "rain", store.Withholding{Last: 1, Front: []int{all - 10}}))
	b.thaw(t)
	granted := func() int64 {
		f, err := b.k.Place("rain").CampaignFields(t.Context())
		require.NoError(t, err)
		return f.Granted
	}
	require.EqualValues(t, 0, granted())
	b.grab(t, "rain", "u1")
	for still := int64(1); still > 0; {
		var why store.Refusal
		var err error
		still, why, err = b.k.Place("rain").ReleaseWithheld(t.Context())
		require.NoError(t, err)
		require.Empty(t, why)
		require.EqualValues(t, 1, granted())
	}
	require.EqualValues(t, all-1, b.rdb.LLen(t.Context(), b.k.Keys.Stock("rain")).Val())
}

// A withheld packet is granted to its user once. Grants that exceed a limit, or whose request id has a different
// packet, are refused. A normal grab never gets a withheld packet.
func TestWithheldPacketIsGrantedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, k := t.Context(), b.k
	withheldThree(t, b)
	held, err := k.Place("rain").Withheld(ctx)
	require.NoError(t, err)
	require.Len(t, held, 3)
	revision := b.revision(ctx)
	answers := b.grab(t, "rain", "other") // gets a packet that is not withheld
	require.NotContains(t, held, store.Packet{Number: answers[0].Receipts[0].Packet, Amount: answers[0].Receipts[0].Amount})

	grant := func(user, request string, p store.Packet, elsewhere int) (store.Refusal, hongbao.Grant) {
		g := hongbao.Grant{Campaign: "rain", User: user, RequestID: request, Packet: p.Number, Amount: p.Amount}
		why, err := k.GrantWithheld(ctx, &g, store.Room{Elsewhere: elsewhere})
		require.NoError(t, err)
		return why, g
	}
	why, g := grant("u1", "r1", held[0], 0)
	require.Empty(t, why)
	require.NotEqual(t, revision, b.revision(ctx), "a new revision, so that filters of the winners expire")
	require.EqualValues(t, 2, g.Seq)
	receipts, err := k.Place("rain").ReceiptsOf(ctx, []string{"u1"})
	require.NoError(t, err)
	require.Equal(t, []hongbao.Receipt{{Shard: k.Index(), Seq: 2, Packet: held[0].Number, Amount: held[0].Amount, RequestID: "r1", Time: g.Time.Local()}},
		receipts["u1"])
	seqs := map[int64]string{}
	for page, err := range k.Pages(ctx, "-", "+") {
		require.NoError(t, err)
		entries, _, _, err := k.Decode(ctx, page)
		require.NoError(t, err)
		for _, e := range entries {
			for _, g := range e.Grants {
				seqs[g.Seq] = g.User
			}
		}
	}
	require.Equal(t, map[int64]string{1: "other", 2: "u1"}, seqs, "the stream has it")

	for name, c := range map[string]struct {
		user, request string
		packet        store.Packet
		elsewhere     int
		want          store.Refusal
	}{
		"again":              {"u1", "r1", held[0], 0, store.RefusedHas},
		"another packet":     {"u1", "r1", held[1], 0, store.RefusedRequest},
		"another request":    {"u1", "r2", held[1], 0, store.RefusedLimit},
		"a packet elsewhere": {"u2", "r1", held[1], 1, store.RefusedLimit},
		"one that was dealt": {"u3", "r1", store.Packet{Number: answers[0].Receipts[0].Packet, Amount: 7}, 0, store.RefusedGone},
		"another amount":     {"u3", "r1", store.Packet{Number: held[1].Number, Amount: 8}, 0, store.RefusedGone},
		"no one has looked":  {"u1", "", held[1], store.UnknownElsewhere, store.RefusedLimit},
	} {
		why, _ := grant(c.user, c.request, c.packet, c.elsewhere)
		require.Equal(t, c.want, why, name)
	}
	require.NoError(t, b.rdb.HSet(ctx, k.Keys.Campaign("rain"), "user_campaign", 2).Err())
	why, _ = grant("u1", "r1", held[1], 0)
	require.Equal(t, store.RefusedRequest, why, "a retry has got another packet")
	why, _ = grant("u1", "", held[1], 0)
	require.Empty(t, why, "the user gets this one, too, without the request id")
	answers = b.grab(t, "rain", "u1/r1")
	require.Equal(t, held[0].Number, answers[0].Receipts[0].Packet, "a repeat still gets what it got")
	_, err = k.Place("rain").Close(ctx, true, 0)
	require.NoError(t, err)
	why, _ = grant("u5", "r1", held[2], 0)
	require.EqualValues(t, store.StateClosed, why)
	_, why, err = k.Place("rain").ReleaseWithheld(ctx)
	require.NoError(t, err)
	require.EqualValues(t, store.StateClosed, why)
}

// The clock of a promoted server is behind the start of the campaign's window. A withheld packet is granted at the
// start, so that the receipt has no negative time, which no program could read.
func TestWithheldPacketBeforeTheWindow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	withheldThree(t, b)
	start := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "from", start.UnixMilli()).Err())
	g := hongbao.Grant{Campaign: "rain", User: "u1", RequestID: "r1", Packet: firstWithheld.Number, Amount: firstWithheld.Amount}
	why, err := b.k.GrantWithheld(t.Context(), &g, store.Room{})
	require.NoError(t, err)
	require.Empty(t, why)
	require.WithinDuration(t, start, g.Time, 0)
	receipts, err := b.k.Place("rain").ReceiptsOf(t.Context(), []string{"u1"})
	require.NoError(t, err)
	require.WithinDuration(t, start, receipts["u1"][0].Time, 0)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "from", time.Now().Add(-time.Hour).UnixMilli()).Err())
	answers, err := b.k.Place("rain").Grab(t.Context(), storetest.Call("rain", "u1/r1"), nil)
	require.NoError(t, err)
	require.Equal(t, firstWithheld.Number, answers[0].Receipts[0].Packet, "the user's next grab")
}

// Revise changes the revision of a campaign after a restore. CountWinners still finds the generation in it.
func TestWinnersAfterARestore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 2))
	b.begin(t)
	require.NoError(t, b.k.Revise(t.Context(), attempt, "rain"))
	b.thaw(t)
	b.grab(t, "rain", "u1")
	b.grab(t, "rain", "u2")
	n, err := b.k.Place("rain").CountWinners(t.Context(), b.revision(t.Context()))
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
}

// commandStat returns the calls of a Redis command, and the time in microseconds that they took.
func (b *bundle) commandStat(t *testing.T, command string) (calls, usec int64) {
	t.Helper()
	stats, err := b.rdb.InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	if text := stats["Commandstats"]["cmdstat_"+command]; text != "" {
		_, err = fmt.Sscanf(text, "calls=%d,usec=%d,", &calls, &usec)
		require.NoError(t, err)
	}
	return calls, usec
}

// All packets of a place are withheld by several short scripts, each with few commands for the replicas. A call that is
// repeated after an interruption continues.
func TestRestOfALargePlaceIsWithheld(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}).Client(t))
	const all = 25_000
	b.load(t, spec("rain", all))
	b.begin(t)
	stock := b.rdb.LRange(t.Context(), b.k.Keys.Stock("rain"), 0, -1).Val()
	before, _ := b.commandStat(t, "rpush")
	require.NoError(t, b.k.Withhold(t.Context(), attempt, "rain", store.Withholding{Front: []int{7}})) // interrupted
	require.NoError(t, b.k.WithholdRest(t.Context(), attempt, "rain", 1, 0))
	require.NoError(t, b.k.WithholdRest(t.Context(), attempt, "rain", 1, 0))
	pushes, _ := b.commandStat(t, "rpush")
	require.LessOrEqual(t, pushes-before, int64(1+6))
	scripts, _ := b.commandStat(t, "evalsha")
	require.Greater(t, scripts, int64(2))
	list, err := b.k.Place("rain").Withheld(t.Context())
	require.NoError(t, err)
	withheld := make([]string, len(list))
	for i, p := range list {
		withheld[i] = p.String()
	}
	require.Equal(t, stock, withheld)
	n, _, err := b.k.Place("rain").CountWithheld(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, all, n)
	b.thaw(t)
	e, err := b.k.Place("rain").Close(t.Context(), true, 0)
	require.NoError(t, err)
	require.EqualValues(t, all, e.Close.Left)
}

// Grants whose packets are already withheld are put back without a search of the whole stock for each of them.
func TestRegrantOfWithheldPacketsSparesTheStock(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}).Client(t))
	b.load(t, spec("rain", 200_000))
	b.begin(t)
	require.NoError(t, b.k.Withhold(t.Context(), attempt, "rain", store.Withholding{Last: 1000, Front: []int{1000}}))
	_, before := b.commandStat(t, "lpos")
	require.ErrorIs(t, b.rdb.LPos(t.Context(), b.k.Keys.Stock("rain"), "none", redis.LPosArgs{}).Err(), redis.Nil)
	_, search := b.commandStat(t, "lpos")
	withheld, err := b.k.Place("rain").Withheld(t.Context())
	require.NoError(t, err)
	least := int64(math.MaxInt64) // a busy machine may stop Redis within a search
	for batch := range 3 {
		grants := make([]hongbao.Grant, store.MaxGrabs)
		for i := range grants {
			at := batch*store.MaxGrabs + i
			p := withheld[500+at]
			grants[i] = hongbao.Grant{Campaign: "rain", User: fmt.Sprint("u", at), Seq: 1 + int64(at), Packet: p.Number,
				Amount: p.Amount, Time: time.UnixMilli(1_800_000_000_000)}
		}
		_, began := b.commandStat(t, "lpos")
		require.NoError(t, b.k.RestoreGrants(t.Context(), attempt, store.Run{Grants: grants, Generations: 1}))
		_, regranted := b.commandStat(t, "lpos")
		least = min(least, regranted-began)
	}
	require.Less(t, least, store.MaxGrabs/4*(search-before), "in microseconds; each full search took %d", search-before)
}

// A restore withholds more packets than the stock has, and a top-up is lost that was partly dealt. The packets that are
// in Redis are withheld at once, the rest as soon as it is dealt again. A later top-up is not concerned.
func TestPacketsOfALostTopUpAreWithheldOnceTheyAreDealt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, k := t.Context(), b.k
	b.load(t, spec("rain", 2))
	loaded := int64(2)
	deal := func(a *store.Announcement, amounts ...hongbao.Amount) store.LoadState {
		t.Helper()
		at, err := k.LoadChunk(ctx, &store.Chunk{Campaign: "rain", Hash: a.Hash, Generation: a.Generation, Before: loaded,
			First: loaded + 1, Amounts: amounts})
		require.NoError(t, err)
		loaded = at.Loaded
		return at
	}
	held := func() (packets []int64) {
		t.Helper()
		list, err := k.Place("rain").Withheld(ctx)
		require.NoError(t, err)
		for _, p := range list {
			packets = append(packets, p.Number)
		}
		return packets
	}
	storetest.Grab(t, k, "rain", "u1", "u2")
	a := announcement(b, 8, 20+6*10)
	require.NoError(t, k.Announce(ctx, a))
	require.EqualValues(t, 1, deal(a, 10, 10).Dealt)
	b.begin(t)
	w := store.Withholding{Last: 5, Front: []int{0, 2}, Next: 3, UpTo: 8}
	require.NoError(t, k.Withhold(ctx, attempt, "rain", w))
	require.NoError(t, k.Withhold(ctx, attempt, "rain", w), "a repeat")
	b.thaw(t)
	n, _, err := k.Place("rain").CountWithheld(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2+3, n)

	require.Equal(t, []int64{3, 4}, held(), "what was dealt already")

	require.EqualValues(t, 1, deal(a, 10, 10).Dealt)
	require.Equal(t, []int64{3, 4, 5, 6}, held())
	require.EqualValues(t, 2, deal(a, 10, 10).Dealt)
	require.Equal(t, []int64{3, 4, 5, 6, 7}, held(), "three more than were dealt")
	require.Equal(t, []string{"8 10"}, b.rdb.LRange(ctx, k.Keys.StockOf("rain", 2), 0, -1).Val())
	require.Empty(t, b.rdb.HGet(ctx, k.Keys.Campaign("rain"), "withhold_next").Val(), "it is done")

	c := call("rain", "u3")
	c.Generation = 2
	answers, err := k.Place("rain").Grab(ctx, c, nil)
	require.NoError(t, err)
	require.EqualValues(t, 8, answers[0].Receipts[0].Packet)

	b.begin(t)
	rest := store.Withholding{Front: []int{0, 0}, Next: 50, UpTo: 8}
	require.NoError(t, k.Withhold(ctx, attempt, "rain", rest))
	require.NoError(t, k.Withhold(ctx, attempt, "rain", rest), "a repeat")
	require.Equal(t, "50 8 0", b.rdb.HGet(ctx, k.Keys.Campaign("rain"), "withhold_next").Val())
	b.thaw(t)
	more := announcement(b, 10, 20+6*10+20)
	more.Generation, more.Plan = 3, "p3"
	require.NoError(t, k.Announce(ctx, more))
	require.EqualValues(t, 3, deal(more, 10, 10).Dealt)
	require.Len(t, held(), 5, "packets of a later top-up are not withheld")
	require.Empty(t, b.rdb.HGet(ctx, k.Keys.Campaign("rain"), "withhold_next").Val(), "no top-up that was lost is left")
	e, err := k.Place("rain").Close(ctx, true, 10)
	require.NoError(t, err)
	require.EqualValues(t, 7, e.Close.Left)
	require.EqualValues(t, 70, e.Close.LeftAmount)
}

// The packets of a campaign are dealt to its places in turn.
func TestUndealtPacketsOfAPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 4))
	undealt := func(packets int64) int64 {
		t.Helper()
		n, err := b.k.Place("rain").Undealt(t.Context(), packets)
		require.NoError(t, err)
		return n
	}
	require.EqualValues(t, 10-4, undealt(10))
	require.Zero(t, undealt(3))
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "places", 3, "place", 1).Err())
	require.EqualValues(t, 7-4, undealt(20), "packets 2, 5, 8, 11, 14, 17 and 20 are on the second of three places")
}
