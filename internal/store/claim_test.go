package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
)

// claimModel is the model whose results claim.lua, complete.lua and release.lua must match. A lease ends either at
// once or never.
type claimModel struct {
	fence int64
	done  map[int64]bool
	open  map[string]*modelClaim
}

type modelClaim struct {
	stream.Claim
	owner string
	over  bool
}

func overlap(a, b []stream.SeqRange) bool {
	for _, x := range a {
		for _, y := range b {
			if x.First <= y.Last && y.First <= x.Last {
				return true
			}
		}
	}
	return false
}

func (m *claimModel) claim(c *store.ClaimCall) stream.ClaimAnswer {
	var a stream.ClaimAnswer
	for _, r := range c.Events {
		for seq := r.First; seq <= r.Last; seq++ {
			if m.done[seq] {
				a.Done = stream.AppendSeq(a.Done, seq)
			}
		}
	}
	over := c.Lease < time.Minute
	for _, o := range m.open {
		switch {
		case !overlap(o.Events, c.Events):
		case c.TakeLive || o.owner == c.Owner || o.over:
			a.Open = append(a.Open, o.Claim)
			o.owner, o.over = c.Owner, over
		default:
			a.LiveClaims++
		}
	}
	if !a.Granted() {
		m.fence += int64(len(a.Open))
		return a
	}
	m.fence++
	a.Fence = m.fence
	m.open[c.ID] = &modelClaim{
		Claim: stream.Claim{ID: c.ID, Fence: a.Fence, Events: c.Events, Payload: c.Payload}, owner: c.Owner, over: over,
	}
	return a
}

func (m *claimModel) valid(c *stream.Claim) bool {
	o := m.open[c.ID]
	return o != nil && o.Fence == c.Fence
}

// lost reports whether claim c was deleted by hand and no newer claim covers its events. Complete must then succeed.
func (m *claimModel) lost(c *stream.Claim) bool {
	for _, o := range m.open {
		if overlap(o.Events, c.Events) {
			return false
		}
	}
	return m.open[c.ID] == nil && m.fence < c.Fence
}

// drawEvents draws ascending runs with gaps between them, near the edges of chunks.
func drawEvents(t *rapid.T) []stream.SeqRange {
	first := rapid.SampledFrom([]int64{1, store.ChunkEvents - 30, 2*store.ChunkEvents - 30}).Draw(t, "base")
	var out []stream.SeqRange
	for range rapid.IntRange(1, 3).Draw(t, "runs") {
		first += rapid.Int64Range(2, 20).Draw(t, "gap")
		last := first + rapid.Int64Range(0, 20).Draw(t, "more")
		out = append(out, stream.SeqRange{First: first, Last: last})
		first = last
	}
	return out
}

// claimLives makes random calls on the claims of one shard, and on the model.
type claimLives struct {
	claimModel
	b     *bundle
	ctx   context.Context
	k     *store.Shard
	known []stream.Claim // every granted claim, including fenced and ended ones
	made  int
	losts int
}

func (l *claimLives) pick(t *rapid.T) stream.Claim {
	if len(l.known) == 0 {
		t.Skip("no claim yet")
	}
	return l.known[rapid.IntRange(max(0, len(l.known)-8), len(l.known)-1).Draw(t, "claim")]
}

// ended reports whether the call ended the claim. It fails the test if that differs from valid.
func ended(t *rapid.T, valid bool, err error) bool {
	if valid {
		require.NoError(t, err)
		return true
	}
	require.ErrorIs(t, err, stream.ErrFenced)
	return false
}

func (l *claimLives) push(ranges []stream.SeqRange) {
	for _, r := range ranges {
		for seq := r.First; seq <= r.Last; seq++ {
			l.done[seq] = true
		}
	}
}

