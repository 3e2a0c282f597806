package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/knob"
	"github.com/hongbao-project/hongbao/internal/publish"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// The levels of a finding.
const (
	LevelOK      = "ok"
	LevelWarning = "warning"
	LevelProblem = "problem"
)

// Finding is one thing that Doctor has looked at.
type Finding struct {
	Server string `json:"server"` // redis, ledger, topic, remote, keys, collector or configuration
	Level  string `json:"level"`
	// About says what was found, and what to do if it is not ok.
	About string `json:"about"`
}

// Examination is all that Doctor found.
type Examination struct {
	Findings []Finding `json:"findings"`
	Warnings int       `json:"warnings"`
	Problems int       `json:"problems"`
}

// Verdict is an error if there is a problem.
func (e *Examination) Verdict() error {
	if e.Problems == 0 {
		return nil
	}
	return Found("%d problems and %d warnings were found; the answer says what to do about each", e.Problems, e.Warnings)
}

// doctorTime bounds the examination of one server: one that hangs hides no other.
const doctorTime = 20 * time.Second

// part collects the findings about one server.
type part struct {
	server string
	list   []Finding
	// ahead is how far the server's clock is ahead of this machine's; nil if nobody knows.
	ahead *time.Duration
}

func (p *part) add(level, format string, args ...any) {
	p.list = append(p.list, Finding{p.server, level, fmt.Sprintf(format, args...)})
}

// wrong adds a problem for each error, and tells whether there was one.
func (p *part) wrong(errs ...error) bool {
	n := len(p.list)
	for _, err := range errs {
		if err != nil {
			p.add(LevelProblem, "%v", err)
		}
	}
	return len(p.list) > n
}

// allowed adds each error: as a warning if unsafe.allow lets a worker start all the same.
func (p *part) allowed(allowed bool, errs ...error) {
	if !allowed {
		p.wrong(errs...)
		return
	}
	for _, err := range errs {
		if err != nil {
			p.add(LevelWarning, "unsafe.allow: %v", err)
		}
	}
}

// Doctor looks at everything that the configuration names, and changes nothing. The servers are examined side by side.
func (a *App) Doctor(ctx context.Context) *Examination {
	parts := []*part{{server: "configuration"}, {server: "redis"}, {server: "ledger"}, {server: "topic"},
		{server: "remote"}, {server: "keys"}, {server: "collector"}}
	looks := []func(context.Context, *part){a.examineConfig, a.examineRedis, a.examineLedger, a.examineTopic,
		a.examineRemote, a.examineKeys, a.examineCollector}
	var wg sync.WaitGroup
	for i, look := range looks {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, doctorTime)
			defer cancel()
			look(ctx, parts[i])
		})
	}
	wg.Wait()
	parts[2].clocks(parts[1])
	out := &Examination{Findings: []Finding{}}
	for _, p := range parts {
		for _, f := range p.list {
			out.Findings = append(out.Findings, f)
			switch f.Level {
			case LevelWarning:
				out.Warnings++
			case LevelProblem:
				out.Problems++
			}
		}
	}
	return out
}

// examineConfig looks at what was switched off, and at connections that leave the machine in clear text.
func (a *App) examineConfig(_ context.Context, p *part) {
	for _, name := range a.Config.Unsafe.Allow {
		p.add(LevelWarning, "unsafe.allow names %s: a check that protects money is off. Mend what it is about, and take it out",
			name)
	}
	plain := func(what, knobName string, addrs []string) {
		for _, addr := range addrs {
			if host, _, err := net.SplitHostPort(addr); err == nil && !knob.IsLoopback(host) {
				p.add(LevelWarning, "%s at %s is reached without TLS: set %s", what, addr, knobName)
			}
		}
	}
	if !a.Config.Redis.TLS.On {
		plain("redis", "redis.tls", a.Config.Redis.Addrs)
	}
	if a.has(configs.SinkKafka) && a.Config.PublisherConfig().TLS == nil {
		plain("kafka", "kafka.tls", a.Config.Publisher.Brokers)
	}
	a.examineCertificates(p)
	if !slices.ContainsFunc(p.list, func(f Finding) bool { return f.Level == LevelWarning }) {
		p.add(LevelOK, "no check is switched off, and nothing leaves this machine in clear text to Redis or Kafka")
	}
}

// examineRedis looks at each server's settings, then at the deployment's shards.
func (a *App) examineRedis(ctx context.Context, p *part) {
	rdb := a.Config.RedisClient()
	defer rdb.Close()
	where := strings.Join(a.Config.Redis.Addrs, ",")
	servers, err := shards.Inspect(ctx, rdb)
	if err != nil {
		p.wrong(away("redis.addrs", fmt.Errorf("redis at %s: %w", where, err)))
	}
	if len(servers) == 0 || err != nil && !hongbao.IsOutage(err) {
		return
	}
	fine := true
	for i := range servers {
		fine = a.examineServer(p, &servers[i]) && fine
	}
	if fine {
		a.redisDisks(ctx, p, rdb)
	}
	begin := time.Now()
	if now, err := rdb.Time(ctx).Result(); err == nil {
		p.clock("Redis", now, begin)
	}
	if n, err := rdb.LLen(ctx, a.space.Journal()).Result(); err == nil && n > journalLate {
		p.add(LevelWarning, "%d entries of the journal wait for the ledger, of at most %d: bring it back, then `hongbao journal` "+
			"moves them", n, maxWaiting)
	}
	mark, away, err := shards.Open(ctx, rdb, a.space, a.Config.Deployment.ID)
	if err != nil {
		p.wrong(fmt.Errorf("redis at %s: %w", where, err))
		return
	}
	p.wrong(away)
	p.wrong(a.founded.asRedis(mark.Founding)) // if the ledger is asked later, it says so
	a.examineShards(ctx, p, rdb)
}

