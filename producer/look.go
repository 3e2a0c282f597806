package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/store"
)

const (
	// inspectedFor is how long a reading of a server's settings is valid.
	inspectedFor = time.Second
	// aliveFor is how long after a campaign was seen open its absence is a loss: it can't have been closed, refunded
	// and removed from Redis meanwhile.
	aliveFor = 10 * time.Minute
	// maxReceipts bounds the receipts that one call reads, so that Redis runs its script for no longer than 2 ms.
	maxReceipts = 4096
	// lostHash is the hash of a stub, see lua/stub.lua: Redis has lost the campaign, and the stub's fields are made
	// up.
	lostHash = "-"
)

// info has the settings of a campaign that the producer needs. It does not change while the campaign exists.
type info struct {
	hold       int64
	factNames  string
	facts      []string
	durability hongbao.Durability
	waitAOF    bool
	codes      bool   // its packets have codes
	currency   string // empty for none
	places     int    // over how many shards it is dealt
	ends       time.Time
}

// most returns how many grabs one call decides at most.
func (i *info) most() int {
	return int(min(store.MaxGrabs, max(1, maxReceipts/i.hold)))
}

// inspected is a reading of a server's settings, and its time.
type inspected struct {
	server *store.Server
	at     time.Time
}

// first is the first look. While Redis is down it is repeated, as a call is; no grab is sent as long as it fails.
func (l *lane) first(ctx context.Context) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.p.cfg.CallTimeout)
	defer cancel()
	err = whileDown(ctx, func() error {
		if found, err = l.look(ctx); errors.Is(err, store.ErrFrozen) { // it takes longer than a call
			return hongbao.Errorf(hongbao.ClassTransient, "nothing was decided: %w", err)
		}
		return err
	})
	if hongbao.IsOutage(err) {
		return false, hongbao.Outagef(hongbao.ClassTransient, "nothing was decided: %w", err)
	}
	return found, err
}

// look reads what the campaign says of itself, whose Redis this is, and whether the shard is open. The campaign's
// absence counts only if the deployment is the right one and its shard is open for this server. look refuses a server
// that can't keep the durability class.
func (l *lane) look(ctx context.Context) (found bool, err error) {
	node, err := l.shard.Node(ctx)
	if err != nil {
		return false, err
	}
	pipe := node.Pipeline()
	belongs := l.shard.AskBelongs(ctx, pipe)
	open := l.shard.AskOpen(ctx, pipe)
	cmd := pipe.HMGet(ctx, l.shard.Keys.Campaign(l.id), "user_campaign", "fact_names", "durability", store.CodesField,
		"places", "walk", "hash", "state", "to", "currency")
	_, _ = pipe.Exec(ctx) // each command has its own error
	if err := cmd.Err(); err != nil {
		return false, fmt.Errorf("look for campaign %s: %w", l.id, store.Classify(err))
	}
	if err := cmp.Or(belongs(l.p.cfg.Deployment), open()); err != nil {
		return false, fmt.Errorf("look for campaign %s: %w", l.id, err)
	}
	server, err := l.inspect(ctx)
	if err != nil {
		return false, err
	}
	i, err := l.parseInfo(cmd.Val())
	if i == nil || err != nil {
		return false, err
	}
	if i.durability != hongbao.DurabilityFast {
		if err := server.CheckNow(i.durability); err != nil {
			return false, fmt.Errorf("campaign %s: %w", l.id, err)
		}
		i.waitAOF = server.NeedsWaitAOF()
	}
	if i.durability == hongbao.DurabilityReplica { // before the watch has seen its replicas
		if err := l.shard.RaiseReplicas(ctx, server.Replicas); err != nil {
			return false, fmt.Errorf("campaign %s: %w", l.id, err)
		}
	}
	if slow := server.Slow(i.durability); slow != nil {
		l.p.log.Warn("grabs of this campaign are slow", zap.String("campaign", l.id), zap.String("code", "fsync_slow"),
			zap.Error(slow))
	}
	l.seen.Store(i)
	return true, nil
}

