package store_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// answered stores a line of campaign rain.
func (b *bundle) answered(t *testing.T, name string, last int64, counts ...model.AnswerCount) store.AnswersReply {
	t.Helper()
	replies := b.k.StoreAnswers(t.Context(), []store.AnswersLine{{Campaign: "rain", Name: name, Last: last, Counts: counts}})
	require.Len(t, replies, 1)
	require.NoError(t, replies[0].Err)
	return replies[0]
}

func (b *bundle) answers(t *testing.T) model.Answers {
	t.Helper()
	a, err := b.store.Campaign("rain").Answers(t.Context())
	require.NoError(t, err)
	return a
}

// aged sets the time of a line, as if it had been written so long ago.
func (b *bundle) aged(t *testing.T, name string, ago time.Duration) {
	t.Helper()
	key := b.k.Keys.Answers("rain")
	line, err := b.rdb.HGet(t.Context(), key, name).Result()
	require.NoError(t, err)
	at := strconv.FormatInt(time.Now().Add(-ago).UnixMilli(), 10)
	require.NoError(t, b.rdb.HSet(t.Context(), key, name, at+line[len(at):]).Err())
}

func granted(n int64) model.AnswerCount { return model.AnswerCount{Name: "granted", N: n} }
func soldOut(n int64) model.AnswerCount { return model.AnswerCount{Name: "sold_out", N: n} }

// Each server has a line with absolute counts: a repeat changes nothing, and readers get the sum, in the order of the
// outcomes.
func TestAnswersOfServers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 5))
	require.Equal(t, model.Answers{Counts: []model.AnswerCount{}}, b.answers(t))
	for range 2 {
		require.Equal(t, store.AnswersStored, b.answered(t, "a", 0, soldOut(70), granted(3)).Did)
	}
	b.answered(t, "b", 0, granted(2), model.AnswerCount{Name: model.AnswerRateLimited, N: 4}, model.AnswerCount{Name: "later", N: 1})
	require.Equal(t, model.Answers{Total: 80, Counts: []model.AnswerCount{granted(5), soldOut(70),
		{Name: "rate_limited", N: 4}, {Name: "later", N: 1}}}, b.answers(t))
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Answers("rain"), "c", "planted granted=-5 sold_out").Err())
	require.EqualValues(t, 80, b.answers(t).Total)
}

// Redis goes back to an older state, or loses the whole key. The next write brings the counts back.
func TestAnswersAfterARollback(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 5))
	key := b.k.Keys.Answers("rain")
	last := b.answered(t, "a", 0, granted(3)).At
	old, err := b.rdb.Dump(t.Context(), key).Result()
	require.NoError(t, err)
	last = b.answered(t, "a", last, granted(9)).At
	require.NoError(t, b.rdb.RestoreReplace(t.Context(), key, 0, old).Err())
	require.EqualValues(t, 3, b.answers(t).Total)
	require.Equal(t, store.AnswersStored, b.answered(t, "a", last, granted(9)).Did)
	require.EqualValues(t, 9, b.answers(t).Total)
	require.NoError(t, b.rdb.Del(t.Context(), key).Err())
	require.Equal(t, store.AnswersStored, b.answered(t, "a", last, granted(9)).Did)
	require.EqualValues(t, 9, b.answers(t).Total)
}

// The counts of a campaign that Redis does not have are not stored, so that no key stays behind. A campaign that ended
// still has counts. They leave Redis with it.
func TestAnswersOfACampaignThatIsGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, store.AnswersGone, b.answered(t, "a", 0, granted(1)).Did)
	b.closed(t, "rain", 5, 2)
	_, err := b.k.Place("rain").Refunded(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.AnswersStored, b.answered(t, "a", 0, granted(1)).Did)
	_, err = b.k.Place("rain").PurgeCampaign(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, store.AnswersGone, b.answered(t, "a", 0, granted(1)).Did)
	require.Zero(t, b.rdb.Exists(t.Context(), b.k.Keys.Answers("rain")).Val())
}

// A frozen shard stores counts: the incident is when people look at them.
func TestAnswersOnAFrozenShard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 5))
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "frozen", "1").Err())
	refused, err := b.k.Place("rain").Grab(t.Context(), call("rain", "u1"), nil)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeFrozen, refused[0].Outcome)
	require.Equal(t, store.AnswersStored, b.answered(t, "a", 0, granted(1)).Did)
	require.EqualValues(t, 1, b.answers(t).Total)
}

