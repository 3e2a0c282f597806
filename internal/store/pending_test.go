package store_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

const lease = time.Minute

func (b *bundle) take(t testing.TB, worker string, count int) ([]store.RawEntry, []string) {
	t.Helper()
	r, err := b.k.Reclaim(t.Context(), store.ReclaimCall{
		Group: "kafka", Consumer: worker, Count: count, Lease: lease, Lead: time.Minute,
		Longest: 2 * time.Hour,
	})
	require.NoError(t, err)
	require.Zero(t, r.Led)
	b.endLead(t, worker)
	return r.Entries, r.Gone
}

// endLead ends the worker's lead, so that another worker can reclaim.
func (b *bundle) endLead(t testing.TB, worker string) {
	t.Helper()
	require.NoError(t, b.k.EndLead(t.Context(), "kafka", worker))
}

func idsOf(entries []store.RawEntry) []string {
	out := make([]string, len(entries))
	for i := range entries {
		out[i] = entries[i].ID
	}
	return out
}

func TestTakeOfDeadWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.events(t, "rain", 1, 2, 3, 1)
	b.group(t, "kafka")
	raw := b.read(t, "kafka", "w1", 3)
	require.Equal(t, ids[:3], idsOf(raw))
	for _, r := range raw {
		require.EqualValues(t, 1, r.Attempt)
	}
	none, gone := b.take(t, "w2", 9)
	require.Empty(t, none, "w1 is alive")
	require.Empty(t, gone)

	b.age(t, "kafka", "w1", lease-10*time.Second, ids[0])
	none, _ = b.take(t, "w2", 9)
	require.Empty(t, none, "the lease has ten more seconds")

	b.age(t, "kafka", "w1", lease, ids[0], ids[2])
	got, gone := b.take(t, "w2", 9)
	require.Empty(t, gone)
	require.Equal(t, []string{ids[0], ids[2]}, idsOf(got))
	for i, r := range got {
		require.EqualValues(t, 2, r.Attempt, "the broker counts")
		e, err := stream.ParseEntry(0, r.ID, r.Values)
		require.NoError(t, err)
		require.Equal(t, []int64{1, 4}[i], e.Seq)
	}
	require.Equal(t, map[string]string{ids[0]: "w2 2", ids[1]: "w1 1", ids[2]: "w2 2"}, b.owners(t, "kafka"))
	none, _ = b.take(t, "w3", 9)
	require.Empty(t, none)
	require.Equal(t, []string{ids[3]}, idsOf(b.read(t, "kafka", "w3", 9)), "undelivered entries are not reclaimed")
}

func TestTakeIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.events(t, "rain", 1, 1, 1, 1, 1)
	b.group(t, "kafka")
	b.read(t, "kafka", "w1", 3)
	b.read(t, "kafka", "w2", 2)
	b.age(t, "kafka", "w1", lease, ids[:3]...)
	b.age(t, "kafka", "w2", lease, ids[3:]...)
	got, _ := b.take(t, "w3", 4)
	require.Len(t, got, 4)
	got, _ = b.take(t, "w3", 4)
	require.Len(t, got, 1)
}

// Many workers reclaim concurrently, and each takes the lead from the others. Each entry still goes to exactly one
// worker.
func TestTakeByMany(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.events(t, "rain", 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	b.group(t, "kafka")
	b.read(t, "kafka", "w0", 10)
	b.age(t, "kafka", "w0", lease, ids...)
	var mu sync.Mutex
	taken := map[string]int{}
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			r := store.Reclaimed{Led: 1}
			for err := error(nil); err == nil && r.Led > 0; {
				b.rdb.Del(t.Context(), b.k.Keys.Lead("kafka"))
				r, err = b.k.Reclaim(t.Context(), store.ReclaimCall{Group: "kafka",
					Consumer: "worker-" + user(w), Count: 3, Lease: lease, Lead: time.Minute})
			}
			mu.Lock()
			defer mu.Unlock()
			for _, e := range r.Entries {
				taken[e.ID]++
			}
		})
	}
	wg.Wait()
	require.Len(t, taken, 10)
	for id, n := range taken {
		require.Equal(t, 1, n, id)
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.events(t, "rain", 1, 1, 1, 1)
	b.group(t, "kafka")
	b.read(t, "kafka", "w1", 4)
	b.age(t, "kafka", "w1", lease, ids...)
	b.age(t, "kafka", "w2", 0, ids[1])
	_, err := b.k.Group("kafka").Ack(t.Context(), nil, ids[2:3])
	require.NoError(t, err)
	require.NoError(t, b.rdb.XDel(t.Context(), b.k.Keys.Events(), ids[3]).Err())

	got, err := b.k.Group("kafka").Renew(t.Context(), "w1", ids)
	require.NoError(t, err)
	require.Equal(t, []store.Renewal{store.Ours, store.Lost, store.Lost, store.Gone}, got)
	require.Equal(t, map[string]string{ids[0]: "w1 1", ids[1]: "w2 1", ids[3]: "w1 1"}, b.owners(t, "kafka"),
		"a renewal is no attempt, and a deleted entry stays pending until Reclaim reports it")
	none, gone := b.take(t, "w3", 9)
	require.Empty(t, none, "the lease was renewed")
	require.Equal(t, ids[3:], gone)
	none2, err := b.k.Group("kafka").Renew(t.Context(), "w1", nil)
	require.NoError(t, err)
	require.Empty(t, none2)
}