func (l *claimLives) claims(t *rapid.T) {
	l.made++
	c := &store.ClaimCall{
		Sink: "kafka", ID: fmt.Sprintf("c%d", l.made), Owner: rapid.SampledFrom([]string{"w1", "w2"}).Draw(t, "owner"),
		Lease: rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "lease"), TakeLive: rapid.Bool().Draw(t, "any"),
		Events: drawEvents(t), Payload: rapid.SampledFrom([]string{"", "a\nb 1-2\n", "\x00\xff"}).Draw(t, "payload"),
	}
	last := l.fence
	got, err := l.k.Claim(l.ctx, c)
	require.NoError(t, err)
	want := l.claim(c)
	byID := func(a, b stream.Claim) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(got.Open, byID)
	slices.SortFunc(want.Open, byID)
	fences := map[int64]bool{}
	for i := range got.Open { // claims that are taken over get new fences in any order
		require.Greater(t, got.Open[i].Fence, last)
		require.LessOrEqual(t, got.Open[i].Fence, l.fence)
		fences[got.Open[i].Fence] = true
		want.Open[i].Fence = got.Open[i].Fence
		l.open[got.Open[i].ID].Fence = got.Open[i].Fence
	}
	require.Len(t, fences, len(got.Open))
	require.Equal(t, want, got)
	l.known = append(l.known, got.Open...)
	if got.Granted() {
		l.known = append(l.known, l.open[c.ID].Claim)
	}
}

func (l *claimLives) complete(t *rapid.T) {
	c := l.pick(t)
	lost := l.lost(&c)
	if !ended(t, lost || l.valid(&c), l.k.Group("kafka").Complete(l.ctx, &c, stream.OfCampaign("", c.Events...), store.Also{})) {
		return
	}
	if lost {
		l.losts++
	}
	delete(l.open, c.ID)
	l.push(c.Events)
}

func (l *claimLives) release(t *rapid.T) {
	c := l.pick(t)
	if ended(t, l.valid(&c), l.k.Group("kafka").Release(l.ctx, &c)) {
		delete(l.open, c.ID)
	}
}

func (l *claimLives) deletedByHand(t *rapid.T) {
	if rapid.IntRange(0, 7).Draw(t, "rarely") > 0 {
		t.Skip("not now")
	}
	require.NoError(t, l.b.rdb.Del(l.ctx, l.k.Keys.Claims("kafka")).Err())
	l.fence, l.open = 0, map[string]*modelClaim{}
}

func (l *claimLives) size(t *rapid.T) {
	n, err := l.b.rdb.HLen(l.ctx, l.k.Keys.Claims("kafka")).Result()
	require.NoError(t, err)
	require.EqualValues(t, len(l.open), max(0, n-1), "the claims and #fence")
}

// After any sequence of claim calls, every answer matches the model, fences only rise, and done events stay done.
func TestClaimsAgainstModel(t *testing.T) {
	t.Parallel()
	b, losts := setup(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		st := storetest.FarAlong(t, storetest.InitializedOn(t, b.rdb, 1))
		l := &claimLives{
			claimModel: claimModel{done: map[int64]bool{}, open: map[string]*modelClaim{}}, b: b, ctx: t.Context(),
			k: st.Shard(0),
		}
		rt.Repeat(map[string]func(*rapid.T){
			"claim": l.claims, "complete": l.complete, "release": l.release, "delete": l.deletedByHand, "": l.size,
		})
		losts += l.losts
		for chunk := range int64(4) {
			r := stream.SeqRange{First: chunk * store.ChunkEvents, Last: (chunk+1)*store.ChunkEvents - 1}
			got, err := l.k.Group("kafka").Done(l.ctx, r)
			require.NoError(rt, err)
			for seq := r.First; seq <= r.Last; seq++ {
				if got.Has(seq) != l.done[seq] {
					rt.Fatalf("seq %d: done is %v, want %v", seq, got.Has(seq), l.done[seq])
				}
			}
		}
	})
	require.Positive(t, losts, "no run completed a claim after it was deleted")
}

