package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// Codes of the alarms that a Watch raises.
const (
	// LostData means that a shard has gone back to an earlier state, or is missing.
	LostData = "redis_lost_data"
	// LostAppendOnly means that the server no longer writes an append-only file.
	LostAppendOnly = "redis_lost_append_only"
	// Evicts means that the server's maxmemory-policy is no longer noeviction.
	Evicts = "redis_evicts"
)

// finding is what one check of a server has found.
type finding struct {
	server Server
	// known is the latest event of each shard that this process had seen before the check. heads are the heads of the
	// server's shards. Shards without meta have none.
	known map[int]Sight
	heads map[int]Head
	// missing are the server's shards without meta. notOpen are the shards that are not open for the server's present
	// run.
	missing, notOpen []int
	// late are events that this process saw before an opening lost them, by shard, with meta.skipped at the time of the
	// check.
	late    map[int]lateEvent
	skipped map[int]string
	// replicas is, for each shard, the highest number of replicas that its primary has had.
	replicas map[int]int
	// ahead are the shards of which this process has seen events that Redis lacks.
	ahead []int
}

// Watch checks every server that has shards at a regular interval. One round trip reads INFO and the heads of the
// server's shards. Watch freezes shards that were opened for a different server, or before their server was demoted
// and promoted again.
type Watch struct {
	Store *Store
	Every time.Duration // 0 for 750 ms
	// Frozen is called at each check for each shard that is frozen or missing. It may be nil and must not block.
	Frozen func(shard int)
	// Alarm is called once for each change that may cost money. It may be nil.
	Alarm func(code string, err error)

	mu              sync.Mutex
	before          map[int]*finding               // by shard
	busy            map[redis.UniversalClient]bool // servers with a check in progress
	checkOftenUntil atomic.Int64                   // until this Unix time in ns, checks are more frequent
}

// checkTimeout is the timeout for one check of one server.
const checkTimeout = 5 * time.Second

// Run checks all servers regularly until ctx ends. A server that does not answer does not delay the checks of the
// others.
func (w *Watch) Run(ctx context.Context) error {
	every := w.Every
	if every == 0 {
		every = 750 * time.Millisecond
	}
	w.before, w.busy = map[int]*finding{}, map[redis.UniversalClient]bool{}
	var checks sync.WaitGroup
	defer checks.Wait()
	for {
		for node, list := range w.idleNodes(ctx) {
			checks.Go(func() { w.check(ctx, node, list) })
		}
		pause := every
		if time.Now().UnixNano() < w.checkOftenUntil.Load() {
			pause /= checkOftenFactor
		}
		if !retry.Pause(ctx, pause) {
			return nil
		}
	}
}

// checkOftenAfterFreeze makes the checks more frequent for a while, if a shard of the server has frozen since the last
// check.
func (w *Watch) checkOftenAfterFreeze(now *finding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for shard, head := range now.heads {
		before := w.before[shard]
		if head.Frozen && (before == nil || !before.heads[shard].Frozen) {
			w.checkOftenUntil.Store(time.Now().Add(checkOftenFor).UnixNano())
		}
	}
}

// checkOftenFor is how long checks are more frequent after a freeze.
const checkOftenFor = 15 * time.Second

// checkOftenFactor is the factor by which checks are more frequent after a freeze. A recoverer waits for what the
// checks report.
const checkOftenFactor = 4

// idleNodes returns the servers without a check in progress, each with its shards, and marks them busy.
func (w *Watch) idleNodes(ctx context.Context) map[redis.UniversalClient][]int {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	nodes := w.nodes(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(nodes, func(node redis.UniversalClient, _ []int) bool { return w.busy[node] })
	for node := range nodes {
		w.busy[node] = true
	}
	return nodes
}

// check checks one server once.
func (w *Watch) check(ctx context.Context, node redis.UniversalClient, list []int) {
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.busy, node)
	}()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	now, err := w.readServer(ctx, node, list)
	if err != nil { // not reported here: other calls to the server fail as well
		if cluster, ok := w.Store.rdb.(*redis.ClusterClient); ok {
			cluster.ReloadState(ctx) // after a failover, a dead node can't redirect the client
		}
		return
	}
	w.freeze(ctx, now)
	w.checkOftenAfterFreeze(now)
	gone := make([][]LateGrant, len(list))
	_ = Each(len(list), AllAtOnce, func(at int) error {
		i := list[at]
		// Errors are ignored, because the next check tries again. For example, a frozen shard refuses RaiseReplicas.
		if n := now.server.Replicas; n > now.replicas[i] {
			_ = w.Store.Shard(i).RaiseReplicas(ctx, n)
		}
		_ = w.Store.Shard(i).witness(ctx, w.Store.answering.Load() > 0)
		gone[at], _ = w.Store.Shard(i).checkLate(ctx)
		return nil
	})
	w.conclude(now, list, slices.Concat(gone...))
	_ = w.Store.copyRegistrations(ctx, node, list) // last, because it may wait for a disk
}

// conclude raises alarms for what a check has found, and keeps it for the next check.
func (w *Watch) conclude(now *finding, list []int, gone []LateGrant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Alarm != nil {
		w.judge(now)
		w.judgeLate(gone)
	}
	for _, i := range list {
		w.before[i] = now
	}
}

