package app

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/configs"
	kept "github.com/hongbao-project/hongbao/internal/ledger/access"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
)

// The levels of a Finding.
const (
	LevelOK      = "ok"
	LevelWarning = "warning"
	LevelProblem = "problem"
)

// Finding is one result of Doctor's checks.
type Finding struct {
	Server string `json:"server"` // one of redis, ledger, topic, remote, keys, collector and configuration
	Level  string `json:"level"`
	// About is the text of the finding. Unless the level is ok, it includes what to do.
	About string `json:"about"`
}

// Examination has all findings of Doctor, and counts them.
type Examination struct {
	Findings []Finding `json:"findings"`
	Warnings int       `json:"warnings"`
	Problems int       `json:"problems"`
}

// Err returns an error if there is a problem.
func (e *Examination) Err() error {
	if e.Problems == 0 {
		return nil
	}
	return NeedsAttention("found %s and %s; the report says what to do about each", plural.Of(e.Problems, "problem"),
		plural.Of(e.Warnings, "warning"))
}

// doctorTime bounds the examination of one server, so that a hanging server does not delay the report.
const doctorTime = 30 * time.Second

// part collects the findings about one server.
type part struct {
	server string
	// node is the prefix of each finding while one node of a cluster is examined; otherwise it is empty.
	node   string
	list   []Finding
	clocks []clock
}

func (p *part) add(level, format string, args ...any) {
	p.list = append(p.list, Finding{p.server, level, p.node + fmt.Sprintf(format, args...)})
}

// wrong adds a problem for each error that is not nil, and reports whether there was any.
func (p *part) wrong(errs ...error) bool {
	n := len(p.list)
	for _, err := range errs {
		if err != nil {
			p.add(LevelProblem, "%v", err)
		}
	}
	return len(p.list) > n
}

// allowed adds a finding for each error: a warning if allowed, because a worker then starts anyway, otherwise a
// problem.
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

// Doctor examines everything that the configuration names, and changes nothing. It examines the servers concurrently.
func (a *App) Doctor(ctx context.Context) *Examination {
	parts := []*part{{server: "configuration"}, {server: "redis"}, {server: "ledger"}, {server: "topic"},
		{server: "remote"}, {server: "keys"}, {server: "collector"}, {server: "webhooks"}}
	looks := []func(context.Context, *part){a.examineConfig, a.examineRedis, a.examineLedger, a.examineTopic,
		a.examineRemote, a.examineKeys, a.examineCollector, a.examineWebhooks}
	var wg sync.WaitGroup
	for i, look := range looks {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, doctorTime)
			defer cancel()
			look(ctx, parts[i])
		})
	}
	wg.Wait()
	parts[1].compareClocks(parts[2])
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

// examineConfig reports disabled checks, and connections to other machines in clear text.
func (a *App) examineConfig(_ context.Context, p *part) {
	for _, name := range a.Config.Unsafe.Allow {
		p.add(LevelWarning, "unsafe.allow names %s: a check that protects %s is off. Fix what the check finds, and remove "+
			"the name", name, configs.Protects(name))
	}
	plain := func(what, knobName string, addrs []string) {
		for _, addr := range addrs {
			if host, _, err := net.SplitHostPort(addr); err == nil && !knob.IsLoopback(host) {
				p.add(LevelWarning, "the connection to %s at %s has no TLS: set %s", what, addr, knobName)
			}
		}
	}
	if !a.Config.Redis.TLS.On {
		plain("redis", "redis.tls", a.Config.Redis.Addrs)
	}
	if a.Has(configs.SinkKafka) && a.Config.PublisherConfig().TLS == nil {
		plain("kafka", "kafka.tls", a.Config.Publisher.Brokers)
	}
	a.examineCertificates(p)
	if !slices.ContainsFunc(p.list, func(f Finding) bool { return f.Level == LevelWarning }) {
		p.add(LevelOK, "no check is off, and no clear text leaves this machine for Redis or Kafka")
	}
}

// examineLedger runs the same checks of the ledger as the start of a worker: versions, tables, isolation, durability,
// owner.
func (a *App) examineLedger(ctx context.Context, p *part) {
	l := a.newLedger()
	defer l.Close()
	if p.wrong(l.Ready(ctx)) {
		return
	}
	begin := time.Now()
	s, err := l.Server(ctx)
	if p.wrong(err) {
		return
	}
	p.add(LevelOK, "%s %s: tables and settings are correct, and the ledger belongs to this deployment. Each transaction "+
		"sets its own isolation level", a.Config.Ledger.Driver, s.Version)
	if len(s.Denied) > 0 {
		p.add(LevelWarning, "the user of ledger.dsn may not %s. Ignore this if the user's role does not need it. "+
			"Otherwise run deploy/rights/postgres.sql once, and `hongbao init` as the owner of the tables",
			strings.Join(s.Denied, "; "))
	}
	if s.Asynchronous {
		p.add(LevelProblem, "the database has fallen back to asynchronous replication, because no replica confirms in "+
			"time: a failover loses what is paid now. Repair the replica (docs/reliability.md, \"The ledger's standby\")")
	}
	p.clock("the database", s.Clock, begin, time.Now())
	a.ledgerDisk(p)
	p.connections(s.Connections, int64(a.Config.Ledger.Conns))
	keys, err := kept.Of(l.Tables()).LiveKeys(ctx)
	if err != nil {
		p.add(LevelWarning, "the ends of the API keys were not checked: %v", err)
	}
	for i := range keys {
		if k := &keys[i]; !k.Expires.IsZero() && time.Until(k.Expires) < access.EndsSoon {
			p.add(LevelWarning, "API key %s (role %s, note %q) ends at %s: run `hongbao key rotate %s --expires 2160h`, and give "+
				"its owner the new secret", k.ID, k.Role, k.Note, k.End(), k.ID)
		}
	}
}

// fewProcesses is the number of processes from which doctor does not warn of the database's connections: two workers,
// and two servers.
const fewProcesses = 4

// connections compares the number of connections that the database accepts with those of one process. Each process has
// one pool. SQLite has no limit.
func (p *part) connections(accepted, each int64) {
	if accepted == 0 {
		return
	}
	level, fix := LevelOK, "count your workers and servers"
	if accepted/each < fewProcesses {
		level, fix = LevelWarning, "raise max_connections, or lower ledger.conns"
	}
	p.add(level, "the database accepts %d connections, enough for %d processes with ledger.conns %d: %s", accepted,
		accepted/each, each, fix)
}

// examineTopic runs the checks of a worker's start: partitions, retention, replicas.
func (a *App) examineTopic(ctx context.Context, p *part) {
	if !a.Has(configs.SinkKafka) {
		return
	}
	pc := a.PublisherConfig()
	pc.Create = false
	l, err := publish.NewLog(pc)
	if p.wrong(err) {
		return
	}
	defer l.Close()
	report, err := l.Check(ctx)
	if err != nil {
		p.wrong(named("kafka.brokers", fmt.Errorf("kafka at %s: %w", strings.Join(pc.Brokers, ","), err)))
		return
	}
	p.add(LevelOK, "topic %s has %d partitions, and its retention is long enough", pc.Topic, pc.Partitions)
	for _, w := range append(report.Warnings, report.Skipped...) {
		p.add(LevelWarning, "%s", w)
	}
}
