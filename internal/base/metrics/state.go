package metrics

import (
	"context"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/turn"
)

// State is the state of a deployment, as read from Redis.
type State struct {
	Sinks     []SinkState
	Shards    []ShardState
	Servers   []ServerState
	Campaigns []CampaignState
	// Audit is the result of the last complete audit; nil if there was none.
	Audit *AuditState
	// Withheld is the number of withheld packets that no person has decided; nil if it is unknown.
	Withheld *int64
	// JournalWaits is the number of entries of the journal that wait in Redis; nil if it is unknown.
	JournalWaits *int64
	// Ledger is nil if the ledger did not answer.
	Ledger *LedgerState
}

// RefundWithin is the longest normal time from the end of a campaign's window to its refund.
const RefundWithin = 24 * time.Hour

// LedgerState is the work in the ledger that waits for a worker or a person.
type LedgerState struct {
	// Unfinished has, by kind, the work that waits for a worker.
	Unfinished map[string]Backlog
	// Unrefunded is how long ago the window of a campaign that is not refunded ended; the longest time, or 0. It is nil if
	// it is unknown.
	Unrefunded *time.Duration
	// Paused is the number of campaigns that workers have paused, and that no person has resumed.
	Paused int64
}

// Backlog counts tasks, and has the age of the oldest one.
type Backlog struct {
	Count  int64
	Oldest time.Duration
}

// SinkState is the state of a sink.
type SinkState struct {
	Sink    string
	Workers int
	Paused  bool
	// Rate is the most grants that all workers together deliver in a second; 0 means no limit.
	Rate int
	// PausedByWorker and PausedByPerson count the campaigns that are paused for the sink.
	PausedByWorker, PausedByPerson int
	Shards                         []SinkShard
}

// SinkShard is the state of a sink on a shard. Parked counts the parked entries by level, Held those of campaigns that
// are paused for the sink.
type SinkShard struct {
	Shard                      int
	Lag, Pending, Dead, Claims int64
	Parked                     []int64
	Held                       int64
	Unread, Oldest             time.Duration
}

// ShardState is the state of a shard.
type ShardState struct {
	Shard  int
	Open   bool
	Events int64
}

// ServerState is the state of a Redis server.
type ServerState struct {
	Server                           string
	Memory, MaxMemory, MachineMemory int64
	AppendOnly, WritesOK, Noevicts   bool
	Replicas, RequiredReplicas       int
}

// CampaignState is the number of packets that a campaign has left.
type CampaignState struct {
	ID   string
	Left int64
}

// AuditState is the result of the last complete audit.
type AuditState struct {
	Started                  time.Time
	Differences, DeadLetters int64
}

// Poll configures how State reads the deployment's state.
type Poll struct {
	// Ask returns the state. If a server does not answer, Ask returns an error, and the state of the other servers or
	// nil. Timeout limits the call.
	Ask     func(ctx context.Context) (*State, error)
	Timeout time.Duration
	// Every is how long a result is cached, including a failure.
	Every time.Duration
}

// State exports the deployment's state, without its campaigns. A scrape reads the state at most once in Poll.Every.
func (s *Set) State(p Poll) {
	c := &stateCache{poll: p}
	s.registry.MustRegister(newPolled(c.read, ofState.Metrics...))
}

// Left exports only the campaigns of a state, which a scrape reads at most once in Poll.Every.
func (s *Set) Left(p Poll) {
	c := &stateCache{poll: p}
	s.registry.MustRegister(newPolled(c.readLeft, CampaignLeft))
}

func (c *stateCache) readLeft(add func(m *Metric, value float64, labels ...string)) {
	if state, _, _ := c.get(); state != nil {
		for _, one := range state.Campaigns {
			add(CampaignLeft, float64(one.Left), one.ID)
		}
	}
}

