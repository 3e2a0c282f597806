package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
)

// finished returns the counts of a campaign in Redis, as "done:kafka=3".
func (b *bundle) finished(t require.TestingT, id string) string {
	fields, err := b.rdb.HGetAll(context.Background(), b.k.Keys.Campaign(id)).Result()
	require.NoError(t, err)
	var counts []string
	for field, n := range fields {
		if strings.HasPrefix(field, "done:") || strings.HasPrefix(field, "dead:") {
			counts = append(counts, field+"="+n)
		}
	}
	slices.Sort(counts)
	return strings.Join(counts, " ")
}

func seqs(campaign string, first, last int64) []stream.CampaignRange {
	return stream.OfCampaign(campaign, stream.SeqRange{First: first, Last: last})
}

// One batch has grants of two campaigns and a close. Each campaign counts its own grants, and a repeat counts nothing.
func TestFinishedOfTwoCampaigns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 5))
	b.load(t, spec("snow-2026-01", 5))
	b.reached(t, 100)
	batch := slices.Concat(seqs("rain", 1, 3), seqs("snow-2026-01", 4, 20), seqs("", 21, 21), seqs("rain", 22, 30))
	for range 2 {
		_, err := b.k.Group("kafka").Ack(t.Context(), batch, nil)
		require.NoError(t, err)
		require.Equal(t, "done:kafka=12", b.finished(t, "rain"))
		require.Equal(t, "done:kafka=17", b.finished(t, "snow-2026-01"))
	}
	_, err := b.k.Group("balance").Ack(t.Context(), seqs("rain", 2, 2), nil)
	require.NoError(t, err)
	_, err = b.k.Group("kafka").Ack(t.Context(), seqs("rain", 20, 32), nil)
	require.NoError(t, err)
	require.Equal(t, "done:balance=1 done:kafka=14", b.finished(t, "rain"), "31 and 32 are new")
}

// A sink finishes a grant of a campaign that has left Redis. Nothing of the campaign comes back.
func TestFinishedAfterTheCampaignLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reached(t, 100)
	_, err := b.k.Group("kafka").Ack(t.Context(), seqs("rain", 1, 3), nil)
	require.NoError(t, err)
	n, err := b.rdb.Exists(t.Context(), b.k.Keys.Campaign("rain")).Result()
	require.NoError(t, err)
	require.Zero(t, n)
	done, err := b.k.Group("kafka").Done(t.Context(), stream.SeqRange{First: 1, Last: 3})
	require.NoError(t, err)
	require.True(t, done.Has(1) && done.Has(3))
}

// A worker finishes another worker's claim, which Redis has lost or not, and says whose grants arrived. The claims of a
// replay to another topic count nothing.
func TestFinishedByClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 5))
	b.reached(t, 100)
	claims := func(sink, owner string, group bool) *store.Claims {
		c, err := b.store.Claims(store.ClaimsConfig{Sink: sink, Owner: owner, Lease: time.Minute, TakeLive: true, Trimmed: group})
		require.NoError(t, err)
		return c
	}
	at := stream.Opening{Shard: 0}
	events := slices.Concat(seqs("rain", 1, 3), seqs("snow", 4, 6), seqs("rain", 9, 9))
	_, err := claims("kafka", "w1", true).Claim(t.Context(), at, "c1", stream.Seqs(events), "p")
	require.NoError(t, err)
	taken, err := claims("kafka", "w2", true).Claim(t.Context(), at, "c2", []stream.SeqRange{{First: 5, Last: 5}}, "p")
	require.NoError(t, err)
	require.Equal(t, stream.Seqs(events), taken.Open[0].Events)
	require.NoError(t, b.rdb.Del(t.Context(), b.k.Keys.Claims("kafka")).Err())
	require.NoError(t, claims("kafka", "w2", true).Complete(t.Context(), at, taken.Open[0], events))
	require.Equal(t, "done:kafka=4", b.finished(t, "rain"))

	copies := claims("replay-r1", "w1", false)
	a, err := copies.Claim(t.Context(), at, "c3", stream.Seqs(events), "p")
	require.NoError(t, err)
	require.NoError(t, copies.Complete(t.Context(), at, stream.Claim{ID: "c3", Fence: a.Fence}, events))
	require.Equal(t, "done:kafka=4", b.finished(t, "rain"))
}

