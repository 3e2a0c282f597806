package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/store"
)

// OpenRedis connects to Redis, and writes nothing. It refuses a Redis that was not initialized for this deployment, or
// whose settings would lose receipts.
func (a *App) OpenRedis(ctx context.Context) error {
	if a.redisOpen.Load() {
		return nil
	}
	if err := a.ReachRedis(ctx); err != nil {
		return err
	}
	mark, down, err := a.store.Open(ctx)
	if err != nil {
		return fmt.Errorf("redis at %s: %w", strings.Join(a.Config.Redis.Addrs, ","), err)
	}
	if down != nil {
		a.log.Warn("some nodes of the cluster are down: operations that need them fail, the others continue", zap.Error(down))
	}
	if err := a.founded.asRedis(mark.Founding); err != nil {
		return err
	}
	a.redisOpen.Store(true)
	return nil
}

// AcceptRedis lets the App use Redis without the checks of OpenRedis.
func (a *App) AcceptRedis() { a.redisOpen.Store(true) }

// ReachRedis connects to Redis, whichever deployment it belongs to. It refuses a Redis whose settings would lose
// receipts.
func (a *App) ReachRedis(ctx context.Context) error { return a.CheckRedis(ctx, hongbao.DurabilityFast) }

// founding compares the ids that `hongbao init` wrote into the ledger and into Redis. Its methods may be called
// concurrently.
type founding struct {
	mu            sync.Mutex
	ledger, redis *string
}

func (f *founding) asLedger(founding string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ledger = &founding
	return f.check()
}

func (f *founding) asRedis(founding string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.redis = &founding
	return f.check()
}

// known returns the founding id of Redis, or of the ledger if Redis is not open. It is empty if neither is open.
func (f *founding) known() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.redis != nil:
		return *f.redis
	case f.ledger != nil:
		return *f.ledger
	}
	return ""
}

// check returns an error if ledger and Redis were not initialized together, even if their deployment ids are equal. The
// caller has locked f.mu.
func (f *founding) check() error {
	if f.ledger == nil || f.redis == nil || *f.ledger == *f.redis {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassBroken,
		"the ledger and this Redis were not founded together (founding %q and %q), though both say that they are this "+
			"deployment's: point ledger.dsn or redis.addrs to the right one", *f.ledger, *f.redis)
}

// withHint adds what to do to the error of an unreachable server. Other errors already contain that.
func withHint(knob string, err error) error {
	if err = named(knob, err); hongbao.IsOutage(err) {
		err = fmt.Errorf("%w (`hongbao doctor` examines every server)", err)
	}
	return err
}

// named is withHint for `hongbao doctor` itself.
func named(knob string, err error) error {
	if !hongbao.IsOutage(err) {
		return err
	}
	return fmt.Errorf("%w; check that it runs and that %s names it, then try again", err, knob)
}

// CheckRedis checks the settings of each server for a durability class. For checks in unsafe.allow it only warns.
func (a *App) CheckRedis(ctx context.Context, class hongbao.Durability) error {
	servers, err := store.Inspect(ctx, a.redis)
	if err != nil && !(len(servers) > 0 && hongbao.IsOutage(err)) { // in a cluster the nodes that answer are still checked
		return withHint("redis.addrs", fmt.Errorf("redis at %s: %w", strings.Join(a.Config.Redis.Addrs, ","), err))
	}
	for i := range servers {
		if err := a.CheckServer(&servers[i], class); err != nil {
			return err
		}
		if few := servers[i].FewReplicas(a.Config.Producer.Replicas); few != nil {
			a.log.Warn("a failover may lose grants", zap.String("redis", a.redisAt(&servers[i])), zap.Error(few))
		}
	}
	return nil
}

