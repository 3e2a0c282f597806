package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/store"
)

// answerTime bounds the wait for one node, so that a hanging node leaves time for the others.
const answerTime = time.Second

// examineRedis checks the settings of each server, and then the deployment's shards.
func (a *App) examineRedis(ctx context.Context, p *part) {
	cfg := *a.Config
	cfg.Redis.ReadTimeout, cfg.Redis.Retries = min(cfg.Redis.ReadTimeout, answerTime), 0
	rdb := cfg.RedisClient()
	defer rdb.Close()
	st, err := store.New(store.Config{Redis: rdb, Space: cfg.Space(), Deployment: cfg.Deployment.ID})
	if err != nil {
		p.wrong(err)
		return
	}
	where := strings.Join(a.Config.Redis.Addrs, ",")
	nodes, err := store.Nodes(ctx, rdb)
	if err != nil {
		p.wrong(named("redis.addrs", fmt.Errorf("redis at %s: %w", where, err)))
	}
	if len(nodes) == 0 || err != nil && !hongbao.IsOutage(err) {
		return
	}
	for i := range nodes {
		a.examineNode(p, &nodes[i])
	}
	n, err := st.CountJournal(ctx)
	if err != nil && !hongbao.IsOutage(err) {
		p.wrong(fmt.Errorf("entries of the journal that wait for the ledger can't be kept: remove the key %s: %w", st.Journal(),
			err))
	}
	if err == nil && n > journalLate {
		p.add(LevelWarning, "%d of at most %d entries of the journal wait for the ledger: restore the ledger, then run "+
			"`hongbao journal`, which moves them", n, maxWaiting)
	}
	mark, down, err := st.Open(ctx)
	if err != nil {
		p.wrong(fmt.Errorf("redis at %s: %w", where, err))
		return
	}
	p.wrong(down)
	p.wrong(a.founded.asRedis(mark.Founding)) // remembered, so that the check of the ledger can compare it
	a.examineShards(ctx, p, st)
}

// journalLate is the number of waiting journal entries from which doctor warns.
const journalLate = maxWaiting / 50

// memoryBound is the share of used memory from which doctor warns: of maxmemory, or of the machine's memory.
const memoryBound = 0.8

// examineNode checks one Redis server: its settings, its clock, and its disk if that is on this machine.
func (a *App) examineNode(p *part, n *store.Node) {
	name := "Redis"
	if n.Addr != "" {
		name = "Redis at " + n.Addr
	}
	if !n.Clock.IsZero() { // zero if the user may not read it, which is reported as a missing right
		p.clock(name, n.Clock, n.Asked, n.Answered)
	}
	refused := p.wrong(a.checkMode(&n.Server), a.checkRunID(&n.Server), a.checkCoverage(&n.Server))
	if n.Addr != "" {
		p.node = "node " + n.Addr + ": "
		defer func() { p.node = "" }()
	}
	a.examineServer(p, &n.Server, refused)
	if n.Folder != "" && !refused && a.redisIsHere() {
		p.disk("redis", n.Folder)
	}
}

// examineServer checks the settings of a server. If the server was refused, it checks only the settings that can lose
// receipts.
func (a *App) examineServer(p *part, s *store.Server, refused bool) {
	all, found := a.Allows(configs.UnsafeRedis), len(p.list)
	p.allowed(all, s.Faults(hongbao.DurabilityFast)...)
	p.allowed(all || a.Allows(configs.UnsafeRedisAppendOnly), s.CheckAppendOnly())
	if refused {
		return
	}
	if len(p.list) == found {
		p.add(LevelOK, "version %s, a primary, with an append-only file and without eviction", s.Version)
	}
	if s.AppendFsync == "" {
		p.add(LevelWarning, "appendfsync, min-replicas-to-write and cluster-require-full-coverage were not checked, because "+
			"redis.username may not run CONFIG GET: run `hongbao doctor` as user hongbao-init of deploy/rights/redis.acl, or "+
			"check the three yourself")
	}
	if s.WritesFail {
		p.add(LevelProblem, "the last write of the append-only file or of the snapshot failed: see the server's log, "+
			"and check the free space of its disk")
	}
	if s.Replicas == 0 {
		p.add(LevelWarning, "no replica is connected: if this server's disk is lost, so are its receipts. Add a replica")
	}
	if few := s.FewReplicas(a.Config.Producer.Replicas); few != nil {
		p.add(LevelWarning, "%v", few)
	}
	p.memory(s)
}

