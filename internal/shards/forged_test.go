package shards_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/lua"
)

// find tells which of the entries are forged ones.
func find(t *testing.T, f *shards.Forgeries, entries ...hongbao.Entry) []bool {
	t.Helper()
	list := make([]*hongbao.Entry, len(entries))
	for i := range entries {
		list[i] = &entries[i]
	}
	why, err := f.Find(t.Context(), list, true)
	require.NoError(t, err)
	out := make([]bool, len(why))
	for i, err := range why {
		if out[i] = err != nil; out[i] {
			require.Equal(t, hongbao.Conflict, hongbao.ClassOf(err))
			require.ErrorContains(t, err, "no grab wrote it")
		}
	}
	return out
}

// one is an entry with one grant.
func one(campaign string, seq int64) hongbao.Entry {
	return hongbao.Entry{ID: "1-1", Kind: hongbao.EntryGrant, Campaign: campaign, Seq: seq, Epoch: 1, Grants: make([]hongbao.Grant, 1)}
}

// What grabs and closes really wrote is never a forged entry, whenever it is looked at; what stands behind a real close always is.
func TestForgeriesOfARealClose(t *testing.T) {
	t.Parallel()
	b := setup(t)
	f := shards.NewForgeries(b.rdb, b.space, 0)
	closed := b.closed(t, "rain", 10, 3)
	b.load(t, spec("snow", 10))
	b.grab(t, "snow", "u1", "u2", "u3")
	entries, err := shards.Of(b.rdb, b.k).Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(entries), 3)
	fresh := shards.NewForgeries(b.rdb, b.space, 0)
	for i := range entries {
		require.Equal(t, []bool{false}, find(t, f, entries[i]))
		require.NotContains(t, find(t, fresh, entries...), true)
		e := entries[i]
		if e.Campaign == "snow" {
			e.Campaign = "rain" // the same event, said to be of the campaign that is over
			require.Equal(t, []bool{true}, find(t, f, e))
		}
	}
	again := closed
	require.Equal(t, []bool{false}, find(t, f, again))
	again.Seq++
	require.Equal(t, []bool{true, true, true}, find(t, f, again, one("rain", closed.Seq), one("rain", closed.Seq-1)), "the last one's event is a real entry's")
}

// Nothing is held against an entry that was true at another time: Redis may go back in time.
func TestForgeriesAreJudgedByWhatIsTrueNow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	f := shards.NewForgeries(b.rdb, b.space, 0)
	closed := b.closed(t, "rain", 10, 3)
	require.NoError(t, b.rdb.HSet(ctx, b.k.Meta(), "seq", 20).Err())
	require.Equal(t, []bool{true}, find(t, f, one("rain", closed.Seq+1)))
	require.NoError(t, b.rdb.HDel(ctx, b.k.Campaign("rain"), "close_seq").Err()) // the close is lost, the campaign is open again
	require.Equal(t, []bool{false}, find(t, f, one("rain", closed.Seq+1)))
	require.NoError(t, b.rdb.HSet(ctx, b.k.Campaign("rain"), "close_seq", 21).Err())
	require.NoError(t, b.rdb.HSet(ctx, b.k.Meta(), "seq", 30).Err())
	require.Equal(t, []bool{false, true}, find(t, f, one("rain", 20), one("rain", 22)))
}

// Keys that were written by hand, and campaigns that are not there, tell nothing: the sink has to judge.
func TestForgeriesWithoutACampaign(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	require.NoError(t, b.rdb.HSet(ctx, b.k.Meta(), "seq", 9).Err())
	require.NoError(t, b.rdb.Set(ctx, b.k.Campaign("planted"), "x", 0).Err())
	require.NoError(t, b.rdb.HSet(ctx, b.k.Campaign("garbage"), "state", "closed", "close_seq", "1e9").Err())
	f := shards.NewForgeries(b.rdb, b.space, 0)
	require.Equal(t, []bool{false, false, false, true}, find(t, f, one("planted", 1), one("garbage", 2), one("nobody-knows", 3), one("planted", 10)))
}

