package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/base/turn"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/internal/store"
)

// OpenTopic connects to the deployment's topic for reading, and checks what reading needs. It does not need Redis. The
// caller closes the Log.
func (a *App) OpenTopic(ctx context.Context) (*publish.Log, error) {
	l, pc, err := a.topicLog()
	if err != nil {
		return nil, err
	}
	return l, a.checkTopic(ctx, l, pc.Topic, l.CheckReading)
}

// publishable returns an error unless workers could publish to the deployment's topic.
func (a *App) publishable(ctx context.Context) error {
	l, pc, err := a.topicLog()
	if err == nil {
		err = a.checkTopic(ctx, l, pc.Topic, l.Check)
	}
	if err == nil {
		l.Close()
	}
	return err
}

func (a *App) topicLog() (*publish.Log, publish.Config, error) {
	pc := a.PublisherConfig()
	pc.Create = false
	l, err := publish.NewLog(pc)
	return l, pc, err
}

// PublisherConfig returns the publisher's configuration, except for Worker.
func (a *App) PublisherConfig() publish.Config {
	pc := a.Config.PublisherConfig()
	pc.Observe, pc.Founding = a.hooks.Kafka, a.founded.known()
	pc.AnyFounding = slices.Contains(a.Config.Unsafe.Allow, configs.UnsafeKafkaFounding)
	return pc
}

// publisher returns the publisher of sink kafka. It needs Redis.
func (a *App) publisher(ctx context.Context) (*publish.Publisher, error) {
	claims := a.Config.ClaimsConfig()
	claims.Owner = a.worker
	return a.PublisherTo(ctx, a.Config.Publisher.Topic, claims, a.store)
}

// PublisherTo returns a publisher to a topic, with its own claims. If cc has no Owner, PublisherTo sets a unique one,
// because several calls may publish concurrently. The caller closes the publisher.
func (a *App) PublisherTo(ctx context.Context, topic string, cc store.ClaimsConfig,
	entries publish.Entries) (*publish.Publisher, error) {
	cc.Owner = cmp.Or(cc.Owner, store.WorkerName(a.Config.Seams.Process))
	claims, err := a.store.Claims(cc)
	if err != nil {
		return nil, err
	}
	pc := a.PublisherConfig()
	pc.Worker, pc.Topic, pc.Campaigns = cc.Owner, topic, &campaignSource{app: a}
	pc.Create = pc.Create && topic != a.Config.Publisher.Topic
	if a.hasLedger() == nil {
		// A ledger that is down must not delay sink kafka, so the batch is then sent without the epoch. That is a risk only
		// with a worker that still uses an old primary, and whose Kafka session began after the fence. It could send grants
		// that were restored elsewhere.
		pc.Epoch = func(ctx context.Context, shard int) (int64, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			state, _ := a.ledger.Shard(ctx, shard)
			return state.Epoch, nil
		}
	}
	p, err := publish.New(pc, claims, entries)
	if err != nil {
		return nil, err
	}
	return p, a.checkTopic(ctx, p.Log, topic, p.Check)
}

// checkTopic checks the settings of a topic, and closes l if they are wrong. The context bounds the check.
func (a *App) checkTopic(ctx context.Context, l *publish.Log, topic string,
	check func(context.Context) (publish.CheckReport, error)) error {
	report, err := check(ctx)
	if err != nil {
		l.Close()
		return withHint("kafka.brokers", fmt.Errorf("kafka at %s: %w", strings.Join(a.Config.Publisher.Brokers, ","), err))
	}
	for _, w := range append(report.Warnings, report.Skipped...) {
		a.log.Warn("topic", zap.String("topic", topic), zap.String("about", w))
	}
	return nil
}

// campaignSource provides the publisher with currencies and codes. It reads a campaign from Redis, or from the ledger
// after the campaign has left Redis or Redis has lost it.
type campaignSource struct {
	app *App

	mu    turn.Lock                   // held while a campaign is read
	terms map[string]cloudevent.Facts // of the campaigns that were found so far
}

// maxTerms bounds how many terms campaignSource caches.
const maxTerms = 10_000

// Terms returns a campaign's currency, and whether it has codes. It returns false if neither Redis nor the ledger has
// the campaign. In Redis it reads the given shard.
func (s *campaignSource) Terms(ctx context.Context, shard int, id string) (terms cloudevent.Facts, found bool, err error) {
	if err := s.mu.LockContext(ctx); err != nil {
		return terms, false, hongbao.Outagef(hongbao.ClassTransient, "look up campaign %s: %w", id, err)
	}
	defer s.mu.Unlock()
	if terms, found = s.terms[id]; found {
		return terms, true, nil
	}
	terms.Currency, terms.Codes, err = s.app.store.Shard(shard).Place(id).Terms(ctx)
	if errors.Is(err, store.ErrNotInRedis) {
		var c ledger.StoredCampaign
		if c, found, err = s.app.ledger.Campaign(ctx, id); err != nil || !found {
			return terms, false, err
		}
		terms = cloudevent.Facts{Currency: c.Spec.Currency, Codes: c.Spec.Codes != nil}
	} else if err != nil {
		return terms, false, err
	}
	if len(s.terms) >= maxTerms || s.terms == nil {
		s.terms = map[string]cloudevent.Facts{}
	}
	s.terms[id] = terms
	return terms, true, nil
}

// Codes returns the codes of packets of a shard. A code is "" if neither Redis nor the ledger has it.
func (s *campaignSource) Codes(ctx context.Context, shard int, id string, packets []int64) ([]string, error) {
	codes, err := s.app.store.Shard(shard).Place(id).Codes(ctx, packets)
	if err != nil || !slices.Contains(codes, "") {
		return codes, err
	}
	return s.app.ledger.CodesOf(ctx, id, packets)
}
