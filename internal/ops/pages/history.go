package pages

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/guard"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/store"
)

const (
	// sampledEvery is the time between two samples of a campaign, and the time limit of each read for one.
	sampledEvery = time.Second
	// sampledFor is how long a sample is kept.
	sampledFor = 10 * time.Minute
)

// history has the samples of the last ten minutes, by campaign.
type history struct {
	mu sync.Mutex
	of map[string][]model.Sample
}

// samples returns the samples of a campaign, the oldest first. The caller must not change them.
func (h *history) samples(campaign string) []model.Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of[campaign]
}

// add adds samples, and forgets those that are too old by then.
func (h *history) add(now time.Time, list map[string]model.Sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, s := range list {
		h.of[id] = append(h.of[id], s)
	}
	for id, all := range h.of {
		old := slices.IndexFunc(all, func(s model.Sample) bool { return now.Sub(s.At) < sampledFor })
		if old < 0 {
			delete(h.of, id)
			continue
		}
		h.of[id] = all[old:]
	}
}

// Run samples the counters of the running campaigns every second until ctx ends, whether a page shows them or not.
func (s *Source) Run(ctx context.Context) {
	var running []ledger.StoredCampaign
	var read time.Time
	for retry.Pause(ctx, sampledEvery) {
		_ = guard.Call(s.Log(), func() error { // it has logged a panic
			if now := time.Now(); now.Sub(read) >= openTime {
				read = now
				asked, cancel := context.WithTimeout(ctx, sampledEvery)
				defer cancel()
				if list, err := s.running(asked); err == nil {
					running = list
				}
			}
			s.sample(ctx, running, time.Now())
			return nil
		})
	}
}

// sample takes a sample of each campaign whose window is open.
func (s *Source) sample(ctx context.Context, list []ledger.StoredCampaign, now time.Time) {
	list = slices.DeleteFunc(slices.Clone(list), func(c ledger.StoredCampaign) bool { return !now.Before(c.Spec.To) })
	samples, _ := store.Ask(len(list), store.AllAtOnce, func(i int) (model.Sample, error) {
		return s.sampleOf(ctx, &list[i], now), nil
	})
	all, down := map[string]model.Sample{}, s.down(ctx, len(list))
	for i := range list {
		samples[i].Down = down
		all[list[i].Spec.ID] = samples[i]
	}
	s.history.add(now, all)
}

// down returns the sinks to which a worker can't deliver now. It reads nothing for no campaigns.
func (s *Source) down(ctx context.Context, campaigns int) []string {
	out := []string{}
	if campaigns == 0 {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, sampledEvery)
	defer cancel()
	sinks := s.Config.Deployment.Sinks
	reports, err := s.Store().Reports(ctx, sinks)
	if err != nil { // the samples say that Redis could not be read
		return out
	}
	for i := range sinks {
		if reports[i].Down != nil {
			out = append(out, sinks[i])
		}
	}
	return out
}

// sampleOf reads the counters of a campaign. It reads Redis first, so that a ledger that hangs delays only the ledger's
// counter.
func (s *Source) sampleOf(ctx context.Context, c *ledger.StoredCampaign, now time.Time) model.Sample {
	live := model.Live{Campaign: campaigns.InLedger(c), LedgerUnread: true}
	inRedis, cancel := context.WithTimeout(ctx, sampledEvery)
	defer cancel()
	campaigns.Of(s.App).AddRedis(inRedis, &live.Campaign)
	if answers, err := campaigns.Of(s.App).Answers(inRedis, live.ID); err == nil {
		live.Answers = &answers
	}
	inLedger, cancel := context.WithTimeout(ctx, sampledEvery)
	defer cancel()
	if stored, found, err := s.Ledger().Campaign(inLedger, live.ID); err == nil && found {
		live.LedgerUnread, live.Settled = false, stored.Grants
	}
	return live.Sample(now)
}