// A campaign is where it belongs or nowhere.
func TestForgeriesOfAnotherShard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	space, err := lua.NewSpace(b.prefix+"-2", 2)
	require.NoError(t, err)
	require.NoError(t, shards.Init(ctx, b.rdb, space, "test"))
	home := space.Home("rain")
	other := space.Shard(1 - home.Index())
	for _, k := range []lua.Keys{home, other} {
		require.NoError(t, b.rdb.HSet(ctx, k.Meta(), "seq", 9).Err())
	}
	f := shards.NewForgeries(b.rdb, space, other.Index())
	require.Equal(t, []bool{false}, find(t, f, one("rain", 1)), "nobody has it")
	require.NoError(t, b.rdb.HSet(ctx, home.Campaign("rain"), "state", "open").Err())
	f = shards.NewForgeries(b.rdb, space, other.Index())
	require.Equal(t, []bool{true, true}, find(t, f, one("rain", 1), one("rain", 2)))
	require.Equal(t, []bool{true}, find(t, f, one("rain", 1)))
	require.Equal(t, []bool{false}, find(t, shards.NewForgeries(b.rdb, space, home.Index()), one("rain", 1)))
}

// A Redis that is away is an outage, and what could not be asked is asked again.
func TestForgeriesOfARedisThatIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer away.Close()
	e := one("rain", 1)
	_, err := shards.NewForgeries(away, b.space, 0).Find(t.Context(), []*hongbao.Entry{&e}, true)
	require.True(t, hongbao.IsOutage(err), "%v", err)
}

// pipelines notes how many commands each pipeline has.
type pipelines struct{ sizes []int }

func (*pipelines) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.sizes = append(p.sizes, len(cmds))
		return next(ctx, cmds)
	}
}

// stream reads all entries.
func (b *bundle) stream(t *testing.T) []hongbao.Entry {
	t.Helper()
	entries, err := shards.Of(b.rdb, b.k).Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	return entries
}

// A row without a gap is real if its ends are: that takes one round trip and the receipts of two entries, however long it is. One
// forged entry in it, wherever it stands, breaks it.
func TestRowsAreToldByTheirEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.events(t, "rain", repeat(2, 50)...)
	real := b.stream(t)
	var p pipelines
	counted := redis.NewClient(b.rdb.Options())
	defer counted.Close()
	counted.AddHook(&p)
	f := shards.NewForgeries(counted, b.space, 0)
	require.NotContains(t, find(t, f, real...), true)
	require.Equal(t, []int{4}, p.sizes, "meta, the campaign, and two users' receipts twice")
	require.NotContains(t, find(t, f, real[7]), true)
	require.Equal(t, []int{4, 3}, p.sizes)

	for name, at := range map[string]int{"first": 0, "in the middle": 20, "last": 50} {
		for seq := range int64(100) {
			e := one("rain", seq+1)
			why := find(t, f, slices.Insert(slices.Clone(real), at, e)...)
			require.True(t, why[at], "%s, seq %d", name, seq+1)
			require.NotContains(t, slices.Delete(why, at, at+1), true, "%s, seq %d", name, seq+1)
		}
	}
}

// What is not in a row is told by its receipts, each one.
func TestEntriesApartAreToldOneByOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.events(t, "rain", repeat(2, 10)...)
	real := b.stream(t)
	f := shards.NewForgeries(b.rdb, b.space, 0)
	thief := real[4]
	thief.ID, thief.Grants = "1-1", slices.Clone(thief.Grants)
	thief.Grants[1].User = "thief"
	list := []*hongbao.Entry{&real[3], &thief, &real[5]} // it has the place of one that is in other hands
	why, err := f.Find(t.Context(), list, false)
	require.NoError(t, err)
	require.NoError(t, why[0])
	require.ErrorContains(t, why[1], "but entry "+real[4].ID+" (campaign rain, events 9 to 10) has them")
	require.NoError(t, why[2])
}

