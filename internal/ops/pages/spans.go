package pages

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/losses"
)

// recordAge is how long a server uses what it has read of the journal and of the restores, and maxRecords of how many
// campaigns it keeps that.
const recordAge, maxRecords = 5 * time.Second, 100

// actions maps the actions in the journal to the kinds of spans.
var actions = map[access.Action]model.SpanKind{access.LoadCampaign: model.SpanLoad, access.TopUpCampaign: model.SpanTopUp,
	access.PauseCampaign: model.SpanPaused, access.CloseCampaign: model.SpanClose, access.CancelCampaign: model.SpanCancel,
	access.Refund: model.SpanRefund, access.RevealCampaign: model.SpanReveal}

// records caches what the ledger has recorded about campaigns. It is safe for concurrent use.
type records struct {
	mu   sync.Mutex
	held map[string]record
}

// record is what the ledger has recorded about a campaign.
type record struct {
	entries  []access.Entry // of the journal, the oldest first
	restored []model.Restored
	read     time.Time
}

// record returns what the ledger has recorded about a campaign. While the ledger is down, it returns what it has read last.
func (s *Source) record(ctx context.Context, campaign string) (record, error) {
	s.records.mu.Lock()
	has := s.records.held[campaign]
	s.records.mu.Unlock()
	if time.Since(has.read) < recordAge {
		return has, nil
	}
	ctx, cancel := context.WithTimeout(ctx, consoleLedgerTime)
	defer cancel()
	page, err := s.Access().Journal(ctx, access.JournalQuery{Campaign: campaign, Limit: access.MaxEntries})
	if err != nil {
		return has, fmt.Errorf("read the journal of campaign %s: %w", campaign, err)
	}
	slices.Reverse(page.Entries)
	now := record{page.Entries, has.restored, time.Now()}
	if restored, err := losses.Of(s.App).Restored(ctx); err == nil { // it also reads Redis
		now.restored = restored
	}
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	if s.records.held == nil || len(s.records.held) >= maxRecords {
		s.records.held = map[string]record{}
	}
	s.records.held[campaign] = now
	return now, nil
}

// History returns the course of a campaign, or ErrNoCampaign. While the ledger is down, it returns what this server knows.
func (s *Source) History(ctx context.Context, id string) (out model.History, err error) {
	samples := s.history.samples(id)
	if len(samples) == 0 {
		short, cancel := context.WithTimeout(ctx, consoleLedgerTime)
		defer cancel()
		_, found, err := s.Ledger().Campaign(short, id)
		if err == nil && !found {
			err = ledger.ErrNoCampaign
		}
		if err != nil {
			return out, fmt.Errorf("campaign %s: %w", id, err)
		}
	}
	c := model.Campaign{ID: id, Samples: samples}
	campaigns.Of(s.App).AddRedis(ctx, &c)
	spans, err := s.spans(ctx, &c)
	return model.History{Campaign: id, Samples: append([]model.Sample{}, samples...), Spans: append([]model.Span{}, spans...),
		Recorded: err == nil}, nil
}

// spans returns what changed or disturbed a campaign, the oldest first. If the ledger can't be read, it returns the error
// and what is known without the ledger.
func (s *Source) spans(ctx context.Context, c *model.Campaign) ([]model.Span, error) {
	recorded, err := s.record(ctx, c.ID)
	list := agreed(acted(recorded.entries), c)
	seen := observed(c.Samples)
	if places, unread := s.Store().Campaign(c.ID).Places(ctx); unread == nil {
		for _, k := range places {
			seen = append(seen, opened(recorded.restored, k.Index(), seen)...)
		}
	}
	list = append(list, seen...)
	slices.SortStableFunc(list, func(a, b model.Span) int { return a.From.Compare(b.From) })
	return list, err
}

// acted returns the spans of the actions in the journal. A pause lasts until it is resumed, or until the campaign is closed.
func acted(entries []access.Entry) (list []model.Span) {
	pause := -1
	for i := range entries {
		e := &entries[i]
		kind := actions[e.Action]
		if e.Outcome != access.OutcomeDone || kind == "" && e.Action != access.ResumeCampaign {
			continue
		}
		if pause >= 0 && (e.Action == access.ResumeCampaign || kind == model.SpanClose) {
			list[pause].To, pause = new(e.Time), -1
		}
		if kind == "" || kind == model.SpanPaused && pause >= 0 {
			continue
		}
		span := model.Span{Kind: kind, From: e.Time, To: new(e.Time), By: optional.Text(e.Who)}
		if why, ok := e.Details["why"].(string); ok {
			span.Why = optional.Text(why)
		}
		if kind == model.SpanPaused {
			span.To, pause = nil, len(list)
		}
		list = append(list, span)
	}
	return list
}

// agreed returns the actions with the present pause of a campaign. While the ledger is down, the journal lacks the newest
// pauses and their ends.
func agreed(list []model.Span, c *model.Campaign) []model.Span {
	if !c.InRedis {
		return list
	}
	is := func(s model.Span) bool {
		return s.To == nil && c.Paused != nil && string(s.By) == c.Paused.By && string(s.Why) == c.Paused.Why
	}
	list = slices.DeleteFunc(list, func(s model.Span) bool { return s.To == nil && !is(s) })
	if p := c.Paused; p != nil && !slices.ContainsFunc(list, is) {
		list = append(list, model.Span{Kind: model.SpanPaused, From: p.At, By: optional.Text(p.By), Why: optional.Text(p.Why)})
	}
	return list
}

// observed returns what the samples say. A state lasts until the first sample without it.
func observed(samples []model.Sample) (list []model.Span) {
	type state struct {
		kind model.SpanKind
		sink string
	}
	open := map[state]int{} // the index in list
	for i := range samples {
		x := &samples[i]
		now := map[state]bool{{kind: model.SpanFrozen}: x.Frozen, {kind: model.SpanRedisUnread}: x.Granted == nil && !x.Frozen,
			{kind: model.SpanLedgerUnread}: x.Settled == nil}
		for _, sink := range x.Down {
			now[state{model.SpanSinkDown, sink}] = true
		}
		for s, at := range open {
			if !now[s] {
				list[at].To = new(x.At)
				delete(open, s)
			}
		}
		for s, is := range now {
			if _, lasts := open[s]; is && !lasts {
				open[s] = len(list)
				list = append(list, model.Span{Kind: s.kind, From: x.At, Sink: optional.Text(s.sink)})
			}
		}
	}
	return list
}

// opened returns when a shard was frozen, by the notes of its restores, without what was observed.
func opened(restored []model.Restored, shard int, seen []model.Span) (list []model.Span) {
	for i := range restored {
		r := &restored[i]
		if r.Shard != shard || !r.Opened() {
			continue
		}
		from := r.At.Add(-r.Took.Total())
		overlaps := func(s model.Span) bool {
			return s.Kind == model.SpanFrozen && !s.From.After(r.At) && (s.To == nil || !s.To.Before(from))
		}
		if !slices.ContainsFunc(seen, overlaps) {
			list = append(list, model.Span{Kind: model.SpanFrozen, From: from, To: new(r.At)})
		}
	}
	return list
}
