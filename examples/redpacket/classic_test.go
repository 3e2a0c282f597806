package redpacket_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/examples/redpacket"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
	"github.com/hongbao-project/hongbao/producer"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// classic is the red-packet script that many blog posts copy. `make bench` also compares Hongbao with it.
const classic = `if redis.call('hexists', KEYS[3], KEYS[4]) ~= 0 then return nil else
local hongBao = redis.call('rpop', KEYS[1]);
if hongBao then local x = cjson.decode(hongBao); x['userId'] = KEYS[4]; local re = cjson.encode(x);
redis.call('hset', KEYS[3], KEYS[4], KEYS[4]); redis.call('lpush', KEYS[2], re); return re; end end return nil`

// classicGrab is the program that calls the script. The script returns nil both if the user has a packet and if none is
// left, so the program then looks the user up in the map.
func classicGrab(ctx context.Context, t require.TestingT, rdb redis.UniversalClient, key, user string) (redpacket.Code,
	*redpacket.Receipt) {
	text, err := rdb.Eval(ctx, classic, []string{key + "stock", key + "consumed", key + "map", user}).Text()
	if errors.Is(err, redis.Nil) {
		has, err := rdb.HExists(ctx, key+"map", user).Result()
		require.NoError(t, err)
		if has {
			return redpacket.Already, nil
		}
		return redpacket.NoneLeft, nil
	}
	require.NoError(t, err)
	return redpacket.Granted, receiptOf(t, text)
}

// receiptOf parses a receipt, which must have exactly the classic fields.
func receiptOf(t require.TestingT, text string) *redpacket.Receipt {
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &fields))
	require.Len(t, fields, 3)
	r := &redpacket.Receipt{}
	require.NoError(t, json.Unmarshal([]byte(text), r))
	return r
}

// Over random histories the example returns the same answers as the classic script, and the same fields in each
// receipt. In the end both have the same list of receipts.
func TestAnswersAsTheClassicScript(t *testing.T) {
	t.Parallel()
	st := storetest.Initialized(t, 1)
	rdb, prefix := st.Redis(), st.Space().Prefix
	cfg := producer.DefaultConfig()
	cfg.Deployment = deployment.Of(st, zap.NewNop())
	p, err := producer.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	run, seen := 0, map[redpacket.Code]int{}
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		run++
		id := fmt.Sprint("rain", run)
		packets := rapid.Int64Range(1, 12).Draw(t, "packets")
		total := hongbao.Amount(packets * rapid.Int64Range(1, 1000).Draw(t, "mean"))
		c := loaded.Rain(id, packets, total)
		c.Split = hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: total}
		plan, err := loaded.Seeded(ctx, st, c, campaign.NewSeed())
		require.NoError(t, err)
		key := fmt.Sprintf("%s:{classic}:%s:", prefix, id)
		for i, amount := range plan.Amounts { // RPOP removes the packet that was pushed first
			require.NoError(t, rdb.LPush(ctx, key+"stock", fmt.Sprintf(`{"id":%d,"money":%d}`, i+1, amount)).Err())
		}
		g, ours := redpacket.Grabber{Producer: p, Campaign: id}, []redpacket.Receipt{}
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, 15), 1, 40).Draw(t, "users") {
			user := fmt.Sprint("u", n)
			wantCode, want := classicGrab(ctx, t, rdb, key, user)
			code, got, err := g.Grab(ctx, user)
			require.NoError(t, err)
			require.Equal(t, wantCode, code, "grab %d by %s", i, user)
			require.Equal(t, want, got, "grab %d by %s", i, user)
			seen[code]++
			if got != nil {
				text, err := json.Marshal(got)
				require.NoError(t, err)
				ours = append([]redpacket.Receipt{*receiptOf(t, string(text))}, ours...) // LPUSH
			}
		}
		kept, err := rdb.LRange(ctx, key+"consumed", 0, -1).Result()
		require.NoError(t, err)
		require.Len(t, kept, len(ours))
		for i, text := range kept {
			require.Equal(t, ours[i], *receiptOf(t, text))
		}
	})
	require.Len(t, seen, 3, "each code came: %v", seen)
}

// An outcome without a code in the classic script, such as unknown_campaign, returns an error and no code.
func TestNoClassicWord(t *testing.T) {
	t.Parallel()
	st := storetest.Initialized(t, 1)
	cfg := producer.DefaultConfig()
	cfg.Deployment = deployment.Of(st, zap.NewNop())
	p, err := producer.New(cfg)
	require.NoError(t, err)
	g := redpacket.Grabber{Producer: p, Campaign: "nowhere"}
	code, _, err := g.Grab(t.Context(), "ann")
	require.ErrorContains(t, err, "unknown_campaign")
	require.Empty(t, code)
	require.NoError(t, p.Close(t.Context()))
}