// A copy of a real entry with anything changed that its receipts know is forged; the copy itself has no effect of its own.
func TestChangedCopies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1/r1", "u2/r2")
	real := b.stream(t)[0]
	for name, change := range map[string]func(g *hongbao.Grant){
		"": func(*hongbao.Grant) {}, "packet": func(g *hongbao.Grant) { g.Packet++ }, "amount": func(g *hongbao.Grant) { g.Amount++ },
		"user": func(g *hongbao.Grant) { g.User = "u1" }, "request": func(g *hongbao.Grant) { g.RequestID = "" },
		"time": func(g *hongbao.Grant) { g.Time = g.Time.Add(time.Hour) },
	} {
		e := real
		e.ID, e.Grants = "1-1", slices.Clone(real.Grants)
		change(&e.Grants[1])
		require.Equal(t, []bool{name != ""}, find(t, shards.NewForgeries(b.rdb, b.space, 0), e), name)
	}
}

// Real entries whose receipts or campaign are lost, or were changed by hand, are not held against anybody; nor does a forged entry
// take their place.
func TestRealEntriesWithoutReceipts(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(b *bundle) error{
		"one user's are gone":    func(b *bundle) error { return b.rdb.HDel(t.Context(), b.k.Receipts("rain"), "u1").Err() },
		"one user's are changed": func(b *bundle) error { return b.rdb.HSet(t.Context(), b.k.Receipts("rain"), "u1", "junk").Err() },
		"all are gone":           func(b *bundle) error { return b.rdb.Del(t.Context(), b.k.Receipts("rain")).Err() },
		"the campaign is gone": func(b *bundle) error {
			return b.rdb.Del(t.Context(), b.k.Receipts("rain"), b.k.Campaign("rain")).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			closed := b.closed(t, "rain", 10, 3)
			require.NoError(t, lose(b))
			add := func(kind, id string, seq int64, g string) {
				require.NoError(t, b.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: b.k.Events(), Values: []any{
					"v", 1, "k", kind, "c", id, "q", seq, "e", 1, "t", 1_700_000_000_000, "g", g,
				}}).Err())
			}
			real := b.stream(t)
			f := shards.NewForgeries(b.rdb, b.space, 0)
			require.NotContains(t, find(t, f, real...), true)
			add("grant", "rain", 1, "1 10 thief - -")
			add("grant", "nobody-knows", 3, "1 10 thief - -")
			add("close", "nobody-knows", 2, "0 0 10 100")
			add("close", "rain", closed.Seq, "0 0 10 100") // it may be the real one, and has no effect
			require.Equal(t, []bool{true, true, true}, find(t, f, b.stream(t)...)[4:7])
			require.NotContains(t, find(t, f, b.stream(t)[:4]...), true)
		})
	}
}

// A stored batch is built again from real entries only.
func TestReaderLeavesForgedEntriesOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1", "u2")
	add := func(seq int, g string) {
		require.NoError(t, b.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: b.k.Events(), Values: []any{
			"v", 1, "k", "grant", "c", "rain", "q", seq, "e", 1, "t", 1_700_000_000_000, "g", g,
		}}).Err())
	}
	add(3, "7 10 thief - -")
	add(2, "7 10 thief - -")
	b.grab(t, "rain", "u3")
	b.grab(t, "rain", "u4")
	r := shards.Reader{Redis: b.rdb, Space: b.space}
	entries, err := r.Entries(t.Context(), 0, "-", "+")
	require.NoError(t, err)
	var users []string
	for i := range entries {
		for _, g := range entries[i].Grants {
			users = append(users, g.User)
		}
	}
	require.Equal(t, []string{"u1", "u2", "u3", "u4"}, users)
}
