package app

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/ledger"
)

// The methods in this file are for tests of the packages above.

// Redis returns the client of Redis.
func (a *App) Redis() redis.UniversalClient { return a.redis }

// SetRedis replaces the client of Redis.
func (a *App) SetRedis(client redis.UniversalClient) { a.redis, a.store = client, a.store.Over(client) }

// SetLedger replaces the ledger.
func (a *App) SetLedger(l *ledger.Ledger) { a.ledger = l }

// ForgetUnrefunded makes the next call of Unrefunded read the ledger.
func (a *App) ForgetUnrefunded() { a.late.until = time.Now() }