// freeze freezes the shards that are not open for their present server, and those that lack an event that this
// process has seen. To shards that are already frozen, it reports events that this process has seen and Redis lacks.
func (w *Watch) freeze(ctx context.Context, now *finding) {
	for _, shard := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(now.notOpen, now.ahead)))) {
		if !now.heads[shard].Frozen || slices.Contains(now.ahead, shard) {
			z, err := w.Store.Shard(shard).freeze(ctx, reasons{late: now.late[shard], skipped: now.skipped[shard]})
			if err != nil || !z.Frozen {
				continue // the next check tries again
			}
		}
		if w.Frozen != nil {
			w.Frozen(shard)
		}
	}
}

// nodes returns the servers, each with its present shards.
func (w *Watch) nodes(ctx context.Context) map[redis.UniversalClient][]int {
	all := map[redis.UniversalClient][]int{}
	for i := range w.Store.Len() {
		if node, err := w.Store.Shard(i).Node(ctx); err == nil {
			all[node] = append(all[node], i)
		}
	}
	return all
}

// readServer reads INFO and the heads of the shards of one server.
func (w *Watch) readServer(ctx context.Context, node redis.UniversalClient, list []int) (*finding, error) {
	pipe := node.Pipeline()
	info := pipe.Info(ctx, "server", "replication", "persistence", "memory")
	heads, known := make([]*redis.SliceCmd, len(list)), map[int]Sight{}
	for i, shard := range list {
		known[shard] = w.Store.Shard(shard).state.known()
		heads[i] = pipe.HMGet(ctx, w.Store.Shard(shard).Keys.Meta(), openingFields...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("look at a Redis server: %w", Classify(err))
	}
	s := &finding{server: parseInfo(info.Val()), known: known, heads: map[int]Head{}, late: map[int]lateEvent{},
		skipped: map[int]string{}, replicas: map[int]int{}}
	for i, shard := range list {
		opening := parseOpening(heads[i].Val())
		if !opening.openFor(&s.server) {
			s.notOpen = append(s.notOpen, shard)
		}
		if heads[i].Val()[0] == nil {
			s.missing = append(s.missing, shard)
			continue
		}
		k := w.Store.Shard(shard)
		head, err := k.parseHead(heads[i])
		if err != nil {
			return nil, err
		}
		s.heads[shard], s.replicas[shard] = head, opening.replicas
		if seen := k.state.known(); seen.After(head.at()) && seen.After(opening.seen) {
			s.ahead = append(s.ahead, shard)
		}
		ranges, err := parseSkipped(opening.skipped)
		if late := k.state.late(&Skips{ranges, head.Epoch}); err == nil && late.Seq > 0 { // else an audit reports the field
			s.late[shard], s.skipped[shard] = late, opening.skipped
			s.ahead = append(s.ahead, shard)
		}
	}
	return s, nil
}

// judgeLate raises an alarm for grants that were reported to users and can't be restored.
func (w *Watch) judgeLate(lost []LateGrant) {
	if len(lost) == 0 {
		return
	}
	l := &lost[0]
	w.Alarm(LostData, hongbao.Errorf(hongbao.ClassBroken, "shard %d was opened without %d grants that this process reported to "+
		"users, and they can't come back automatically; the first one is packet %d of campaign %s, event %d, of user %.80q (%s); "+
		"docs/alarms.md says what to do for these users", l.Shard, len(lost), l.Packet, l.Campaign, l.Seq, l.User, l.Why))
}

// previous returns the shard's last event at the previous check. At the first check it returns what the process had
// seen, because its grabs may have been answered before the watch began.
func (w *Watch) previous(now *finding, shard int) Sight {
	if before := w.before[shard]; before != nil {
		head := before.heads[shard]
		return head.at()
	}
	return now.known[shard]
}

// judge raises alarms for what has become worse since the previous check. The caller must hold w.mu.
func (w *Watch) judge(now *finding) {
	raised := map[string]bool{}
	alarm := func(code, format string, args ...any) {
		if !raised[code] {
			raised[code] = true
			w.Alarm(code, hongbao.Errorf(hongbao.ClassBroken, format, args...))
		}
	}
	lost := func(shard int, format string, args ...any) {
		alarm(LostData, "shard %d: "+format+"; workers restore what is known within seconds; if it stays frozen, let no one "+
			"write to this Redis, keep its files, and run `hongbao recover`",
			append([]any{shard}, args...)...)
	}
	for _, shard := range now.missing {
		if was := w.previous(now, shard); was.Epoch > 0 {
			lost(shard, "it had come to event %d, and is gone", was.Seq)
		}
	}
	for shard, late := range now.late {
		if before := w.before[shard]; before == nil || before.late[shard].Sight != late.Sight {
			lost(shard, "event %d was seen in epoch %d, and the shard was opened without it", late.Seq, late.Epoch)
		}
	}
	for shard, head := range now.heads {
		if was := w.previous(now, shard); was.After(head.at()) {
			lost(shard, "it had come to event %d of epoch %d, and came back at event %d of epoch %d", was.Seq, was.Epoch,
				head.Seq, head.Epoch)
		}
		before := w.before[shard]
		if before == nil {
			continue
		}
		if before.server.AppendOnly && !now.server.AppendOnly {
			alarm(LostAppendOnly, "this Redis writes no append-only file any more: %w", errNoAppendOnly)
		}
		if was, is := before.server.MaxMemoryPolicy, now.server.MaxMemoryPolicy; was == NoEviction && is != was {
			alarm(Evicts, "maxmemory-policy became %q, which evicts receipts: set it to %s in redis.conf and by CONFIG SET", is,
				NoEviction)
		}
	}
}
