package producer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

const (
	// inspectedFor is how long the settings that were read from a server are valid.
	inspectedFor = time.Second
	// aliveFor is how long after a campaign was last seen open its absence counts as a loss. A close, a refund and the
	// removal from Redis together take longer.
	aliveFor = 10 * time.Minute
	// maxReceipts limits the receipts that one call reads, so that the script blocks Redis for at most 2 ms.
	maxReceipts = 4096
)

// info has the terms of a campaign, and the names of the facts that a grab must have.
type info struct {
	*store.GrabTerms
	facts []string
}

// most limits the grabs of one call.
func (i *info) most() int {
	return int(min(store.MaxGrabs, max(1, maxReceipts/i.PerUser)))
}

// inspected has the settings that were read from a server at a time.
type inspected struct {
	server *store.Server
	at     time.Time
}

// first makes the first look at the campaign on its home. It retries while Redis is down. No grab is sent before it
// succeeds, so its errors say that nothing was decided.
func (l *lane) first(ctx context.Context) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.p.cfg.CallTimeout)
	defer cancel()
	err = whileDown(ctx, func() error {
		if found, err = l.readCampaign(ctx); errors.Is(err, store.ErrFrozen) { // the caller retries
			return hongbao.Errorf(hongbao.ClassTransient, "nothing was decided: %w", err)
		}
		return err
	})
	if hongbao.IsOutage(err) {
		return false, hongbao.Outagef(hongbao.ClassTransient, "nothing was decided: %w", err)
	}
	return found, err
}

// readCampaign reads the campaign's terms. It returns an error if the shard belongs to another deployment or is not open
// on this server, or if the server can't provide the durability class. Otherwise found says whether the campaign exists.
func (l *lane) readCampaign(ctx context.Context) (found bool, err error) {
	terms, err := l.shard.GrabTerms(ctx)
	if err != nil {
		return false, err
	}
	server, err := l.inspect(ctx)
	if err != nil || terms == nil {
		return false, err
	}
	if terms.Durability != hongbao.DurabilityFast {
		if err := server.CheckNow(terms.Durability); err != nil {
			return false, fmt.Errorf("campaign %s: %w", l.id, err)
		}
	}
	if terms.Durability == hongbao.DurabilityReplica { // for the time until the watch reports the replicas
		if err := l.shard.RaiseReplicas(ctx, server.Replicas); err != nil {
			return false, fmt.Errorf("campaign %s: %w", l.id, err)
		}
	}
	if slow := server.Slow(terms.Durability); slow != nil {
		l.p.log.Warn("grabs of this campaign are slow", zap.String("campaign", l.id), zap.String("code", "fsync_slow"),
			zap.Error(slow))
	}
	i := &info{GrabTerms: terms}
	if terms.FactNames != "" {
		i.facts = strings.Split(terms.FactNames, ",")
	}
	l.seen.Store(i)
	return true, nil
}

// inspect returns the settings of the server that has the place now. A replica gives an outage, as during a failover,
// because it may lack the latest campaigns and grants.
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
			"campaign %s: the server is a replica; the producer's client must connect to the primary", l.id)
	}
	return server, nil
}

// inspect reads the settings of a server, at most once per inspectedFor for all campaigns.
func (p *Producer) inspect(ctx context.Context, node redis.UniversalClient) (*store.Server, error) {
	v, err, _ := p.looks.Do(fmt.Sprintf("server %p", node), func() (any, error) { // no campaign id has a space
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

// noteServer stores the settings of a server, and deletes outdated ones. Otherwise clients of nodes that left the
// cluster would stay in the map forever.
func (p *Producer) noteServer(node redis.UniversalClient, server *store.Server, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.servers, func(_ redis.UniversalClient, has inspected) bool { return at.Sub(has.at) >= inspectedFor })
	p.servers[node] = inspected{server, at}
}

// vanished handles the answers if they say that the campaign does not exist. If it was seen open within aliveFor,
// Redis has lost it. The answers then become frozen, because unknown_campaign would be a final refusal. gone is true
// if the campaign is missing without a sign of a loss.
func (l *lane) vanished(answers []hongbao.Answer) (gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answers[0].Outcome != hongbao.OutcomeUnknownCampaign {
		l.noteAlive(answers)
		return false
	}
	if !l.lost && time.Since(l.alive) < aliveFor {
		l.lost = true
		l.p.log.Error("ALARM: a campaign that was open has vanished from Redis; its grabs are answered frozen. Stop "+
			"all writes to this Redis, and run `hongbao recover`", zap.String("campaign", l.id),
			zap.String("code", store.LostData))
	}
	for i := range answers {
		if l.lost {
			answers[i].Outcome = hongbao.OutcomeFrozen
		}
	}
	return !l.lost
}

// noteAlive records whether the answers show that the campaign exists and has not ended. The caller holds mu.
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
			if a.Receipts[0].Time.Equal(a.Time) { // a repeated grab does not prove that the campaign still exists
				l.alive, l.lost = time.Now(), false
				return
			}
		default: // it says nothing
		}
	}
}

// Watch starts the checks of the Redis servers. Otherwise they start with the first grab. A process that also shows users
// their receipts in another way needs them before. Further calls do nothing.
func (p *Producer) Watch() {
	p.watching.Do(func() {
		w := &store.Watch{Store: p.store, Alarm: func(code string, err error) {
			p.log.Error("ALARM: Redis", zap.String("code", code), zap.Error(err))
		}}
		p.watches.Go(func() { _ = w.Run(p.ctx) }) // Run returns only when ctx ends
	})
}