// journalLate is how many entries of the journal may wait in Redis before it is worth a word.
const journalLate = maxWaiting / 50

// memoryBound is the part of its memory from which a Redis is near its bound.
const memoryBound = 0.8

// examineServer looks at a server's settings. It is false for a server that Hongbao refuses to run on.
func (a *App) examineServer(p *part, s *shards.Server) bool {
	all, found := a.allows(configs.UnsafeRedis), len(p.list)
	p.allowed(all, s.Faults(hongbao.DurabilityFast)...)
	p.allowed(all || a.allows(configs.UnsafeRedisAppendOnly), s.CheckAppendOnly())
	if p.wrong(a.checkMode(s), a.checkRunID(s), a.checkCoverage(s)) {
		return false
	}
	if len(p.list) == found {
		p.add(LevelOK, "version %s, a primary, with an append-only file and without eviction", s.Version)
	}
	if s.WritesFail {
		p.add(LevelProblem, "the last write of the append-only file or of the snapshot failed: look into the server's log, and "+
			"at the space on its disk")
	}
	if s.Replicas == 0 {
		p.add(LevelWarning, "no replica is connected: if this server's disk is lost, so are its receipts. Add one")
	}
	switch {
	case s.MaxMemory == 0:
		p.add(LevelWarning, "maxmemory is not set: when the machine's memory is used up, the server is killed instead of "+
			"refusing grabs. Set it below what the machine has")
	case float64(s.Memory) > memoryBound*float64(s.MaxMemory):
		p.add(LevelWarning, "%d of %d bytes of memory are used: raise maxmemory, or see with `hongbao status` what waits",
			s.Memory, s.MaxMemory)
	}
	return true
}

// examineShards looks for frozen shards, groups that are missing, paused sinks, and rights that the user lacks.
func (a *App) examineShards(ctx context.Context, p *part, rdb redis.UniversalClient) {
	missing, paused, denied := map[string]int{}, map[string]int{}, []string{}
	unread := map[string]int{} // how many shards have each error
	for i := range a.space.Len() {
		k := shards.Of(rdb, a.space.Shard(i))
		no, err := k.Denied(ctx)
		denied = append(denied, no...)
		if err != nil {
			unread[err.Error()]++
			continue
		}
		head, err := k.Head(ctx)
		if err == nil && head.Frozen {
			p.add(LevelProblem, "shard %d is frozen: see `hongbao recover`", i)
			continue
		}
		for _, sink := range a.Config.Deployment.Sinks {
			_, there, failed := k.GroupFinished(ctx, sink, 0)
			control, errControl := k.SinkControl(ctx, sink)
			err = errors.Join(err, failed, errControl)
			if failed == nil && !there {
				missing[sink]++
			}
			if control.Paused {
				paused[sink]++
			}
		}
		if err != nil {
			unread[err.Error()]++
		}
	}
	for _, text := range slices.Sorted(maps.Keys(unread)) {
		p.add(LevelProblem, "%d of %d shards can't be read: %s", unread[text], a.space.Len(), text)
	}
	slices.Sort(denied)
	switch denied = slices.Compact(denied); {
	case slices.Contains(denied, "EVAL"):
		p.add(LevelProblem, "redis.username may not run scripts on the deployment's keys, and nothing works without: "+
			"deploy/rights/redis.acl has a user for each role")
	case len(denied) > 0:
		p.add(LevelWarning, "redis.username may not run %s on the deployment's keys. That is fine if its role does not need "+
			"them: deploy/rights/redis.acl has a user for each role", strings.Join(denied, ", "))
	case len(unread) == 0:
		p.add(LevelOK, "the user may run every command that any role needs")
	}
	for _, sink := range a.Config.Deployment.Sinks {
		if n := missing[sink]; n > 0 {
			p.add(LevelWarning, "the consumer group of sink %s is missing on %d of %d shards, and nothing is trimmed there: "+
				"start `hongbao work --sink %s`, or take the sink out of deployment.sinks", sink, n, a.space.Len(), sink)
		}
		if n := paused[sink]; n > 0 {
			p.add(LevelWarning, "sink %s is paused on %d of %d shards: `hongbao sink list` tells who and why", sink, n,
				a.space.Len())
		}
	}
}

// examineLedger makes the checks of a worker's start: versions, tables, isolation, durability, whose it is.
func (a *App) examineLedger(ctx context.Context, p *part) {
	l, err := a.newLedger(ctx)
	if p.wrong(err) {
		return
	}
	defer l.Close()
	begin := time.Now()
	s, err := l.Server(ctx)
	if p.wrong(err) {
		return
	}
	p.add(LevelOK, "%s %s: tables and settings are as they must be, and it is this deployment's. Each transaction says its own "+
		"isolation", a.Config.LedgerConfig().Driver, s.Version)
	p.clock("the database", s.Clock, begin)
	a.ledgerDisk(p)
}

// examineTopic makes the checks of a worker's start: partitions, retention, replicas, what the user may do.
func (a *App) examineTopic(ctx context.Context, p *part) {
	if !a.has(configs.SinkKafka) {
		return
	}
	pc := a.publisherConfig()
	pc.Create = false
	l, err := publish.NewLog(pc)
	if p.wrong(err) {
		return
	}
	defer l.Close()
	report, err := l.Check(ctx)
	if err != nil {
		p.wrong(away("kafka.brokers", fmt.Errorf("kafka at %s: %w", strings.Join(pc.Brokers, ","), err)))
		return
	}
	p.add(LevelOK, "topic %s has %d partitions and keeps what it must", pc.Topic, pc.Partitions)
	for _, w := range append(report.Warnings, report.Skipped...) {
		p.add(LevelWarning, "%s", w)
	}
}