func TestParked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.events(t, "rain", 1, 1, 1, 1, 1)
	b.group(t, "kafka")
	b.read(t, "kafka", "w1", 5)
	b.age(t, "kafka", "w2", 0, ids[3])
	b.parks(t, 4, store.Parking{ID: ids[0], Level: 1, Wait: 3 * time.Second, Attempts: 3},
		store.Parking{ID: ids[1], Level: 0, Attempts: 0}, store.Parking{ID: ids[2], Level: 7, Wait: time.Hour, Attempts: 1},
		store.Parking{ID: ids[3], Level: 0, Attempts: 1}, store.Parking{ID: ids[4], Level: 9, Wait: 3 * time.Hour, Attempts: 1})
	owners := b.owners(t, "kafka")
	require.Regexp(t, `^_retry/1/\d{13} 3$`, owners[ids[0]])
	require.Equal(t, "_retry/0 0", owners[ids[1]])
	require.Regexp(t, `^_retry/7/\d{13} 1$`, owners[ids[2]])
	require.Equal(t, "w2 1", owners[ids[3]], "Park moves only its worker's entries")

	got, _ := b.take(t, "w3", 9)
	require.Equal(t, []string{ids[1], ids[4]}, idsOf(got),
		"level 0 does not wait; the clock was ahead when the last entry was parked, because no entry waits for so long")
	require.EqualValues(t, 1, got[0].Attempt, "with 0 attempts recorded, the next delivery is the first")
	b.passes(t, 3500*time.Millisecond) // park.lua rounds up by an eighth
	got, _ = b.take(t, "w3", 9)
	require.Equal(t, []string{ids[0]}, idsOf(got))
	require.EqualValues(t, 4, got[0].Attempt)
	got, _ = b.take(t, "w3", 9)
	require.Empty(t, got, "one entry still waits")
	waits, _, _ := strings.Cut(owners[ids[2]], " ")
	require.ElementsMatch(t, []string{"w1", "w2", "w3", waits}, b.consumers(t),
		"no parking consumer stays when its entries are gone")
}

// passes waits until so much time of Redis' clock has passed.
func (b *bundle) passes(t *testing.T, d time.Duration) {
	t.Helper()
	now := b.rdb.Time(t.Context()).Val()
	testkit.Eventually(t, 30*time.Second, func() bool { return b.rdb.Time(t.Context()).Val().Sub(now) > d }, "time passes")
}

// parks parks entries of the worker w1. It requires that so many were moved.
func (b *bundle) parks(t *testing.T, want int, entries ...store.Parking) {
	t.Helper()
	n, err := b.k.Group("kafka").Park(t.Context(), "w1", entries)
	require.NoError(t, err)
	require.Equal(t, want, n)
}

// consumers returns the names of the group's consumers.
func (b *bundle) consumers(t *testing.T) (names []string) {
	t.Helper()
	list, err := b.rdb.XInfoConsumers(t.Context(), b.k.Keys.Events(), "kafka").Result()
	require.NoError(t, err)
	for i := range list {
		names = append(names, list[i].Name)
	}
	return names
}

// Entries of dead workers come before parked ones, and parked ones in the order of their times.
func TestOrderOfReclaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.events(t, "rain", 1, 1, 1, 1)
	b.group(t, "kafka")
	b.read(t, "kafka", "w1", 4)
	b.parks(t, 3, store.Parking{ID: ids[0], Level: 12, Wait: 16 * time.Millisecond}, store.Parking{ID: ids[1], Level: 2,
		Wait: 48 * time.Millisecond}, store.Parking{ID: ids[2], Level: 0})
	b.age(t, "kafka", "w1", lease, ids[3])
	b.passes(t, 100*time.Millisecond)
	for _, want := range []int{3, 2, 0, 1} {
		got, _ := b.take(t, "w3", 1)
		require.Equal(t, []string{ids[want]}, idsOf(got))
	}
}