// A server that starts folds the lines that were silent for an hour. The sum stays the same, however often this
// happens. So does a line that can't be read, and one whose time is far ahead.
func TestAnswersOfEndedServersAreFolded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 5))
	ages := []time.Duration{2 * time.Hour, 61 * time.Minute, 59 * time.Minute, -59 * time.Minute, -2 * time.Hour}
	for i := range ages {
		b.answered(t, fmt.Sprint("s", i), 0, granted(1), soldOut(10))
	}
	for i, ago := range ages {
		b.aged(t, fmt.Sprint("s", i), ago)
	}
	fields := func() []string { return b.rdb.HKeys(t.Context(), b.k.Keys.Answers("rain")).Val() }
	b.answered(t, "s2", 0, granted(1), soldOut(10))
	require.Len(t, fields(), 5, "only the first write of a line folds others")
	for i, name := range []string{"t0", "t1"} {
		b.answered(t, name, 0, granted(1), soldOut(10))
		require.EqualValues(t, 55+11*(i+1), b.answers(t).Total)
	}
	require.ElementsMatch(t, []string{"s2", "s3", "t0", "t1", "ended"}, fields())
	b.aged(t, "t0", 2*time.Hour)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Answers("rain"), "planted", "?").Err())
	b.answered(t, "t2", 0, granted(1), soldOut(10))
	require.ElementsMatch(t, []string{"s2", "s3", "t1", "t2", "ended"}, fields())
	require.Equal(t, model.Answers{Total: 88, Counts: []model.AnswerCount{granted(8), soldOut(80)}}, b.answers(t))
}

// Another server has folded the line of a server that was cut off from Redis for an hour. The server learns it, instead
// of storing the same answers again.
func TestAnswersOfAServerThatComesBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 5))
	ago := time.Now().Add(-2 * time.Hour).UnixMilli()
	b.answered(t, "a", 0, granted(3))
	b.aged(t, "a", 2*time.Hour)
	require.Equal(t, store.AnswersStored, b.answered(t, "a", ago, granted(4)).Did, "no one has folded it")
	b.aged(t, "a", 2*time.Hour)
	b.answered(t, "b", 0, granted(10))
	require.Equal(t, store.AnswersFolded, b.answered(t, "a", ago, granted(6)).Did)
	require.EqualValues(t, 14, b.answers(t).Total)
	require.Equal(t, store.AnswersStored, b.answered(t, "a", 0, granted(2)).Did, "the answers since then")
	require.EqualValues(t, 16, b.answers(t).Total)
}

// Thousands of servers have ended. A fold takes 1,000 lines at a time, so no call is long, and the hash stays small.
func TestAnswersOfThousandsOfServers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 5))
	pipe := b.rdb.Pipeline()
	for i := range 2_500 {
		pipe.HSet(t.Context(), b.k.Keys.Answers("rain"), fmt.Sprint("s", i), "1700000000000 granted=1")
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	for i, left := range []int64{1_502, 503, 4} {
		b.answered(t, fmt.Sprint("t", i), 0, granted(1))
		require.Equal(t, left, b.rdb.HLen(t.Context(), b.k.Keys.Answers("rain")).Val())
		require.EqualValues(t, 2_501+i, b.answers(t).Total)
	}
}

// One key of the wrong type costs only the counts of its own campaign. A server that does not answer is an outage.
func TestAnswersThatCannotBeStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 5))
	b.load(t, spec("snow", 5))
	require.NoError(t, b.rdb.Set(t.Context(), b.k.Keys.Answers("rain"), "planted", 0).Err())
	lines := []store.AnswersLine{{Campaign: "rain", Name: "a", Counts: []model.AnswerCount{granted(1)}},
		{Campaign: "snow", Name: "a", Counts: []model.AnswerCount{granted(1)}}}
	replies := b.k.StoreAnswers(t.Context(), lines)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(replies[0].Err))
	require.Equal(t, store.AnswersStored, replies[1].Did)
	_, err := b.store.Campaign("rain").Answers(t.Context())
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))

	proxy := testkit.NewProxy(t, b.rdb.Options().Addr)
	require.NoError(t, proxy.Close())
	cut := redis.NewClient(&redis.Options{Addr: proxy.Addr, MaxRetries: -1, DialerRetries: 1})
	defer cut.Close()
	for _, r := range b.store.Over(cut).Shard(0).StoreAnswers(t.Context(), lines) {
		require.True(t, hongbao.IsOutage(r.Err), "%v", r.Err)
	}
}
