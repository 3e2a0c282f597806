package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/producer"
)

// classic is the red-packet script that is copied from blog to blog: no stream, no limits, one grab a call.
const classic = `if redis.call('hexists', KEYS[3], KEYS[4]) ~= 0 then return nil else
local hongBao = redis.call('rpop', KEYS[1]);
if hongBao then local x = cjson.decode(hongBao); x['userId'] = KEYS[4]; local re = cjson.encode(x);
redis.call('hset', KEYS[3], KEYS[4], KEYS[4]); redis.call('lpush', KEYS[2], re); return re; end end return nil`

// grabRow compares grabs through package producer with the classic script.
func grabRow(ctx context.Context, o options, callers int, want float64) ([]Result, error) {
	r, err := newRig(ctx)
	if err != nil {
		return nil, err
	}
	n := o.n(300_000)
	res := Result{
		Name: fmt.Sprintf("grab_%d", callers), Unit: "grabs/s", Want: want, Beside: map[string]float64{},
		HowOurs: fmt.Sprintf("%d grabs by %d callers through package producer: a limit by user and one by device and day, "+
			"the stream written, AOF everysec", n, callers),
		HowBaseline: fmt.Sprintf("%d grabs by the classic script (HEXISTS, RPOP, cjson, HSET, LPUSH) by EVAL, one grab a "+
			"call, 20 connections, the same Redis", n),
	}
	spent := map[string][]float64{}
	measured := func(who string, f func(context.Context) (float64, error)) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			p0, s0, err := r.cpu(ctx)
			if err != nil {
				return 0, err
			}
			rate, err := f(ctx)
			if err != nil {
				return 0, err
			}
			p1, s1, err := r.cpu(ctx)
			spent[who+", us of Redis per grab (cpu)"] = append(spent[who+", us of Redis per grab (cpu)"], (p1-p0)/float64(n))
			spent[who+", us of Redis per grab (commandstats)"] = append(spent[who+", us of Redis per grab (commandstats)"],
				(s1-s0)/float64(n))
			return rate, err
		}
	}
	err = res.inTurn(ctx, o.rounds,
		func(ctx context.Context) (float64, error) { return r.classicGrabs(ctx, n, measured) },
		func(ctx context.Context) (float64, error) { return r.ourGrabs(ctx, n, callers, measured) })
	for name, v := range spent {
		res.Beside[name] = median(v)
	}
	return []Result{res}, errors.Join(err, r.close())
}

type measure func(who string, f func(context.Context) (float64, error)) func(context.Context) (float64, error)

func (r *rig) classicGrabs(ctx context.Context, n int, measured measure) (float64, error) {
	if err := r.rdb.FlushAll(ctx).Err(); err != nil {
		return 0, fmt.Errorf("empty redis: %w", err)
	}
	for i := 0; i < n; i += 5000 {
		var packets []any
		for j := i; j < min(i+5000, n); j++ {
			packets = append(packets, fmt.Sprintf(`{"id":%d,"money":%d}`, j+1, 100+j%801))
		}
		if err := r.rdb.RPush(ctx, "{s}stock", packets...).Err(); err != nil {
			return 0, fmt.Errorf("load the classic list: %w", err)
		}
	}
	opts := r.server.Options()
	opts.PoolSize = 20
	rdb := redis.NewClient(opts)
	rate, err := measured("classic", func(ctx context.Context) (float64, error) {
		return crowd(ctx, 20, n, func(ctx context.Context, i int) error {
			return rdb.Eval(ctx, classic, []string{"{s}stock", "{s}consumed", "{s}map", user(i)}).Err()
		})
	})(ctx)
	return rate, errors.Join(err, rdb.Close())
}

func (r *rig) ourGrabs(ctx context.Context, n, callers int, measured measure) (float64, error) {
	space, err := r.deployment(ctx, 1)
	if err != nil {
		return 0, err
	}
	if _, err := r.load(ctx, space, spec("bench", n)); err != nil {
		return 0, err
	}
	cfg := producer.DefaultConfig()
	cfg.Redis, cfg.Space, cfg.Deployment = r.rdb, space.Space, "bench"
	p, err := producer.New(cfg)
	if err != nil {
		return 0, err
	}
	rate, err := measured("ours", func(ctx context.Context) (float64, error) {
		return crowd(ctx, callers, n, func(ctx context.Context, i int) error {
			a, err := p.Grab(ctx, &hongbao.Grab{
				Campaign: "bench", User: user(i), Facts: map[string]string{"device": fmt.Sprintf("d%07d", i/2)},
			})
			if err == nil && a.Outcome != hongbao.OutcomeGranted {
				err = fmt.Errorf("user %d got %s", i, a.Outcome)
			}
			return err
		})
	})(ctx)
	return rate, errors.Join(err, p.Close(ctx))
}
