package consumer

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
)

// trimmer returns a Trimmer that deletes finished entries without any retention, and its logs.
func (b *bundle) trimmer(t *testing.T, groups ...string) (*Trimmer, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	cfg := DefaultTrimmerConfig()
	cfg.Deployment, cfg.Groups = deployment.Of(b.over(t, b.rdb, nil).Store(), zap.New(core)), groups
	cfg.Retention, cfg.Every = 0, 10*time.Millisecond
	tr, err := NewTrimmer(cfg)
	require.NoError(t, err)
	return tr, logs
}

func (b *bundle) length(t *testing.T) int64 {
	t.Helper()
	n, err := b.rdb.XLen(t.Context(), b.keys().Keys.Events()).Result()
	require.NoError(t, err)
	return n
}

func (b *bundle) meta(t *testing.T, field string) string {
	t.Helper()
	v, err := b.rdb.HGet(t.Context(), b.keys().Keys.Meta(), field).Result()
	require.NoError(t, err)
	return v
}

// finish lets a consumer of the group read n entries and ack them.
func (b *bundle) finish(t *testing.T, name string, n int) {
	t.Helper()
	_, err := b.keys().Group(name).Create(t.Context())
	require.NoError(t, err)
	raw, err := b.keys().Group(name).ReadNew(t.Context(), "c", n, 0)
	require.NoError(t, err)
	var ids []string
	for i := range raw {
		ids = append(ids, raw[i].ID)
	}
	b.ack(t, name, ids...)
}

// ack sets the done bits of the entries and acks them, as a worker does.
func (b *bundle) ack(t *testing.T, name string, ids ...string) {
	t.Helper()
	var done []stream.CampaignRange
	for _, id := range ids {
		entries, err := b.keys().Entries(t.Context(), id, id)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		done = append(done, stream.OfCampaign("", stream.SeqRange{First: entries[0].Seq, Last: entries[0].Last()})...)
	}
	_, err := b.keys().Group(name).Ack(t.Context(), done, ids)
	require.NoError(t, err)
}

// lag trims shard 0 and returns the shard's state.
func lag(t *testing.T, tr *Trimmer) store.Trimmed {
	t.Helper()
	out, err := tr.trim(t.Context(), 0)
	require.NoError(t, err)
	return out
}

func TestTrimNeverTouchesWhatIsNotFinished(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, repeat(2, 1000)...)
	tr, _ := b.trimmer(t, group, "kafka")
	b.finish(t, "kafka", 1000)
	b.vanish(t, "slow", 700)
	b.ack(t, group, append(ids[:350:350], ids[360:700]...)...) // ten entries in the middle stay pending
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Less(t, b.length(t), int64(1000), "entries that both groups have finished are gone, in whole nodes")
	kept, err := b.rdb.XRange(t.Context(), b.keys().Keys.Events(), ids[350], "+").Result()
	require.NoError(t, err)
	require.Len(t, kept, 310, "pending and unread entries stay")
	require.Equal(t, "1380", b.meta(t, "finished"))
	b.ack(t, group, ids[350:360]...)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Equal(t, "1400", b.meta(t, "finished"), "unread events are not finished")
	kept, err = b.rdb.XRange(t.Context(), b.keys().Keys.Events(), ids[700], "+").Result()
	require.NoError(t, err)
	require.Len(t, kept, 300)
	lag := lag(t, tr)
	require.EqualValues(t, 2000, lag.Seq)
	require.EqualValues(t, 1400, lag.Finished)
	require.Len(t, lag.Groups, 2)
	b.finish(t, group, 300)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Equal(t, "2000", b.meta(t, "finished"))
	require.LessOrEqual(t, b.length(t), int64(101))
}

// A group that may lag makes no producer busy, but its entries stay in the stream.
func TestGroupThatMayLagMakesNobodyBusy(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, repeat(2, 1000)...)
	tr, _ := b.trimmer(t, group, "crm")
	tr.cfg.MayLag = []string{"crm"}
	b.finish(t, group, 900)
	b.finish(t, "crm", 10)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Equal(t, "1800", b.meta(t, "finished"), "the backlog is that of the other group")
	require.GreaterOrEqual(t, b.length(t), int64(990))
	b.finish(t, "crm", 900)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.LessOrEqual(t, b.length(t), int64(200), "what both have finished is gone")

	cfg := tr.cfg
	cfg.MayLag = []string{"crm", "sms"}
	_, err := NewTrimmer(cfg)
	require.ErrorContains(t, err, `MayLag has group "sms", which Groups lacks`)
}

