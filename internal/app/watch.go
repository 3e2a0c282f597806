package app

import (
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/store"
)

// watch looks at the Redis servers of a running worker. It raises an alarm when data or a setting that keeps it is
// lost, and tells which shards are frozen, each second again.
func (a *App) watch(frozen chan<- int) *store.Watch {
	return &store.Watch{Store: a.store, Alarm: func(code string, err error) {
		a.log.Error("ALARM: Redis", zap.String("code", code), zap.Error(err))
	}, Frozen: func(shard int) {
		select {
		case frozen <- shard:
		default: // the recoverer has enough to do; it is told again
		}
	}}
}