// memory checks maxmemory and the used memory, also against the machine's memory.
func (p *part) memory(s *store.Server) {
	most, bound := "below what the machine has", s.MaxMemory
	if machine := s.MachineMemory; machine > 0 {
		most = fmt.Sprintf("to %s at most, three quarters of the machine's memory", bytesText(uint64(machine)/4*3))
		if bound == 0 || bound > machine {
			bound = machine
		}
	}
	switch {
	case s.MaxMemory == 0:
		p.add(LevelWarning, "maxmemory is not set: without it the server does not refuse grabs when memory is full, and the "+
			"system kills it. Set maxmemory %s", most)
	case s.MachineMemory > 0 && s.MaxMemory > s.MachineMemory/4*3:
		p.add(LevelWarning, "maxmemory is %s: the system may kill the server before it has used that much, above all during a "+
			"rewrite of the append-only file, which needs memory for all writes meanwhile. Set maxmemory %s",
			bytesText(uint64(s.MaxMemory)), most)
	}
	if bound > 0 && float64(s.Memory) > memoryBound*float64(bound) {
		p.add(LevelWarning, "%d of %d bytes of memory are used: raise maxmemory if the machine has the memory, or run "+
			"`hongbao status`, which shows what is waiting", s.Memory, bound)
	}
}

// shardView is what doctor has found out about one shard.
type shardView struct {
	node            string   // the node's address, as in Server.Addr
	denied          []string // commands
	frozen          bool
	missing, paused []string // sinks
	err             error
}

func (a *App) viewShard(ctx context.Context, k *store.Shard) (v shardView) {
	if v.node, v.denied, v.err = k.Denied(ctx); v.err != nil {
		return v
	}
	head, err := k.Head(ctx)
	if v.frozen = err == nil && head.Frozen; v.frozen {
		return v
	}
	for _, sink := range a.Config.Deployment.Sinks {
		_, there, failed := k.Group(sink).Finished(ctx, 0)
		control, errControl := k.Group(sink).Control(ctx)
		err = errors.Join(err, failed, errControl)
		if failed == nil && !there {
			v.missing = append(v.missing, sink)
		}
		if control.Paused {
			v.paused = append(v.paused, sink)
		}
	}
	v.err = err
	return v
}

// examineShards reports frozen shards, missing consumer groups, paused sinks, and rights that the user lacks. It reads
// the shards concurrently, so that a hanging shard leaves time for the others.
func (a *App) examineShards(ctx context.Context, p *part, st *store.Store) {
	views := make([]shardView, st.Len())
	store.Each(len(views), len(views), func(i int) error {
		views[i] = a.viewShard(ctx, st.Shard(i))
		return nil
	})
	for _, u := range Unrecorded(ctx, st) {
		p.add(LevelWarning, "shard %d: %s", u.Shard, u.Why)
	}
	missing, paused := map[string]int{}, map[string]int{}
	denied := map[string][]string{} // the nodes that deny the commands, by the list of commands
	unread := map[string]int{}      // number of shards, by error
	for i, v := range views {
		if v.frozen {
			p.add(LevelProblem, "shard %d is frozen: run `hongbao recover`", i)
		}
		if v.err != nil && v.node != "" {
			v.err = fmt.Errorf("node %s: %w", v.node, v.err)
		}
		if v.err != nil {
			unread[v.err.Error()]++
		}
		if len(v.denied) > 0 {
			list := strings.Join(v.denied, ", ")
			denied[list] = append(denied[list], v.node)
		}
		for _, sink := range v.missing {
			missing[sink]++
		}
		for _, sink := range v.paused {
			paused[sink]++
		}
	}
	for _, text := range slices.Sorted(maps.Keys(unread)) {
		p.add(LevelProblem, "%d of %d shards can't be read: %s", unread[text], st.Len(), text)
	}
	if p.rights(denied); len(denied)+len(unread) == 0 {
		p.add(LevelOK, "the user may run every command that any role needs")
	}
	for _, sink := range a.Config.Deployment.Sinks {
		if n := missing[sink]; n > 0 {
			p.add(LevelWarning, "the consumer group of sink %s is missing on %d of %d shards, and nothing is trimmed there: "+
				"start its workers (%s), or remove the sink from deployment.sinks", sink, n, st.Len(),
				cmp.Or(a.Config.ProgramOf(sink), "`hongbao work --sink "+sink+"`"))
		}
		if n := paused[sink]; n > 0 {
			p.add(LevelWarning, "sink %s is paused on %d of %d shards: `hongbao sink list` shows by whom and why", sink, n,
				st.Len())
		}
	}
}

// rights reports commands that the user may not run, and in a cluster the nodes that deny them.
func (p *part) rights(denied map[string][]string) {
	for _, commands := range slices.Sorted(maps.Keys(denied)) {
		where := ""
		slices.Sort(denied[commands])
		if nodes := slices.Compact(denied[commands]); nodes[0] != "" {
			where = " at " + strings.Join(nodes, ", ")
		}
		if slices.Contains(strings.Split(commands, ", "), "EVAL") {
			p.add(LevelProblem, "redis.username may not run scripts on the deployment's keys%s, and nothing works without "+
				"scripts: deploy/rights/redis.acl has a user for each role", where)
			continue
		}
		p.add(LevelWarning, "redis.username may not run %s on the deployment's keys%s. Ignore this if the user's role does not "+
			"need them: deploy/rights/redis.acl has a user for each role", commands, where)
	}
}