// All claims are deleted between the push and Complete (F31). Complete marks the events as done, because the push
// arrived. If a newer claim covers some of the events, Complete fails with ErrFenced instead and changes nothing.
func TestCompleteOfADeletedClaim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(*testing.T, *bundle)
		fenced    bool
	}{
		"no one came": {func(*testing.T, *bundle) {}, false},
		"other events were claimed": {func(t *testing.T,
			b *bundle) {
			grant(t, b, "c9", stream.SeqRange{First: 1000, Last: 1001})
		}, false},
		"its events were claimed": {func(t *testing.T, b *bundle) { grant(t, b, "c9", ranges[0].SeqRange) }, true},
		"a claim can't be read": {func(t *testing.T, b *bundle) {
			require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Claims("kafka"), "c9", "garbage").Err())
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.reached(t, 2*store.ChunkEvents)
			for i := range 3 { // raise the fence
				grant(t, b, fmt.Sprintf("c%d", i), stream.SeqRange{First: int64(500 + i), Last: int64(500 + i)})
			}
			a, err := b.k.Claim(t.Context(), claimCall("mine", "w1"))
			require.NoError(t, err)
			require.True(t, a.Granted())
			require.NoError(t, b.rdb.Del(t.Context(), b.k.Keys.Claims("kafka")).Err())
			c.meanwhile(t, b)
			mine := stream.Claim{ID: "mine", Fence: a.Fence}
			before := b.dump(t)
			err = b.k.Group("kafka").Complete(t.Context(), &mine, ranges, store.Also{})
			if c.fenced {
				require.ErrorIs(t, err, stream.ErrFenced)
				require.Empty(t, differ(before, b.dump(t)))
				return
			}
			require.NoError(t, err)
			after := b.dump(t)
			require.NoError(t, b.k.Group("kafka").Complete(t.Context(), &mine, ranges, store.Also{}), "a repeat")
			require.Empty(t, differ(after, b.dump(t)))
			again, err := b.k.Claim(t.Context(), claimCall("again", "w1"))
			require.NoError(t, err)
			require.Equal(t, claimRanges, again.Done)
		})
	}
}

func grant(t *testing.T, b *bundle, id string, events stream.SeqRange) {
	t.Helper()
	call := claimCall(id, "w2")
	call.Events = []stream.SeqRange{events}
	a, err := b.k.Claim(t.Context(), call)
	require.NoError(t, err)
	require.True(t, a.Granted())
}

// The answer to a claim is lost, and the owner asks again. It gets the claim with its payload and a higher fence. The
// first fence is then invalid.
func TestClaimRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reached(t, 2*store.ChunkEvents)
	first, err := b.k.Claim(t.Context(), claimCall("c1", "w1"))
	require.NoError(t, err)
	require.True(t, first.Granted())
	again, err := b.k.Claim(t.Context(), claimCall("c1", "w1"))
	require.NoError(t, err)
	require.Equal(t, []stream.Claim{{ID: "c1", Fence: first.Fence + 1, Events: claimRanges, Payload: "p"}}, again.Open)
	require.ErrorIs(t, b.k.Group("kafka").Complete(t.Context(),
		&stream.Claim{ID: "c1", Fence: first.Fence}, ranges, store.Also{}), stream.ErrFenced)
	require.NoError(t, b.k.Group("kafka").Complete(t.Context(), &again.Open[0], ranges, store.Also{}))
	done, err := b.k.Claim(t.Context(), claimCall("c2", "w1"))
	require.NoError(t, err)
	require.Equal(t, claimRanges, done.Done)
}

// Redis has an unreadable claim. A new claim for the same events fails as Broken and does not overwrite it.
func TestClaimGarbled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reached(t, 2*store.ChunkEvents)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Claims("kafka"), "c0", "garbage").Err())
	before := b.dump(t)
	_, err := b.k.Claim(t.Context(), claimCall("c1", "w1"))
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	require.Empty(t, differ(before, b.dump(t)))
}

// A claim's text is the same in each release, because the worker that takes a claim over may be older or newer than its
// owner.
func TestTextOfAClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reached(t, 2*store.ChunkEvents)
	_, err := b.k.Claim(t.Context(), claimCall("c1", "w1"))
	require.NoError(t, err)
	text, err := b.rdb.HGet(t.Context(), b.k.Keys.Claims("kafka"), "c1").Result()
	require.NoError(t, err)
	require.Regexp(t, `^1 \d{13} w1\n1-2,65535-65536\np$`, text)
}