// While a shard is frozen, the log has one line about it, and one more after the next freeze.
func TestTrimOfAFrozenShardLogsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	tr, logs := b.trimmer(t, group)
	failed := func() int { return logs.FilterMessageSnippet("trim failed").Len() }
	tr.trimAll(t.Context())
	require.Zero(t, failed())
	open, err := b.rdb.HGetAll(t.Context(), b.keys().Keys.Meta()).Result()
	require.NoError(t, err)
	require.NoError(t, b.rdb.HSet(t.Context(), b.keys().Keys.Meta(), "opened", "another run").Err())
	for range 3 {
		tr.trimAll(t.Context())
	}
	require.Equal(t, 1, failed())
	require.NoError(t, b.rdb.HSet(t.Context(), b.keys().Keys.Meta(), open).Err())
	tr.trimAll(t.Context())
	require.Equal(t, 1, failed())
}

func TestTrimKeepsWhatTheRetentionKeeps(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	begin := time.Now().Add(-time.Minute).UnixMilli()
	pipe := b.rdb.Pipeline()
	for i := range int64(1000) { // one entry per millisecond, the resolution of the retention
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: b.keys().Keys.Events(), ID: fmt.Sprintf("%d-0", begin+i),
			Values: fields(1+i, 1)})
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	b.jump(t, 1000)
	b.finish(t, group, 1000)
	tr, _ := b.trimmer(t, group)
	tr.cfg.Retention = time.Hour
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.EqualValues(t, 1000, b.length(t))
	require.Equal(t, "1000", b.meta(t, "finished"))
	tr.cfg.MaxEvents = 300
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.GreaterOrEqual(t, b.length(t), int64(300))
	require.LessOrEqual(t, b.length(t), int64(400), "only whole stream nodes of 100 entries are deleted")
}

func TestMissingGroupBlocksTrimmingAndIsReportedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, repeat(1, 500)...)
	b.finish(t, group, 500)
	tr, logs := b.trimmer(t, group, "kafka")
	for range 3 {
		require.NoError(t, tr.Trim(t.Context(), 0))
	}
	require.EqualValues(t, 500, b.length(t))
	require.Equal(t, "0", b.meta(t, "finished"))
	require.Equal(t, 1, logs.FilterMessageSnippet("declared groups do not exist").Len())
	require.Equal(t, []string{"kafka"}, lag(t, tr).Missing)
	b.finish(t, "kafka", 500)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Less(t, b.length(t), int64(500))
	require.NoError(t, b.rdb.XGroupDestroy(t.Context(), b.keys().Keys.Events(), "kafka").Err())
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Equal(t, 2, logs.FilterMessageSnippet("declared groups do not exist").Len(), "the group is missing again")
}

func TestUnknownGroupIsRespectedAndReported(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, repeat(1, 1000)...)
	b.finish(t, group, 1000)
	b.finish(t, "stranger", 200)
	tr, logs := b.trimmer(t, group)
	for range 3 {
		require.NoError(t, tr.Trim(t.Context(), 0))
	}
	kept, err := b.rdb.XRange(t.Context(), b.keys().Keys.Events(), ids[200], "+").Result()
	require.NoError(t, err)
	require.Len(t, kept, 800)
	require.Equal(t, "1000", b.meta(t, "finished"), "an undeclared group does not count for the backlog of grabs")
	require.Equal(t, 1, logs.FilterMessageSnippet("deployment.sinks does not name").Len())
}

// jump sets the shard's last seq, as if many events had been written before.
func (b *bundle) jump(t *testing.T, seq int64) {
	t.Helper()
	b.seqs[0] = seq
	require.NoError(t, b.rdb.HSet(t.Context(), b.keys().Keys.Meta(), "seq", seq).Err())
}

func (b *bundle) chunks(t *testing.T) string {
	t.Helper()
	var out []string
	for chunk := range int64(8) {
		n, err := b.rdb.Exists(t.Context(), b.keys().Keys.Done(group, chunk)).Result()
		require.NoError(t, err)
		if n == 1 {
			out = append(out, strconv.FormatInt(chunk, 10))
		}
	}
	return strings.Join(out, " ")
}

