package run

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// rain is a deployment with campaign rain.
type rain struct {
	*store.Store
	t   *testing.T
	now time.Time
}

func newRain(t *testing.T) *rain {
	t.Helper()
	st := storetest.Initialized(t, 1)
	_, err := loaded.Seeded(t.Context(), st, loaded.Rain("rain", 5, 500), [32]byte{1})
	require.NoError(t, err)
	return &rain{st, t, time.Now()}
}

func (r *rain) server(name string) *answerCounts { return newAnswers(r.Store, name, zap.NewNop()) }

// round makes a server's round, a second later.
func (r *rain) round(a *answerCounts) {
	r.t.Helper()
	r.now = r.now.Add(time.Second)
	require.NoError(r.t, a.round(r.t.Context(), r.now))
}

// stored returns the answers that readers see, as "granted 3, sold_out 70".
func (r *rain) stored() string {
	r.t.Helper()
	all, err := r.Campaign("rain").Answers(r.t.Context())
	require.NoError(r.t, err)
	var words []string
	for _, c := range all.Counts {
		words = append(words, fmt.Sprint(c.Name, " ", c.N))
	}
	return strings.Join(words, ", ")
}

func (r *rain) key() string { return r.Shard(0).Keys.Answers("rain") }

func (r *rain) lines() map[string]string { return r.Redis().HGetAll(r.t.Context(), r.key()).Val() }

// aged changes the time of all lines, as if they had been written so long ago.
func (r *rain) aged(ago time.Duration) {
	r.t.Helper()
	at := strconv.FormatInt(time.Now().Add(-ago).UnixMilli(), 10)
	for name, line := range r.lines() {
		require.NoError(r.t, r.Redis().HSet(r.t.Context(), r.key(), name, at+line[len(at):]).Err())
	}
}

// Answers and failures of all servers are counted by campaign. A campaign is known only by an outcome: callers can make
// up its name.
func TestAnswersOfTwoServers(t *testing.T) {
	t.Parallel()
	r := newRain(t)
	a, b := r.server("a"), r.server("b")
	a.undecided("rain", errors.New("Redis is down"))
	a.refused("rain", model.AnswerRateLimited, 1)
	a.decided("rain", hongbao.OutcomeUnknownCampaign)
	r.round(a)
	require.Empty(t, r.lines())
	a.decided("rain", hongbao.OutcomeSoldOut)
	a.decided("rain", hongbao.OutcomeGranted)
	for _, class := range []hongbao.Class{hongbao.ClassTransient, hongbao.ClassBroken, hongbao.ClassUnknown, hongbao.ClassPermanent} {
		a.undecided("rain", hongbao.Errorf(class, "failed"))
	}
	a.refused("rain", model.AnswerRateLimited, 128)
	a.refused("rain", "no such code", 1)
	b.decided("rain", hongbao.OutcomeGranted)
	r.round(a)
	r.round(b)
	want := "granted 2, sold_out 1, unavailable 2, outcome_unknown 1, rate_limited 128"
	require.Equal(t, want, r.stored())
	r.round(a)
	require.Equal(t, want, r.stored(), "the counts are absolute")
}

// A server that is started again has another name, so its counts from zero are added to those of its life before.
func TestAnswersOfARestartedServer(t *testing.T) {
	t.Parallel()
	r := newRain(t)
	for range 3 {
		a := r.server(store.WorkerName("serve"))
		a.decided("rain", hongbao.OutcomeGranted)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		a.run(ctx) // stores the last answers, although its context has ended
	}
	require.Equal(t, "granted 3", r.stored())
	require.Len(t, r.lines(), 3)
}

// Redis loses the latest counts while no one grabs, or all of them. The server stores them again within seconds.
func TestAnswersAreRepaired(t *testing.T) {
	t.Parallel()
	r := newRain(t)
	a := r.server("a")
	a.decided("rain", hongbao.OutcomeGranted)
	r.round(a)
	old := r.Redis().Dump(t.Context(), r.key()).Val()
	a.decided("rain", hongbao.OutcomeGranted)
	r.round(a)
	require.Equal(t, "granted 2", r.stored())
	for _, lose := range []func() error{
		func() error { return r.Redis().RestoreReplace(t.Context(), r.key(), 0, old).Err() },
		func() error { return r.Redis().Del(t.Context(), r.key()).Err() },
	} {
		require.NoError(t, lose())
		for range int(answersAgain / time.Second) {
			r.round(a)
		}
		require.Equal(t, "granted 2", r.stored())
	}
}

