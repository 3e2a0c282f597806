package couponrush_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/examples/couponrush"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
	"github.com/hongbao-project/hongbao/producer"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// classic is the coupon script as it is commonly published: three counters, three checks, three increments.
//
// KEYS  1 coupon: hash of max, user_max, user_per_day_max and count  2 user -> count  3 user:day -> count
// ARGV  1 user  2 day
const classic = `
local coupon = redis.call('hmget', KEYS[1], 'max', 'user_max', 'user_per_day_max', 'count')
local user, day = ARGV[1], ARGV[1] .. ':' .. ARGV[2]
if tonumber(redis.call('hget', KEYS[3], day) or '0') >= tonumber(coupon[3]) then return 1 end
if tonumber(redis.call('hget', KEYS[2], user) or '0') >= tonumber(coupon[2]) then return 2 end
if tonumber(coupon[4] or '0') >= tonumber(coupon[1]) then return 3 end
redis.call('hincrby', KEYS[3], day, 1)
redis.call('hincrby', KEYS[2], user, 1)
redis.call('hincrby', KEYS[1], 'count', 1)
return 0`

// history has the same campaign in the classic script and in Hongbao.
type history struct {
	rdb  redis.UniversalClient
	keys *store.Shard
	key  string // prefix of the classic script's keys
	day  int
	couponrush.Rush
}

func (h *history) classic(ctx context.Context, t require.TestingT, user string) couponrush.Code {
	n, err := h.rdb.Eval(ctx, classic, []string{h.key + "coupon", h.key + "users", h.key + "days"}, user, h.day).Int()
	require.NoError(t, err)
	return couponrush.Code(n)
}

// nextDay simulates that a day passes. The classic script gets the next day number. Redis' clock can't be moved, so all
// receipts become a day older instead.
func (h *history) nextDay(ctx context.Context, t require.TestingT) {
	h.day++
	key := h.keys.Keys.Receipts(h.Campaign)
	all, err := h.rdb.HGetAll(ctx, key).Result()
	require.NoError(t, err)
	for user, text := range all {
		receipts := strings.Split(text, "\n")
		for i := range receipts {
			f := strings.SplitN(receipts[i], " ", 5)
			ms, err := strconv.ParseInt(f[3], 10, 64)
			require.NoError(t, err)
			f[3] = strconv.FormatInt(ms-(24*time.Hour).Milliseconds(), 10)
			receipts[i] = strings.Join(f, " ")
		}
		require.NoError(t, h.rdb.HSet(ctx, key, user, strings.Join(receipts, "\n")).Err())
	}
}

// Over random histories of many days the example returns the same answers as the classic script, and gives no coupon
// code twice. There is one exception: if a user has reached both limits, the example names the user limit and the
// script names the day limit.
func TestAnswersAsTheClassicScript(t *testing.T) {
	t.Parallel()
	st := storetest.Initialized(t, 1)
	rdb, prefix := st.Redis(), st.Space().Prefix
	cfg := producer.DefaultConfig()
	cfg.Deployment = deployment.Of(st, zap.NewNop())
	p, err := producer.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	const days = 30
	run, seen, ctx := 0, map[couponrush.Code]int{}, t.Context()
	histories := func(t *rapid.T) {
		run++
		now := time.Now().Truncate(time.Millisecond)
		l := couponrush.Limits{Max: rapid.Int64Range(1, 15).Draw(t, "max"),
			UserMax:       rapid.Int64Range(1, 5).Draw(t, "user_max"),
			UserPerDayMax: rapid.Int64Range(1, 3).Draw(t, "user_per_day_max")}
		c := couponrush.Spec(fmt.Sprint("rush", run), l, now.AddDate(0, 0, -days-2), now.AddDate(0, 0, 1), noonZone(now))
		codes := campaign.DrawCodes(c.Codes.Pattern, int(l.Max))
		require.NoError(t, loaded.Load(ctx, st, c, codes))
		h := &history{rdb: rdb, keys: st.Home(c.ID).Shard, key: fmt.Sprintf("%s:{classic}:%s:", prefix, c.ID),
			Rush: couponrush.Rush{Producer: p, Campaign: c.ID}}
		require.NoError(t, rdb.HSet(ctx, h.key+"coupon", "max", l.Max, "user_max", l.UserMax, "user_per_day_max",
			l.UserPerDayMax).Err())
		granted, holds := map[string]string{}, map[string]int64{} // user and request by code; number of coupons by user
		for i, n := range rapid.SliceOfN(rapid.IntRange(-1, 4), 1, 60).Draw(t, "users, -1 for the next day") {
			if n < 0 && h.day < days {
				h.nextDay(ctx, t)
				continue
			}
			user, request := fmt.Sprint("u", n), fmt.Sprint("r", i)
			want := h.classic(ctx, t, user)
			if want == couponrush.DayLimit && holds[user] == l.UserMax { // both limits: the script checks the day first
				want = couponrush.UserLimit
			}
			code, coupon, err := h.Grab(ctx, user, request)
			require.NoError(t, err)
			require.Equal(t, want, code, "grab %d by %s on day %d, %+v", i, user, h.day, l)
			seen[code]++
			require.Equal(t, code == couponrush.Granted, coupon != "")
			if coupon == "" {
				continue
			}
			require.Empty(t, granted[coupon], "%s was given before", coupon)
			granted[coupon] = user + "/" + request
			holds[user]++
			again, same, err := h.Grab(ctx, user, request) // the classic script would grant a second coupon
			require.NoError(t, err)
			require.Equal(t, []any{code, coupon}, []any{again, same})
		}
		require.Subset(t, codes, slices.Collect(maps.Keys(granted)))
	}
	for tries := 0; len(seen) < 4 && tries < 10; tries++ { // a hundred short histories may not reach the daily limit
		rapid.Check(t, histories)
	}
	require.Len(t, seen, 4, "each code came: %v", seen)
}

// An outcome without a code in the classic script, such as unknown_campaign, returns an error and no valid code.
func TestNoClassicWord(t *testing.T) {
	t.Parallel()
	st := storetest.Initialized(t, 1)
	cfg := producer.DefaultConfig()
	cfg.Deployment = deployment.Of(st, zap.NewNop())
	p, err := producer.New(cfg)
	require.NoError(t, err)
	r := couponrush.Rush{Producer: p, Campaign: "nowhere"}
	code, _, err := r.Grab(t.Context(), "ann", "r1")
	require.ErrorContains(t, err, "unknown_campaign")
	require.EqualValues(t, -1, code)
	require.NoError(t, p.Close(t.Context()))
}