func TestDoneBitsAreDeletedBehindTheStream(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	for chunk := range int64(4) {
		b.jump(t, chunk*store.ChunkEvents)
		b.add(t, 0, repeat(1, 300)...)
		b.idle(t, 0)
	}
	require.NoError(t, w.stop())
	require.Equal(t, "0 1 2 3", b.chunks(t))
	tr, _ := b.trimmer(t, group)
	tr.cfg.Retention = time.Hour
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Equal(t, "0 1 2 3", b.chunks(t), "the events of all chunks are still in the stream")
	tr.cfg.Retention = 0
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Equal(t, "3", b.chunks(t))
	require.Equal(t, strconv.Itoa(3*store.ChunkEvents), b.meta(t, "done_floor"))
}

// The trimmer must ignore the seqs of forged entries. Otherwise it would delete done bits of events that are still in
// the stream.
func TestForgedEntriesDoNotMoveTheTrimmer(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(b *bundle){
		"huge seq":         func(b *bundle) { b.raw(t, "3", "grant rain 9007199254740991 1 1") },
		"many without seq": func(b *bundle) { forgeMany(t, b) },
		"seq 0":            func(b *bundle) { b.raw(t, "3", "grant rain 0 1 1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1)
			forge(b)
			s := newSink(nil)
			w := start(t, b.config(t, "w", s))
			b.add(t, 0, 100)
			b.idle(t, 0)
			b.jump(t, 2*store.ChunkEvents)
			b.add(t, 0, 10)
			b.idle(t, 0)
			require.NoError(t, w.stop())
			tr, _ := b.trimmer(t, group)
			tr.cfg.Retention = time.Hour
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			for range 3 { // repeated, until the trimmer counts the events that jump skipped as lost
				require.NoError(t, tr.Trim(ctx, 0))
			}
			require.Equal(t, "0 2", b.chunks(t), "all events are still in the stream")
			require.Equal(t, strconv.Itoa(2*store.ChunkEvents+10), b.meta(t, "finished"))
		})
	}
}

func forgeMany(t *testing.T, b *bundle) {
	t.Helper()
	for range 200 {
		b.raw(t, "no", "seq")
	}
}

func TestUnfinishedEntriesBehindForgedOnesCount(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	forgeMany(t, b)
	b.add(t, 0, repeat(1, 10)...)
	_, err := b.keys().Group(group).Create(t.Context())
	require.NoError(t, err)
	tr, _ := b.trimmer(t, group)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Equal(t, "0", b.meta(t, "finished"))
	require.EqualValues(t, 210, b.length(t))
}

func TestDeadConsumersAreForgottenOnlyWithNothingPending(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 1, 1, 1)
	b.vanish(t, "idle", 1)
	require.NoError(t, b.rdb.XAck(t.Context(), b.keys().Keys.Events(), group, ids[0]).Err())
	b.vanish(t, "holds", 1)
	b.vanish(t, "parks", 1)
	n, err := b.keys().Group(group).Park(t.Context(), "parks", []store.Parking{{ID: ids[2], Campaign: "rain",
		Attempts: 1}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	tr, logs := b.trimmer(t, group)
	tr.cfg.ForgetAfter = time.Hour
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Zero(t, logs.FilterMessageSnippet("removed").Len(), "not idle for long enough")
	tr.cfg.ForgetAfter = time.Millisecond
	names := func() string {
		list, err := b.rdb.XInfoConsumers(t.Context(), b.keys().Keys.Events(), group).Result()
		require.NoError(t, err)
		var out []string
		for _, c := range list {
			out = append(out, c.Name)
		}
		return fmt.Sprint(out)
	}
	testkit.Eventually(t, soon, func() bool {
		require.NoError(t, tr.Trim(t.Context(), 0))
		return names() == "[_retry/paused/rain holds]"
	}, "only the consumers with a pending entry remain")
	b.pending(t, 2)
}

// rain opens a campaign with this number of packets on shard 0. It returns a function that grabs for a new user each
// time, with a bound on the backlog.
func (b *bundle) rain(t *testing.T, packets int, bound int64) func() hongbao.Outcome {
	t.Helper()
	_, err := loaded.Seeded(t.Context(), b.store, loaded.Rain("rain", int64(packets), hongbao.Amount(packets)),
		campaign.NewSeed())
	require.NoError(t, err)
	users := 0
	return func() hongbao.Outcome {
		users++
		a, err := b.keys().Place("rain").Grab(t.Context(), &store.GrabCall{
			MaxBacklog: bound, Grabs: []*hongbao.Grab{{Campaign: "rain", User: "u" + strconv.Itoa(users)}},
		}, nil)
		require.NoError(t, err)
		return a[0].Outcome
	}
}

// Grabs are busy while the backlog is full, and succeed again when the worker and the trimmer have caught up.
func TestBusyBoundEndToEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	k := b.keys()
	const packets = 40
	grab := b.rain(t, packets, 10)
	_, err := k.Group(group).Create(t.Context())
	require.NoError(t, err)
	tr, _ := b.trimmer(t, group)
	stop := testkit.Go(t, tr.Run)
	for range 10 {
		require.Equal(t, hongbao.OutcomeGranted, grab())
	}
	require.Equal(t, hongbao.OutcomeBusy, grab())
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	granted := 10
	testkit.Eventually(t, soon, func() bool {
		if grab() == hongbao.OutcomeGranted {
			granted++
		}
		return granted == packets
	}, "grabs succeed again while the sink finishes events")
	require.Equal(t, hongbao.OutcomeSoldOut, grab())
	b.idle(t, 0)
	testkit.Eventually(t, soon, func() bool { return b.meta(t, "finished") == strconv.Itoa(packets) }, "all finished")
	require.NoError(t, w.stop())
	stop()
	s.onceEach(t, packets)
}

