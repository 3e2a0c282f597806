package main

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// watch looks at the Redis servers of a running worker. It raises an alarm when data or a setting that keeps it is lost, and tells which shards
// are frozen, each second again.
func (d *deps) watch(frozen chan<- int) *shards.Watch {
	return &shards.Watch{Redis: d.redis, Space: d.space, Alarm: func(code string, err error) {
		d.log.Error("ALARM: Redis", zap.String("code", code), zap.Error(err))
	}, Frozen: func(shard int) {
		select {
		case frozen <- shard:
		default: // the recoverer has enough to do; it is told again
		}
	}}
}

// warnOfDurability says what on Redis does not fit to a campaign's durability class, before it is loaded. Redis need not be
// there yet: the load refuses what can't be kept.
func (d *deps) warnOfDurability(ctx context.Context, class hongbao.Durability) {
	if class == hongbao.Fast {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rdb := d.cfg.RedisClient()
	defer rdb.Close()
	servers, err := shards.Inspect(ctx, rdb)
	if err != nil {
		d.log.Warn("Redis can't be asked whether it keeps the durability class; the load asks again", zap.Error(err))
		return
	}
	for i := range servers {
		if err := errors.Join(servers[i].Check(class), servers[i].Slow(class)); err != nil {
			d.log.Warn("Redis does not fit to the durability class", zap.String("class", string(class)), zap.Error(err))
		}
	}
}