// Entries of a paused campaign wait until its pause ends, in whatever way: a failover may have lost it.
func TestParkedWhileTheCampaignIsPaused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.events(t, "rain", 1, 1)
	b.group(t, "kafka")
	b.read(t, "kafka", "w1", 2)
	_, _, err := b.k.Group("kafka").PauseCampaign(t.Context(), "rain", by("ann", "test"))
	require.NoError(t, err)
	b.parks(t, 2, store.Parking{ID: ids[0], Campaign: "rain", Attempts: 2}, store.Parking{ID: ids[1], Campaign: "snow"})
	require.Equal(t, map[string]string{ids[0]: "_retry/paused/rain 2", ids[1]: "_retry/paused/snow 0"}, b.owners(t, "kafka"))
	s, err := b.k.Group("kafka").Status(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, s.Held)
	got, _ := b.take(t, "w3", 9)
	require.Equal(t, ids[1:], idsOf(got), "snow is not paused")
	removed, err := b.k.Group("kafka").RemoveIdleConsumers(t.Context(), "w3", 0)
	require.NoError(t, err)
	require.NotContains(t, removed, "_retry/paused/rain")
	_, _, err = b.k.Group("kafka").ResumeCampaign(t.Context(), "rain", by("ann", "test"))
	require.NoError(t, err)
	got, _ = b.take(t, "w3", 9)
	require.Equal(t, ids[:1], idsOf(got))
	require.EqualValues(t, 3, got[0].Attempt)
}

// A worker of an earlier build parks entries on a level without a time. They wait for a lease.
func TestParkedByAnEarlierBuild(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.events(t, "rain", 1)
	b.group(t, "kafka")
	b.read(t, "kafka", "_retry/3", 1)
	got, _ := b.take(t, "w3", 9)
	require.Empty(t, got)
	b.age(t, "kafka", "_retry/3", lease, ids[0])
	got, _ = b.take(t, "w3", 9)
	require.Equal(t, ids, idsOf(got))
}

// Entries are deleted while they are pending. Reclaim reports them once. XCLAIM of Redis 7 would silently remove them
// from the pending list, so the scripts must not call it for them.
func TestDeletedWhilePending(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.events(t, "rain", 1, 1, 1)
	b.group(t, "kafka")
	b.read(t, "kafka", "w1", 3)
	require.NoError(t, b.rdb.XDel(t.Context(), b.k.Keys.Events(), ids[0], ids[2]).Err())
	n, err := b.k.Group("kafka").Park(t.Context(), "w1",
		[]store.Parking{{ID: ids[0], Level: 1, Attempts: 1}, {ID: ids[1], Level: 0}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Contains(t, b.owners(t, "kafka"), ids[0], "Park keeps the deleted entry pending")
	for _, id := range []string{ids[0], ids[2]} {
		row := b.owners(t, "kafka")[id]
		require.Equal(t, "w1 1", row)
	}
	r, err := b.k.Reclaim(t.Context(),
		store.ReclaimCall{Group: "kafka", Consumer: "w2", Count: 9})
	require.NoError(t, err)
	require.Equal(t, []string{ids[1]}, idsOf(r.Entries))
	require.Equal(t, []string{ids[0], ids[2]}, r.Gone)
	b.endLead(t, "w2")
	r, err = b.k.Reclaim(t.Context(),
		store.ReclaimCall{Group: "kafka", Consumer: "w3", Count: 9})
	require.NoError(t, err)
	require.Empty(t, r.Gone, "reported once")
}

func TestForget(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.events(t, "rain", 1, 1)
	b.group(t, "kafka")
	for _, name := range []string{"me", "dead1", "dead2", "busy"} {
		require.NoError(t, b.rdb.XGroupCreateConsumer(t.Context(), b.k.Keys.Events(), "kafka", name).Err())
	}
	b.read(t, "kafka", "busy", 1)
	removed, err := b.k.Group("kafka").RemoveIdleConsumers(t.Context(), "me", time.Hour)
	require.NoError(t, err)
	require.Empty(t, removed, "no consumer was idle for an hour")
	removed, err = b.k.Group("kafka").RemoveIdleConsumers(t.Context(), "me", 0)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"dead1", "dead2"}, removed)
	require.Equal(t, map[string]string{ids[0]: "busy 1"}, b.owners(t, "kafka"))
}