// parseInfo reads the fields that look asks for; nil if the campaign is not there, ErrFrozen if it was lost.
func (l *lane) parseInfo(v []any) (*info, error) {
	hold, ok := v[0].(string)
	if !ok {
		return nil, nil
	}
	lost := v[6] == lostHash
	if lost && v[7] == "frozen" {
		return nil, hongbao.Errorf(hongbao.ClassTransient, "%w: this Redis has lost campaign %s, and does not know its "+
			"limits; `hongbao campaign refund-lost %s` ends it", store.ErrFrozen, l.id, l.id)
	}
	i := &info{codes: v[3] == "1", places: 1}
	var err error
	if i.hold, err = strconv.ParseInt(hold, 10, 64); err != nil || i.hold < 1 {
		return nil, hongbao.Errorf(hongbao.ClassBroken,
			"campaign %s in Redis: user_campaign is %.20q, want a number above 0", l.id, hold)
	}
	i.factNames, _ = v[1].(string)
	if i.factNames != "" {
		i.facts = strings.Split(i.factNames, ",")
	}
	ends, _ := v[8].(string)
	ms, err := strconv.ParseInt(ends, 10, 64)
	if err != nil {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis: to is %.20q, want a time in Unix ms", l.id, ends)
	}
	i.ends = time.UnixMilli(ms)
	class, _ := v[2].(string)
	i.durability = hongbao.Durability(class)
	i.currency, _ = v[9].(string)
	places, ok := v[4].(string)
	if !ok {
		return i, nil
	}
	most := min(l.p.store.Len(), hongbao.MaxCampaignShards)
	if i.places, err = strconv.Atoi(places); err != nil || i.places < 1 || i.places > most {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis is dealt over %.20q shards, and the "+
			"deployment has %d", l.id, places, l.p.store.Len())
	}
	if v[5] != walk.Version && !lost { // the walks over one that was lost find that it has ended
		return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis: its users walk over its shards by version "+
			"%.20q, and this build knows %s only: run the build that loaded it", l.id, fmt.Sprint(v[5]), walk.Version)
	}
	return i, nil
}

// inspect returns the settings of the server that has the campaign now. A replica is an outage, as during a failover:
// it may lack the last campaigns and grants.
func (l *lane) inspect(ctx context.Context) (*store.Server, error) {
	node, err := l.shard.Node(ctx)
	if err != nil {
		return nil, err
	}
	server, err := l.p.inspect(ctx, node)
	if err != nil {
		return nil, err
	}
	if server.Role == "slave" {
		return nil, hongbao.Outagef(hongbao.ClassTransient,
			"campaign %s: the server is a replica; the client of the producer has to go to the primary", l.id)
	}
	return server, nil
}

// inspect asks each server at most once per inspectedFor, for however many campaigns.
func (p *Producer) inspect(ctx context.Context, node redis.UniversalClient) (*store.Server, error) {
	v, err, _ := p.looks.Do(fmt.Sprintf("server %p", node), func() (any, error) { // no campaign's id has a space
		p.mu.RLock()
		has, ok := p.servers[node]
		p.mu.RUnlock()
		if ok && time.Since(has.at) < inspectedFor {
			return has.server, nil
		}
		servers, err := store.Inspect(ctx, node)
		if err != nil {
			return nil, err
		}
		p.noteServer(node, &servers[0], time.Now())
		return &servers[0], nil
	})
	server, _ := v.(*store.Server) // nil with an error
	return server, err
}

// noteServer keeps a reading of a server, and deletes readings that are too old to be used: the client of a node that left the
// cluster is never asked again.
func (p *Producer) noteServer(node redis.UniversalClient, server *store.Server, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.servers, func(_ redis.UniversalClient, has inspected) bool { return at.Sub(has.at) >= inspectedFor })
	p.servers[node] = inspected{server, at}
}

// vanished judges answers that say that the campaign is not there. If it was there and not over a moment ago, Redis
// has lost it. That is no final refusal, so the answers become frozen. gone: nothing says that it was lost here.
func (l *lane) vanished(answers []hongbao.Answer) (gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answers[0].Outcome != hongbao.OutcomeUnknownCampaign {
		l.noteAlive(answers)
		return false
	}
	if !l.lost && time.Since(l.alive) < aliveFor {
		l.lost = true
		l.p.log.Error("ALARM: a campaign that was open has vanished from Redis; its grabs are answered frozen. Let no one "+
			"write to this Redis, and run `hongbao recover`", zap.String("campaign", l.id), zap.String("code", store.LostData))
	}
	for i := range answers {
		if l.lost {
			answers[i].Outcome = hongbao.OutcomeFrozen
		}
	}
	return !l.lost
}

// noteAlive notes whether the campaign is there and not over; under mu.
func (l *lane) noteAlive(answers []hongbao.Answer) {
	for i := range answers {
		switch a := &answers[i]; a.Outcome {
		case hongbao.OutcomeEnded:
			l.alive, l.lost = time.Time{}, false
			return
		case hongbao.OutcomeSoldOut, hongbao.OutcomeLimitReached, hongbao.OutcomeNotStarted, hongbao.OutcomePaused:
			l.alive, l.lost = time.Now(), false
			return
		case hongbao.OutcomeGranted:
			if a.Receipts[0].Time.Equal(a.Time) { // else it is a repeat, which says nothing of the campaign
				l.alive, l.lost = time.Now(), false
				return
			}
		default: // it says nothing
		}
	}
}

// startWatch begins to watch the servers, once.
func (p *Producer) startWatch() {
	p.watching.Do(func() {
		w := &store.Watch{Store: p.store, Alarm: func(code string, err error) {
			p.log.Error("ALARM: Redis", zap.String("code", code), zap.Error(err))
		}}
		p.watches.Go(func() { _ = w.Run(p.ctx) }) // it ends with the context only
	})
}
