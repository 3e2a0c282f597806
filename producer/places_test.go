package producer_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// wide returns a deployment of n shards on one server.
func wide(t *testing.T, n int) *bundle {
	t.Helper()
	return setupOn(t, testkit.Redis(t), n)
}

// over returns a campaign with this number of shards, packets, and packets per user.
func over(shards int, packets, hold int64) hongbao.Campaign {
	c := spec("rain", packets)
	c.Shards = shards
	c.Limits = []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: hold}}
	return c
}

// userWithHome returns the next user whose first place is the given place.
func userWithHome(places, place int, number *int) string {
	course := walk.NewCourse("rain", places, 1)
	for {
		*number++
		var w walk.Walk
		user := fmt.Sprint("u", *number)
		if w.Begin(course, user, "r"); w.Place() == place {
			return user
		}
	}
}

// granted returns the grants in the streams of all shards, by user. It fails the test if a packet is there twice.
func (b *bundle) granted(t *testing.T) map[string][]hongbao.Grant {
	t.Helper()
	out, packets := map[string][]hongbao.Grant{}, map[int64]bool{}
	for i := range b.store.Len() {
		entries, err := b.store.Shard(i).Entries(t.Context(), "-", "+")
		require.NoError(t, err)
		for _, e := range entries {
			for _, g := range e.Grants {
				require.False(t, packets[g.Packet], "packet %d twice", g.Packet)
				packets[g.Packet] = true
				out[g.User] = append(out[g.User], g)
			}
		}
	}
	return out
}

// Most users have the same first place. Users get one packet each until all places are empty, and a winner's repeated
// grab returns the receipt.
func TestCrowdOverPlaces(t *testing.T) {
	t.Parallel()
	b := wide(t, 5)
	const packets, users, places = 900, 1500, 4
	b.load(t, over(places, packets, 1))
	producers := []*producer.Producer{b.producer(t, nil), b.producer(t, nil)}
	all := make([]*hongbao.Grab, users)
	number := 0
	for i := range all {
		all[i] = grab(userWithHome(places, max(0, i%30-26), &number), "r") // place 0 for 27 of 30 users
	}
	won, soldOut := race(t, 64, all, producers...)
	require.Len(t, won, packets)
	require.Equal(t, users-packets, soldOut)
	grants := b.granted(t)
	require.Len(t, grants, packets)
	for user, g := range grants {
		require.Len(t, g, 1, user)
		for _, p := range producers {
			a, err := p.Grab(t.Context(), grab(user, "r"))
			require.NoError(t, err)
			require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
			require.Equal(t, won[user], a.Receipts[0])
			a, err = p.Grab(t.Context(), grab(user, "another"))
			require.NoError(t, err)
			require.Equal(t, hongbao.OutcomeAlreadyGranted, a.Outcome)
			require.Equal(t, []hongbao.Receipt{won[user]}, a.Receipts)
		}
	}
}

func TestLimitOverPlaces(t *testing.T) {
	t.Parallel()
	b := wide(t, 3)
	b.load(t, over(3, 6, 5))
	p := b.producer(t, nil)
	for i := range 7 {
		a, err := p.Grab(t.Context(), grab("u1", fmt.Sprint("r", i)))
		require.NoError(t, err)
		if i < 5 {
			require.Equal(t, hongbao.OutcomeGranted, a.Outcome, i)
		} else {
			require.Equal(t, hongbao.OutcomeLimitReached, a.Outcome, i)
			require.Equal(t, int64(5), a.Limit.Limit.Max)
		}
	}
	for i := range 2 {
		a, err := p.Grab(t.Context(), grab("u2", fmt.Sprint("r", i)))
		require.NoError(t, err)
		require.Equal(t, []hongbao.Outcome{hongbao.OutcomeGranted, hongbao.OutcomeSoldOut}[i], a.Outcome)
		require.Len(t, a.Receipts, 1-i)
	}
	require.Len(t, b.granted(t)["u1"], 5)
}