// The records of requeued letters expire, and those of dropped whole entries. The records of dropped grants lose the
// user, and stay, because audit and replay need them.
func TestResolvedLettersExpire(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 1)
	b.finish(t, group, 1)
	tr, _ := b.trimmer(t, group)
	log := b.keys().Keys.ResolvedLetters(group)
	record := func(age time.Duration, decision, seq string, n int) {
		ms := time.Now().Add(-age).UnixMilli()
		pipe := b.rdb.Pipeline()
		for i := range n {
			pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: log, ID: fmt.Sprintf("%d-%d", ms, i+1),
				Values: []string{"letter", "4-1", "decision", decision, "by", "ann", "why", "x", "resolved", "7", "v", "2", "entry",
					"6-0", "seq", seq, "grant", "3 100 u1 r1 -", "reason", "no account u1", "entry.3",
					"grant rain 5 1 6 CNY\n3 100 u1 r1 -"}})
		}
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
	}
	left := func() (decisions []string) {
		rows, err := b.rdb.XRange(t.Context(), log, "-", "+").Result()
		require.NoError(t, err)
		for i := range rows {
			decisions = append(decisions, rows[i].Values["decision"].(string))
		}
		return decisions
	}
	record(tr.cfg.Letters+time.Hour, model.LetterRequeued, "5", lettersLimit+1)
	record(tr.cfg.Letters+time.Minute, model.LetterDropped, "5", 2)
	record(tr.cfg.Letters+time.Second, model.LetterDropped, "0", 1)
	record(tr.cfg.Letters-time.Minute, model.LetterRequeued, "5", 1)

	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Equal(t, []string{model.LetterRequeued, model.LetterDropped, model.LetterDropped, model.LetterDropped, model.LetterRequeued}, left(),
		"one call reads %d", lettersLimit)
	for range 2 {
		require.NoError(t, tr.Trim(t.Context(), 0))
		require.Equal(t, []string{model.LetterRequeued, model.LetterDropped, model.LetterDropped}, left())
	}
	x, err := b.keys().ExpireLetters(t.Context(), &store.OldLetters{Sink: group, Age: -time.Minute, Limit: 9})
	require.NoError(t, err)
	require.Equal(t, 1, x.Deleted, "a record without a user is not replaced again")
	rows, err := b.rdb.XRange(t.Context(), log, "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, rows, 2)
	for i := range rows {
		delete(rows[i].Values, "erased")
		require.Equal(t, map[string]any{"letter": "4-1", "decision": model.LetterDropped, "by": "ann", "why": "x", "resolved": "7",
			"seq": "5", "grant": "3 100", "entry.3": "grant rain 5 1 6 CNY"}, rows[i].Values)
	}
}
