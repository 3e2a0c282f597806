package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// errCampaignPaused is wrapped by the error of a grant that waits because its campaign is paused for the sink.
var errCampaignPaused = errors.New("the campaign is paused for this sink")

// pausedCampaigns has the campaigns that are paused for the sink, as the shard last read them.
type pausedCampaigns struct {
	version int64 // of the pauses at the last read (store.SinkControl.Campaigns)
	paused  map[string]error
}

// pauseReason returns the reason why grants of the campaign must wait, or nil if the campaign is not paused.
func (p *pausedCampaigns) pauseReason(campaign string) error { return p.paused[campaign] }

// readCampaigns reads the paused campaigns if their version has changed. If the read fails, the known pauses continue
// to apply.
func (s *shard) readCampaigns(ctx context.Context) {
	version := s.control.Campaigns
	if version == s.campaigns.version {
		return
	}
	list, err := s.group().PausedCampaigns(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("could not read which campaigns are paused for the sink", zap.Error(err))
		}
		return
	}
	before := s.campaigns.paused
	s.campaigns = pausedCampaigns{version: version, paused: map[string]error{}}
	for i := range list {
		c := &list[i]
		switch {
		case c.Paused:
			s.campaigns.paused[c.Campaign] = hongbao.Waitingf("%w, by %q since %s: %q", errCampaignPaused, c.By,
				c.At.UTC().Format(time.RFC3339), c.Why)
		case before[c.Campaign] != nil:
			s.c.letters.forget(c.Campaign) // an operator resumed the campaign: start counting again
			s.log.Info("the campaign was resumed", zap.String("campaign", c.Campaign), zap.String("by", c.By),
				zap.String("why", c.Why))
		}
	}
}

// orPaused returns err, the result of the grant, or the reason to wait if the grant failed and its campaign is paused
// now. The campaign may have been paused by letters of the same batch.
func (s *shard) orPaused(g *hongbao.Grant, err error) error {
	if err == nil || errors.Is(err, errUnanswered) || hongbao.IsWaiting(err) {
		return err
	}
	return cmp.Or(s.campaigns.pauseReason(g.Campaign), err)
}

// parkingOf returns how to park an item that was not delivered for this reason.
func (s *shard) parkingOf(it *item, why error, attempts int64) store.Parking {
	p := store.Parking{ID: it.ID, Attempts: attempts}
	if errors.Is(why, errCampaignPaused) {
		p.Campaign = it.entry.Campaign
	} else {
		p.Level = min(it.Attempt, s.c.topLevel())
		p.Wait = s.c.backoff(p.Level)
	}
	return p
}

// letterCounts counts the dead letters of a worker by campaign and reason, and starts again after a minute.
type letterCounts struct {
	mu    sync.Mutex
	since time.Time
	n     map[letterKind]int64
}

type letterKind struct {
	campaign, reason string
}

// maxLetterKinds limits the memory of the counts. In a minute with more kinds, letters of the further kinds are not
// counted.
const maxLetterKinds = 10_000

// add counts a letter, and returns how many letters of its kind were counted so far.
func (c *letterCounts) add(k letterKind) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.n == nil || now.Sub(c.since) > time.Minute {
		c.since, c.n = now, map[letterKind]int64{}
	}
	if _, known := c.n[k]; !known && len(c.n) >= maxLetterKinds {
		return 0
	}
	c.n[k]++
	return c.n[k]
}

// forget resets the counts of a campaign.
func (c *letterCounts) forget(campaign string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.n, func(k letterKind, _ int64) bool { return k.campaign == campaign })
}

// maxKindReason limits the reason in a letterKind, in bytes.
const maxKindReason = 200

// numbered matches words with a digit, such as numbers and the ids of users and requests.
var numbered = regexp.MustCompile(`[\pL\pN_-]*[0-9][\pL\pN_-]*`)

// kindOf returns the kind of a letter. Reasons that differ only in the user and in words with digits give the same
// kind.
func kindOf(g *hongbao.Grant, why error) letterKind {
	text := why.Error()
	if g.User != "" {
		text = strings.ReplaceAll(text, g.User, "")
	}
	text = numbered.ReplaceAllString(text, "")
	return letterKind{g.Campaign, strings.Clone(text[:min(len(text), maxKindReason)])}
}

// countLetter counts a letter, and pauses its campaign for the sink when Config.PauseLetters letters of one kind came
// within a minute. If the pause fails on a shard, the next letter tries it again. Letters that wait for one decision of
// a person do not count: the campaign's other grants are not affected.
func (s *shard) countLetter(ctx context.Context, g *hongbao.Grant, why error) {
	if s.cfg.PauseLetters == 0 || hongbao.IsUndecided(why) {
		return
	}
	kind := kindOf(g, why)
	n := s.c.letters.add(kind)
	if n < s.cfg.PauseLetters || s.campaigns.pauseReason(g.Campaign) != nil {
		return
	}
	said := fmt.Sprintf("%d dead letters within a minute: %.200s", n, why)
	first, err := s.c.pauseCampaign(context.WithoutCancel(ctx), g.Campaign, said)
	log := s.log.With(zap.String("campaign", g.Campaign), zap.Int64("letters", n), zap.NamedError("reason", why))
	if first || err != nil {
		log.Error("ALARM: too many grants of a campaign become dead letters with one reason: the worker pauses the campaign "+
			"for the sink, and its other grants wait; fix the cause, then run `hongbao sink resume SINK --campaign ID`; an "+
			"error names the shards where the pause failed, and the next dead letter tries it again",
			zap.String("code", "sink_campaign_paused"), zap.Error(err))
	} else {
		log.Info("the campaign is paused for the sink already")
	}
	if err == nil {
		s.c.letters.forget(g.Campaign)
	}
	if c, err := s.group().Control(ctx); err == nil {
		s.control.Campaigns = c.Campaigns
		s.readCampaigns(ctx)
	}
}

// pauseCampaign pauses a campaign for the sink on every shard. first reports whether this call changed the campaign's
// home shard. If several workers pause the campaign at the same time, only one gets true and raises the alarm.
func (c *Consumer) pauseCampaign(ctx context.Context, campaign, why string) (first bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Lease/2) // end well before the lease of the entries does
	defer cancel()
	home := c.store.Home(campaign).Index()
	err = errors.Join(store.Each(c.store.Len(), store.AllAtOnce, func(i int) error {
		k := c.store.Shard(i)
		changed, _, err := k.Group(c.cfg.Group).PauseCampaign(ctx, campaign, stream.Decision{By: stream.ByWorker, Why: why})
		if i == home {
			first = changed
		}
		return err
	})...)
	return first, err
}