type stateCache struct {
	poll Poll

	mu    turn.Lock // held while the state is read: concurrent scrapes share one result
	at    time.Time
	took  time.Duration
	state *State // nil: no answer
	up    bool
}

func (c *stateCache) get() (state *State, up bool, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || time.Since(c.at) >= c.poll.Every {
		ctx, cancel := context.WithTimeout(context.Background(), c.poll.Timeout)
		defer cancel()
		start := time.Now()
		state, err := c.poll.Ask(ctx)
		c.state, c.up, c.at, c.took = state, err == nil, time.Now(), time.Since(start)
	}
	return c.state, c.up, c.took
}

func (c *stateCache) read(add func(m *Metric, value float64, labels ...string)) {
	state, up, took := c.get()
	add(StateUp, truth(up))
	add(StateSeconds, took.Seconds())
	if state == nil {
		return
	}
	for i := range state.Sinks {
		state.Sinks[i].read(add)
	}
	for _, s := range state.Shards {
		shard := strconv.Itoa(s.Shard)
		add(ShardOpen, truth(s.Open), shard)
		add(ShardEvents, float64(s.Events), shard)
	}
	for _, s := range state.Servers {
		add(RedisMemory, float64(s.Memory), s.Server)
		add(RedisMaxMemory, float64(s.MaxMemory), s.Server)
		add(RedisMachineMemory, float64(s.MachineMemory), s.Server)
		add(RedisPersists, truth(s.AppendOnly), s.Server)
		add(RedisWrites, truth(s.WritesOK), s.Server)
		add(RedisKeeps, truth(s.Noevicts), s.Server)
		add(RedisReplicas, float64(s.Replicas), s.Server)
		add(RequiredReplicas, float64(s.RequiredReplicas), s.Server)
	}
	if state.Withheld != nil {
		add(WithheldPackets, float64(*state.Withheld))
	}
	if state.JournalWaits != nil {
		add(JournalWaits, float64(*state.JournalWaits))
	}
	if l := state.Ledger; l != nil {
		add(PausedCampaigns, float64(l.Paused))
		if l.Unrefunded != nil {
			add(UnrefundedSeconds, l.Unrefunded.Seconds())
		}
		for kind, b := range l.Unfinished {
			add(Unfinished, float64(b.Count), kind)
			add(UnfinishedSeconds, b.Oldest.Seconds(), kind)
		}
	}
	if a := state.Audit; a != nil {
		add(AuditAgrees, truth(a.Differences == 0))
		add(AuditDifferences, float64(a.Differences))
		add(AuditDeadLetters, float64(a.DeadLetters))
		add(AuditTime, float64(a.Started.UnixMilli())/1000)
	}
}

func (s *SinkState) read(add func(m *Metric, value float64, labels ...string)) {
	if len(s.Shards) == 0 {
		return // no shard answered
	}
	add(Workers, float64(s.Workers), s.Sink)
	add(SinkPaused, truth(s.Paused), s.Sink)
	add(SinkRate, float64(s.Rate), s.Sink)
	add(SinkPausedCampaigns, float64(s.PausedByWorker), s.Sink, "worker")
	add(SinkPausedCampaigns, float64(s.PausedByPerson), s.Sink, "person")
	for _, x := range s.Shards {
		shard := strconv.Itoa(x.Shard)
		add(LagGrants, float64(x.Lag), s.Sink, shard)
		add(LagSeconds, x.Unread.Seconds(), s.Sink, shard)
		add(OldestSeconds, x.Oldest.Seconds(), s.Sink, shard)
		add(PendingEntries, float64(x.Pending), s.Sink, shard)
		add(DeadLetters, float64(x.Dead), s.Sink, shard)
		add(OpenClaims, float64(x.Claims), s.Sink, shard)
		for level, n := range x.Parked {
			add(ParkedEntries, float64(n), s.Sink, shard, strconv.Itoa(level))
		}
		add(ParkedEntries, float64(x.Held), s.Sink, shard, "paused")
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