// The group or the stream is missing, or is deleted during a blocking read. Every call then fails with a transient
// error, mostly ErrNoGroup.
func TestNoGroup(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	check := func(name string, err error) {
		t.Helper()
		require.ErrorIs(t, err, store.ErrNoGroup, name)
		require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), name)
	}
	all := func() {
		t.Helper()
		_, err := b.k.Group("kafka").ReadNew(ctx, "w1", 1, 0)
		check("read", err)
		_, err = b.k.Reclaim(ctx,
			store.ReclaimCall{Group: "kafka", Consumer: "w1", Count: 1})
		check("take", err)
		_, err = b.k.Group("kafka").Renew(ctx, "w1", []string{"1-1"})
		check("renew", err)
		_, err = b.k.Group("kafka").Park(ctx, "w1", []store.Parking{{ID: "1-1"}})
		check("park", err)
		_, err = b.k.Group("kafka").RemoveIdleConsumers(ctx, "w1", 0)
		check("forget", err)
		_, err = b.k.DeadLetter(ctx, store.Letter{Group: "kafka", Consumer: "w1", EntryID: "1-1"})
		check("dead", err)
	}
	all()
	b.events(t, "rain", 1)
	all()
	b.group(t, "kafka")
	made, err := b.k.Group("kafka").Create(ctx)
	require.NoError(t, err)
	require.False(t, made)
	require.Len(t, b.read(t, "kafka", "w1", 9), 1)
	require.Empty(t, b.read(t, "kafka", "w1", 9))

	for _, harm := range []func() error{
		func() error { return b.rdb.XGroupDestroy(ctx, b.k.Keys.Events(), "kafka").Err() },
		func() error { return b.rdb.Del(ctx, b.k.Keys.Events()).Err() },
	} {
		b.group(t, "kafka")
		b.read(t, "kafka", "w1", 9)
		errs := make(chan error, 1)
		go func() {
			_, err := b.k.Group("kafka").ReadNew(ctx, "w1", 1, 20*time.Second)
			errs <- err
		}()
		b.blocked(t)
		require.NoError(t, harm())
		err := <-errs
		require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%v", err)
	}
}

// blocked waits until a client blocks in XREADGROUP.
func (b *bundle) blocked(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		list, err := b.rdb.ClientList(t.Context()).Result()
		return err == nil && strings.Contains(list, "cmd=xreadgroup")
	}, 20*time.Second, 5*time.Millisecond)
}

func TestReadNewWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 1))
	b.group(t, "kafka")
	start := time.Now()
	require.Empty(t, b.read(t, "kafka", "w1", 1), "ReadNew without block returns at once")
	none, err := b.k.Group("kafka").ReadNew(t.Context(), "w1", 1, 50*time.Millisecond)
	require.NoError(t, err)
	require.Empty(t, none)
	require.Greater(t, time.Since(start), 40*time.Millisecond)
	got := make(chan []store.RawEntry, 1)
	go func() {
		raw, _ := b.k.Group("kafka").ReadNew(t.Context(), "w1", 1, 10*time.Second)
		got <- raw
	}()
	b.grab(t, "rain", "u1")
	require.Len(t, <-got, 1)
}

// Several workers reclaim. Only the worker with the lead gets entries. When its lead ends, another worker can take
// it.
func TestOneWorkerReclaimsAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pending(t, b)
	k := b.k
	call := func(worker string, lead time.Duration) store.Reclaimed {
		t.Helper()
		r, err := k.Reclaim(t.Context(), store.ReclaimCall{Group: "kafka", Consumer: worker, Count: 1, Lead: lead})
		require.NoError(t, err)
		return r
	}
	r := call("w2", time.Minute)
	require.Zero(t, r.Led)
	require.Len(t, r.Entries, 1)
	r = call("w3", time.Minute)
	require.Greater(t, r.Led, 30*time.Second)
	require.Empty(t, r.Entries)
	require.Len(t, call("w2", time.Minute).Entries, 1, "the leader continues")
	require.NoError(t, k.EndLead(t.Context(), "kafka", "w3"), "w3 does not have the lead, so this changes nothing")
	require.Positive(t, call("w3", time.Minute).Led)
	b.endLead(t, "w2")
	require.Zero(t, call("w3", 20*time.Millisecond).Led)
	testkit.Eventually(t, 30*time.Second, func() bool { return call("w4", time.Minute).Led == 0 }, "w3 is gone")
	led, err := k.TakeLead(t.Context(), "#trimmer", "t1", time.Minute)
	require.NoError(t, err)
	require.Zero(t, led, "another work has another lead")
	led, err = k.TakeLead(t.Context(), "#trimmer", "t2", time.Minute)
	require.NoError(t, err)
	require.Positive(t, led)
}