// Status adds up the counts of a campaign's places.
func TestStatusOfFinished(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	st, err := store.New(store.Config{Redis: rdb, Space: hongbao.Space{Prefix: "hb", Shards: 4}})
	require.NoError(t, err)
	counts := [][]any{{"done:kafka", 5, "dead:balance", 1}, {"done:kafka", 7, "dead:kafka", 2}, {}}
	places := st.Places("rain", 3)
	for j, k := range places {
		require.NoError(t, rdb.HSet(t.Context(), k.Keys.Campaign("rain"), append(counts[j], "state", "open", "packets", 30,
			"total", 30, "loaded", 10, "granted", 9, "granted_amount", 9, "places", 3)...).Err())
	}
	s, _, err := st.Campaign("rain").Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, []model.Finished{{Sink: "balance", Dead: 1}, {Sink: "kafka", Done: 12, Dead: 2}}, s.Sinks)
	require.NoError(t, rdb.HSet(t.Context(), places[1].Keys.Campaign("rain"), "done:kafka", "many").Err())
	_, _, err = st.Campaign("rain").Status(t.Context())
	require.ErrorContains(t, err, "done:kafka")
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
}

// sinkLives makes random calls of all scripts that set done bits of a sink, or that move a grant between the counts.
type sinkLives struct {
	*bundle
	ctx      context.Context
	restore  func(*rapid.T, map[string]string)
	entry    string           // an entry that stays pending
	dead     map[int64]bool   // grants that must count as dead
	letters  map[int64]string // open letters, by seq
	made     int
	snapshot *sinkSnapshot
}

type sinkSnapshot struct {
	keys    map[string]string
	dead    map[int64]bool
	letters map[int64]string
}

// The events are 1 to 40, and some on both sides of the border between two chunks.
const sideOfBorder = 20

func allEvents() (list []int64) {
	for seq := int64(1); seq <= 40; seq++ {
		list = append(list, seq)
	}
	for seq := int64(store.ChunkEvents - sideOfBorder); seq < store.ChunkEvents+sideOfBorder; seq++ {
		list = append(list, seq)
	}
	return list
}

// campaignOf returns the campaign of an event; "" if it is no grant.
func campaignOf(seq int64) string { return []string{"rain", "snow", "rain", ""}[seq/11%4] }

func (l *sinkLives) draw(t *rapid.T) (events []stream.CampaignRange) {
	all := allEvents()
	first := rapid.IntRange(0, len(all)-1).Draw(t, "first")
	for _, seq := range all[first:min(len(all), first+rapid.IntRange(1, 30).Draw(t, "length"))] {
		if rapid.IntRange(0, 5).Draw(t, "gap") > 0 {
			events = stream.AppendEvent(events, campaignOf(seq), seq)
		}
	}
	if len(events) == 0 {
		events = stream.AppendEvent(events, campaignOf(all[first]), all[first])
	}
	return events
}

func (l *sinkLives) ack(t *rapid.T) {
	_, err := l.k.Group("kafka").Ack(l.ctx, l.draw(t), nil)
	require.NoError(t, err)
}

func (l *sinkLives) letter(t *rapid.T) {
	seq := rapid.SampledFrom(allEvents()).Draw(t, "seq")
	if floor := l.floor(t); seq < floor || campaignOf(seq) == "" {
		t.Skip("no pending grant")
	}
	written, err := l.k.DeadLetter(l.ctx, store.Letter{Group: "kafka", Consumer: "w1", EntryID: l.entry,
		Grant: &hongbao.Grant{Campaign: campaignOf(seq), Seq: seq, Packet: 1, Amount: 1, User: "u"}})
	require.NoError(t, err)
	if !written {
		return
	}
	rows, err := l.rdb.XRevRangeN(l.ctx, l.k.Keys.Dead("kafka"), "+", "-", 1).Result()
	require.NoError(t, err)
	l.letters[seq], l.dead[seq] = rows[0].ID, true
}

func (l *sinkLives) resolve(t *rapid.T) {
	if len(l.letters) == 0 {
		t.Skip("no letter")
	}
	seq := rapid.SampledFrom(slices.Sorted(maps.Keys(l.letters))).Draw(t, "letter")
	r := &store.Resolution{Sink: "kafka", Letter: l.letters[seq], What: model.LetterDropped, Decision: by("ann", "a test")}
	if rapid.Bool().Draw(t, "requeue") {
		r.What, r.Campaign = model.LetterRequeued, campaignOf(seq)
		delete(l.dead, seq)
	}
	for i := range 2 {
		now, err := l.k.ResolveLetter(l.ctx, r)
		require.NoError(t, err)
		require.Equal(t, i == 0, now)
	}
	delete(l.letters, seq)
}

// push claims events. Before the claim is completed, some of them may become dead letters.
func (l *sinkLives) push(t *rapid.T) {
	l.made++
	events := l.draw(t)
	c := &store.ClaimCall{Sink: "kafka", ID: fmt.Sprintf("c%d", l.made), Owner: "w1", Lease: time.Minute, Trimmed: true,
		Events: stream.Seqs(events)}
	requeue := rapid.Bool().Draw(t, "requeue")
	also := store.Also{Sink: "requeue-kafka", Letters: true}
	if requeue {
		c.Done, c.Trimmed, also.Letters = "requeue-kafka", false, false
	}
	a, err := l.k.Claim(l.ctx, c)
	require.NoError(t, err)
	if !a.Granted() {
		return
	}
	if rapid.Bool().Draw(t, "letter") {
		l.letter(t)
	}
	require.NoError(t, l.k.Group("kafka").Complete(l.ctx, &stream.Claim{ID: c.ID, Fence: a.Fence}, events, also))
}