// CheckServer checks the settings of one server, like CheckRedis.
func (a *App) CheckServer(s *store.Server, class hongbao.Durability) error {
	if s.Role == "slave" && a.Config.Redis.Mode == configs.Sentinel { // while copying it may report no AOF
		return hongbao.Outagef(hongbao.ClassTransient, "redis at %s is a replica, though the sentinels call it the primary: a "+
			"failover may be under way", a.redisAt(s))
	}
	if err := errors.Join(a.checkMode(s), a.checkRunID(s), a.checkCoverage(s)); err != nil {
		return err
	}
	err := s.Check(class)
	if aof := s.CheckAppendOnly(); aof != nil && err == nil {
		err = aof
		if a.Allows(configs.UnsafeRedisAppendOnly) {
			a.log.Warn("unsafe.allow: this Redis has no append-only file, so a restart would forget campaigns and receipts")
			return nil
		}
	}
	if err != nil && a.Allows(configs.UnsafeRedis) {
		a.log.Warn("unsafe.allow: this Redis may lose receipts", zap.Error(err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("redis at %s: %w", a.redisAt(s), err)
	}
	return nil
}

// redisAt returns the address of a cluster's node, or redis.addrs for any other server.
func (a *App) redisAt(s *store.Server) string {
	return cmp.Or(s.Addr, strings.Join(a.Config.Redis.Addrs, ","))
}

// checkMode returns an error if redis.mode does not fit: for a Sentinel, and for a node of a cluster in another mode.
// Such servers answer some calls and redirect others.
func (a *App) checkMode(s *store.Server) error {
	what := map[string]string{
		"cluster":  "a node of a Redis Cluster: set redis.mode to cluster",
		"sentinel": "a Sentinel: set redis.mode to sentinel, and redis.master_name to the primary's name there",
	}[s.Mode]
	if what == "" || s.Mode == "cluster" && a.Config.Redis.Mode == configs.Cluster {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassBroken, "redis at %s is %s", a.redisAt(s), what)
}

// checkRunID returns an error if the server's INFO has no run_id, because a restart would then go unnoticed.
func (a *App) checkRunID(s *store.Server) error {
	if s.RunID != "" {
		return nil
	}
	if a.Allows(configs.UnsafeRedisRunID) {
		a.log.Warn("unsafe.allow: this Redis hides its run_id, so no one notices that it was restarted or that another " +
			"server took over")
		return nil
	}
	return hongbao.Errorf(hongbao.ClassBroken, "redis at %s does not report its run_id (INFO server), so no one would "+
		"notice a restart or a server that took over. If grants were lost then, its shards would freeze only when a "+
		"process that has seen these grants calls; until then other users would win packets that are already granted. "+
		"Use a Redis that reports its run_id, or add %s to unsafe.allow",
		a.redisAt(s), configs.UnsafeRedisRunID)
}

// checkCoverage returns an error if a cluster refuses all commands while any slot has no server. One failed node would
// then stop every shard.
func (a *App) checkCoverage(s *store.Server) error {
	switch where := a.redisAt(s); {
	case s.NoServer > 0:
		return hongbao.Errorf(hongbao.ClassBroken, "redis at %s: %d slots of the cluster belong to no node, so their keys can "+
			"be neither read nor written: restart their node, or assign the slots to another node (redis-cli --cluster fix)",
			where, s.NoServer)
	case !s.FullCoverage:
		return nil
	case a.Allows(configs.UnsafeRedisFullCoverage):
		a.log.Warn("unsafe.allow: this cluster answers nothing while one of its slots has no server")
		return nil
	}
	return hongbao.Errorf(hongbao.ClassBroken, "redis at %s: cluster-require-full-coverage is yes, so one slot without a "+
		"server stops all shards: set cluster-require-full-coverage no on every node, in redis.conf and by CONFIG SET, or "+
		"add %s to unsafe.allow", a.redisAt(s), configs.UnsafeRedisFullCoverage)
}

// WarnOfDurability warns, when a campaign is created, if the settings of Redis do not fit its durability class. It is
// no error if Redis is down: the load checks the class again and refuses it if necessary.
func (a *App) WarnOfDurability(ctx context.Context, class hongbao.Durability) {
	if class == hongbao.DurabilityFast {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rdb := a.Config.RedisClient()
	defer rdb.Close()
	servers, err := store.Inspect(ctx, rdb)
	if err != nil {
		a.log.Warn("Redis can't be checked for the durability class now; the load checks it again", zap.Error(err))
		return
	}
	for i := range servers {
		if err := errors.Join(servers[i].Check(class), servers[i].Slow(class)); err != nil {
			a.log.Warn("the settings of Redis do not fit the durability class", zap.String("class", string(class)), zap.Error(err))
		}
	}
}