// A user has receipts on two places, and the campaign is then paused or closed. A repeated grab finds its receipt
// wherever it is; only other grabs are refused.
func TestRefusalsOverPlaces(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"paused", "closed"} {
		b := wide(t, 4)
		b.load(t, over(4, 4, 2))
		p := b.producer(t, nil)
		var receipts []hongbao.Receipt
		for i := range 2 {
			a, err := p.Grab(t.Context(), grab("u1", fmt.Sprint("r", i)))
			require.NoError(t, err)
			receipts = append(receipts, a.Receipts...)
		}
		require.NotEqual(t, receipts[0].Shard, receipts[1].Shard, "one packet on each place")
		for _, k := range b.store.Places("rain", 4) {
			require.NoError(t, b.admin.HSet(t.Context(), k.Keys.Campaign("rain"), "state", state).Err())
		}
		for i := range receipts {
			a, err := p.Grab(t.Context(), grab("u1", fmt.Sprint("r", i)))
			require.NoError(t, err)
			require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
			require.Equal(t, receipts[i:i+1], a.Receipts)
		}
		a, err := p.Grab(t.Context(), grab("u1", "r2"))
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeAlreadyGranted, a.Outcome)
		require.Equal(t, receipts, a.Receipts)
		a, err = p.Grab(t.Context(), grab("u2", "r0"))
		require.NoError(t, err)
		require.Equal(t, map[string]hongbao.Outcome{"paused": hongbao.OutcomePaused, "closed": hongbao.OutcomeEnded}[state],
			a.Outcome)
	}
}

// noWay is a hook that makes one shard unreachable.
type noWay struct {
	counted
	down atomic.Bool
}