// mark marks what the topic has, as a restore does.
func (l *sinkLives) mark(t *rapid.T) {
	meta := l.k.Keys.Meta()
	require.NoError(t, l.rdb.HSet(l.ctx, meta, "frozen", "1", "mend", attempt.String()).Err())
	require.NoError(t, l.k.SetDone(l.ctx, attempt, "kafka", "kafka", l.draw(t)))
	require.NoError(t, l.rdb.HDel(l.ctx, meta, "frozen", "mend").Err())
}

// trim finishes all events of the first chunk, and deletes their bits.
func (l *sinkLives) trim(t *rapid.T) {
	var events []stream.CampaignRange
	for _, seq := range allEvents() {
		if seq < store.ChunkEvents {
			events = stream.AppendEvent(events, campaignOf(seq), seq)
		}
	}
	_, err := l.k.Group("kafka").Ack(l.ctx, events, nil)
	require.NoError(t, err)
	require.NoError(t, l.k.RaiseDoneFloor(l.ctx, 0, 1, []string{"kafka"}))
}

// back makes Redis go back to the last snapshot, or takes one.
func (l *sinkLives) back(t *rapid.T) {
	if s := l.snapshot; s != nil && rapid.Bool().Draw(t, "back") {
		l.restore(t, s.keys)
		l.dead, l.letters = maps.Clone(s.dead), maps.Clone(s.letters)
		return
	}
	keys := map[string]string{}
	for _, key := range l.rdb.Keys(l.ctx, l.store.Space().Prefix+":*").Val() {
		keys[key] = l.rdb.Dump(l.ctx, key).Val()
	}
	l.snapshot = &sinkSnapshot{keys, maps.Clone(l.dead), maps.Clone(l.letters)}
}

func (l *sinkLives) floor(t *rapid.T) int64 {
	head, err := l.k.Head(l.ctx)
	require.NoError(t, err)
	return head.DoneFloor
}

// check compares the counts with the done bits in Redis.
func (l *sinkLives) check(t *rapid.T) {
	all := allEvents()
	bits, err := l.k.Group("kafka").FinishedEvents(l.ctx, stream.SeqRange{First: 1, Last: all[len(all)-1]})
	require.NoError(t, err)
	done, dead := map[string]int64{}, map[string]int64{}
	for _, seq := range all {
		switch {
		case !bits.Has(seq):
			require.False(t, l.dead[seq])
		case l.dead[seq]:
			dead[campaignOf(seq)]++
		default:
			done[campaignOf(seq)]++
		}
	}
	for _, id := range []string{"rain", "snow"} {
		s, found, err := l.store.Campaign(id).Status(l.ctx)
		require.NoError(t, err)
		require.True(t, found)
		var got model.Finished
		if len(s.Sinks) > 0 {
			require.Len(t, s.Sinks, 1)
			got = s.Sinks[0]
		}
		require.Equal(t, [2]int64{done[id], dead[id]}, [2]int64{got.Done, got.Dead}, "done and dead of %s", id)
	}
}

// After any history of acks, pushes, dead letters, decisions about them, restores, trims and losses, the counts of a
// campaign add up to its done bits, and those of its dead letters that were not requeued are dead.
func TestFinishedMatchesDoneBits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rapid.Check(t, func(rt *rapid.T) {
		l := &sinkLives{bundle: setupOn(t, b.rdb), ctx: t.Context(), dead: map[int64]bool{}, letters: map[int64]string{}}
		l.restore = func(rt *rapid.T, keys map[string]string) {
			require.NoError(rt, l.rdb.Del(l.ctx, l.rdb.Keys(l.ctx, l.store.Space().Prefix+":*").Val()...).Err())
			for key, value := range keys {
				require.NoError(rt, l.rdb.Restore(l.ctx, key, 0, value).Err())
			}
		}
		l.events(t, "rain", 1)
		l.load(t, spec("snow", 1))
		l.group(t, "kafka")
		l.entry = l.read(t, "kafka", "w1", 1)[0].ID
		storetest.FarAlong(t, l.store)
		rt.Repeat(map[string]func(*rapid.T){"ack": l.ack, "letter": l.letter, "resolve": l.resolve, "push": l.push,
			"mark": l.mark, "trim": l.trim, "back": l.back, "": l.check})
	})
}