// Redis can't be reached, or does not answer. A round ends within its time, the counts go on in memory, and the first
// round afterwards stores them. An outage is told apart from what a person has to repair.
func TestAnswersWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	r := newRain(t)
	proxy := testkit.NewProxy(t, r.Redis().(*redis.Client).Options().Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	defer rdb.Close()
	a := newAnswers(r.Over(rdb), "a", zap.NewNop())
	a.decided("rain", hongbao.OutcomeGranted)
	require.NoError(t, a.round(t.Context(), r.now))
	proxy.Refuse(true)
	proxy.CutAll()
	a.undecided("rain", hongbao.Outagef(hongbao.ClassUnknown, "no answer"))
	err := a.round(t.Context(), r.now)
	require.True(t, hongbao.IsOutage(err), "%v", err)
	require.Equal(t, "granted 1", r.stored())
	proxy.Refuse(false)
	proxy.Delay(time.Hour)
	a.undecided("rain", hongbao.Outagef(hongbao.ClassUnknown, "no answer"))
	began := time.Now()
	err = a.round(t.Context(), r.now)
	require.True(t, hongbao.IsOutage(err), "%v", err)
	require.Less(t, time.Since(began), 5*answersEvery)
	require.Len(t, a.of, 1)
	proxy.Delay(0)
	testkit.Eventually(t, 30*time.Second, func() bool { return a.round(t.Context(), r.now) == nil }, "Redis answers again")
	require.Equal(t, "granted 1, outcome_unknown 2", r.stored())

	require.NoError(t, r.Redis().Set(t.Context(), r.key(), "planted", 0).Err())
	a.decided("rain", hongbao.OutcomeGranted)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(a.round(t.Context(), r.now)))
}

// A server is cut off from Redis for hours, and another one folds its line. No answer counts twice, and none is lost.
func TestAnswersOfAServerThatWasCutOff(t *testing.T) {
	t.Parallel()
	r := newRain(t)
	a, b := r.server("a"), r.server("b")
	a.decided("rain", hongbao.OutcomeGranted)
	r.round(a)
	for _, of := range a.of {
		of.last -= (2 * time.Hour).Milliseconds()
	}
	r.aged(2 * time.Hour)
	a.decided("rain", hongbao.OutcomeSoldOut)
	b.decided("rain", hongbao.OutcomeSoldOut)
	r.round(b)
	require.Contains(t, r.lines(), "ended")
	for range 3 {
		r.round(a)
	}
	require.Equal(t, "granted 1, sold_out 2", r.stored())
}

// The clock of Redis was two hours ahead, or behind. Servers that go on and servers that start agree on the sum.
func TestAnswersWhileTheClockJumps(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{-2 * time.Hour, 2 * time.Hour} {
		r := newRain(t)
		a, b := r.server("a"), r.server("b")
		a.decided("rain", hongbao.OutcomeGranted)
		r.round(a)
		r.aged(jump)
		for _, of := range a.of {
			of.last -= jump.Milliseconds()
		}
		a.decided("rain", hongbao.OutcomeGranted)
		r.round(a)
		require.Equal(t, "granted 2", r.stored(), "no one has folded the line")
		r.aged(jump)
		for _, of := range a.of {
			of.last -= jump.Milliseconds()
		}
		for range 3 {
			b.decided("rain", hongbao.OutcomeGranted)
			a.decided("rain", hongbao.OutcomeGranted)
			r.round(b)
			r.round(a)
		}
		r.round(a)
		require.Equal(t, "granted 8", r.stored(), jump)
	}
}

// A server forgets a campaign ten minutes after its last answer. An answer after that begins another line.
func TestAnswersAreForgotten(t *testing.T) {
	t.Parallel()
	r := newRain(t)
	a := r.server("a")
	for i := range 2 {
		a.decided("rain", hongbao.OutcomeGranted)
		r.round(a)
		require.Len(t, r.lines(), i+1)
		r.now = r.now.Add(answersKept - 2*time.Second)
		r.round(a)
		require.Len(t, a.of, 1)
		r.round(a)
		require.Empty(t, a.of)
	}
	require.Equal(t, "granted 2", r.stored())
}

// Redis does not have the campaign: it left after its refund, or was lost. Nothing is stored until it is there again,
// and then everything.
func TestAnswersOfACampaignThatComesBack(t *testing.T) {
	t.Parallel()
	r := newRain(t)
	a := r.server("a")
	a.decided("rain", hongbao.OutcomeGranted)
	r.round(a)
	key := r.Shard(0).Keys.Campaign("rain")
	old := r.Redis().Dump(t.Context(), key).Val()
	require.NoError(t, r.Redis().Del(t.Context(), key, r.key()).Err())
	a.decided("rain", hongbao.OutcomeEnded)
	r.round(a)
	require.Empty(t, r.lines())
	require.NoError(t, r.Redis().RestoreReplace(t.Context(), key, 0, old).Err())
	a.decided("rain", hongbao.OutcomeEnded)
	r.round(a)
	require.Equal(t, "granted 1, ended 2", r.stored())
}

// Memory and the work of a second are bounded. Every campaign has its turn.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	a := newAnswers(storetest.Initialized(t, 1), "a", zap.NewNop())
	for i := range maxCounted + 1 {
		a.decided(fmt.Sprint("c", i), hongbao.OutcomeGranted)
	}
	require.Len(t, a.of, maxCounted)
	a.undecided("c1", hongbao.Errorf(hongbao.ClassUnknown, "failed"))
	now, turns := time.Now(), map[string]int{}
	for i := range maxCounted / answersAtOnce {
		due := a.due(now.Add(time.Duration(i) * time.Millisecond))
		require.Len(t, due[0], answersAtOnce)
		for _, s := range due[0] {
			turns[s.line.Campaign]++
			a.note(&s, &store.AnswersReply{Err: errors.New("away")})
		}
	}
	require.Len(t, turns, maxCounted)
}