func (h *noWay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.down.Load() && contains(cmd, h.what) {
			err := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func contains(cmd redis.Cmder, what string) bool {
	for _, arg := range cmd.Args() {
		if text, ok := arg.(string); ok && len(text) >= len(what) && text[:len(what)] == what {
			return true
		}
	}
	return false
}

// One shard is down. Grabs of users whose first place is there fail as an outage, and a walk does not skip the place.
func TestShardDown(t *testing.T) {
	t.Parallel()
	b := wide(t, 3)
	b.load(t, over(3, 60, 1))
	places := b.store.Places("rain", 3)
	meta := places[1].Keys.Meta()
	way := &noWay{counted: counted{what: meta[:len(meta)-len("meta")]}}
	rdb := b.server.Client(t)
	rdb.AddHook(way)
	p := b.producer(t, func(c *producer.Config) { c.Deployment, c.CallTimeout = b.over(rdb), hopeless })
	number := 0
	try := func(place int) (hongbao.Answer, error) {
		return p.Grab(t.Context(), grab(userWithHome(3, place, &number), "r"))
	}
	for place := range 3 {
		_, err := try(place)
		require.NoError(t, err)
	}
	way.down.Store(true)
	lost, loser := make(chan error, 1), userWithHome(3, 1, &number)
	go func() {
		_, err := p.Grab(t.Context(), grab(loser, "r"))
		lost <- err
	}()
	var down error
	for place := 0; down == nil; place = 2 - place { // empty places 0 and 2, until a walk reaches place 1
		var a hongbao.Answer
		if a, down = try(place); down == nil {
			require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
		}
	}
	require.True(t, hongbao.IsOutage(down), "%v", down)
	require.True(t, hongbao.IsOutage(<-lost))
	require.GreaterOrEqual(t, len(b.granted(t)), 20+19+1+1, "the other grabs continued")
	way.down.Store(false)
	a, err := try(0)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
	require.Equal(t, places[1].Index(), a.Receipts[0].Shard)
}

// Packets are added to an open campaign. Between the announcement and the packets, a new user's grab waits. A producer
// that knew all places as empty does not answer sold_out after the announcement.
func TestTopUpIsNoticed(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		b := wide(t, 3)
		b.load(t, over(n, 4, 2))
		places := b.store.Places("rain", n)
		hash, err := b.admin.HGet(t.Context(), places[0].Keys.Campaign("rain"), "hash").Result()
		require.NoError(t, err)
		p := b.producer(t, nil)
		for i := range 6 { // the last two users get sold_out just before the announcement
			a, err := p.Grab(t.Context(), grab(fmt.Sprint("u", i), "r1"))
			require.NoError(t, err)
			require.Equal(t, i < 4, a.Outcome == hongbao.OutcomeGranted, a.Outcome)
		}
		share := func(j int) int64 { return int64(len(numbers(1, 4, n, j)) + len(numbers(5, 10, n, j))) }
		for j, k := range places {
			require.NoError(t, k.Announce(t.Context(), &store.Announcement{
				Campaign: "rain", Hash: hash, Generation: 2, Plan: "h2", Packets: 10, Total: 100,
				Share: share(j), ShareAmount: hongbao.Amount(10 * share(j)),
			}))
		}
		announced := time.Now()
		got := make(chan hongbao.Answer, 1)
		other := b.producer(t, func(c *producer.Config) { c.UndecidedTimeout = time.Minute })
		go func() {
			a, err := other.Grab(t.Context(), grab("u9", "r9"))
			assert.NoError(t, err)
			got <- a
		}()
		testkit.Eventually(t, time.Minute, func() bool { return time.Since(announced) > walk.Lease }, "the lease is over")
		for j, k := range places {
			mine := numbers(5, 10, n, j)
			chunk := &store.Chunk{
				Campaign: "rain", Hash: hash, Generation: 2, Before: int64(len(numbers(1, 4, n, j))), First: mine[0],
				Step: int64(n),
			}
			for range mine {
				chunk.Amounts = append(chunk.Amounts, 10)
			}
			_, err := k.LoadChunk(t.Context(), chunk)
			require.NoError(t, err)
		}
		noticed, err := p.Grab(t.Context(), grab("u8", "r8"))
		require.NoError(t, err)
		for _, a := range []hongbao.Answer{noticed, <-got} {
			require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
			require.Greater(t, a.Receipts[0].Packet, int64(4))
		}
		for i := range 6 {
			a, err := p.Grab(t.Context(), grab(fmt.Sprint("u", i), "r2"))
			require.NoError(t, err)
			require.Equal(t, i < 4, a.Outcome == hongbao.OutcomeGranted, a.Outcome)
		}
		require.Len(t, b.granted(t)["u0"], 2)
	}
}

// numbers returns the packets from first to last that are dealt to place j of n.
func numbers(first, last int64, n, j int) (out []int64) {
	for k := first + int64(j); k <= last; k += int64(n) {
		out = append(out, k)
	}
	return out
}

// byKeys counts scripts by their number of keys.
type byKeys struct {
	counted
	mu   sync.Mutex
	keys map[any]int
}

func (h *byKeys) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			h.mu.Lock()
			h.keys[cmd.Args()[2]]++
			h.mu.Unlock()
		}
		return next(ctx, cmd)
	}
}

// All places are empty. While the producer remembers this, waiting grabs share one read of receipts per place instead
// of running the grab script.
func TestEmptyPlacesAreRemembered(t *testing.T) {
	t.Parallel()
	b := wide(t, 4)
	b.load(t, over(4, 4, 1))
	rdb := b.server.Client(t)
	p := b.producer(t, func(c *producer.Config) { c.Deployment = b.over(rdb) })
	for i := range 5 {
		_, err := p.Grab(t.Context(), grab(fmt.Sprint("u", i), "r"))
		require.NoError(t, err)
	}
	scripts := &byKeys{keys: map[any]int{}}
	rdb.AddHook(scripts)
	start := time.Now()
	for i := 0; time.Since(start) < 3*walk.Lease; i++ {
		a, err := p.Grab(t.Context(), grab(fmt.Sprint("l", i), "r"))
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeSoldOut, a.Outcome)
	}
	scripts.mu.Lock() // the watch of the servers still runs scripts
	grabs, reads := scripts.keys[5], scripts.keys[3]
	scripts.mu.Unlock()
	require.LessOrEqual(t, grabs, 4*(1+int(time.Since(start)/walk.Lease)), "one grab script per place and lease")
	require.Greater(t, reads, 4*grabs)
}
