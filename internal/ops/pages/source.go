package pages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/guard"
	"github.com/hongbao-project/hongbao/internal/base/turn"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/books"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/losses"
	"github.com/hongbao-project/hongbao/internal/store"
)

const (
	// consoleCampaigns is the number of campaigns on a page of the list. The first page also shows the running campaigns
	// among the newest openCampaigns. These are read at most once every openTime; the memory of Redis once every fullTime.
	consoleCampaigns = 100
	openCampaigns    = 2000
	openTime         = 10 * time.Second
	fullTime         = 5 * time.Second
	// consoleLedgerTime bounds a page's first query to the ledger, so that the page can still read Redis if the ledger
	// hangs.
	consoleLedgerTime = 2 * time.Second
)

// Source reads the data of the console's pages. While the ledger is down, the pages show only the data of Redis.
type Source struct {
	*app.App
	shapes  shapes
	history history
	records records

	mu     sync.Mutex
	listed map[string]campaignPage // the first page of each scope, as the ledger last returned it

	openMu turn.Lock               // held while open is read
	open   []ledger.StoredCampaign // campaigns that are in Redis and whose window is open
	openAt time.Time               // when open was read

	fullMu turn.Lock // held while isFull is read
	isFull bool
	fullAt time.Time
}

// campaignPage is one page of the ledger's campaigns.
type campaignPage struct {
	list []ledger.StoredCampaign
	more bool
}

// list returns a page of campaigns, and a note if the ledger can't be read. The first page has all running campaigns.
// While the ledger is down, list returns the last known first page.
func (s *Source) list(ctx context.Context, q model.Search) (page campaignPage, note *model.Sentence) {
	ctx, cancel := context.WithTimeout(ctx, consoleLedgerTime)
	defer cancel()
	page, err := s.ask(ctx, q)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && isFirst(q):
		return s.listed[q.Scope], ledgerAway(err)
	case err != nil:
		return campaignPage{}, ledgerAway(err)
	case isFirst(q):
		s.listed[q.Scope] = page
	}
	return page, nil
}

// isFirst reports whether a search asks for the first page of all campaigns in its scope.
func isFirst(q model.Search) bool { return q.Text == "" && q.Page == 0 }

func (s *Source) ask(ctx context.Context, q model.Search) (page campaignPage, err error) {
	var scope []string
	if q.Scope != "" {
		scope = strings.Split(q.Scope, ",")
	}
	page.list, err = s.Ledger().NewestCampaigns(ctx, ledger.CampaignSearch{Text: q.Text, Scope: scope,
		Skip: q.Page * consoleCampaigns, Limit: consoleCampaigns + 1})
	if err != nil || len(page.list) <= consoleCampaigns {
		return page, err
	}
	page.list, page.more = page.list[:consoleCampaigns], true
	if !isFirst(q) {
		return page, nil
	}
	caller := access.Caller{Campaigns: scope}
	running, err := s.running(ctx)
	for i := range running {
		if !caller.Sees(running[i].Spec.ID) {
			continue
		}
		same := func(c ledger.StoredCampaign) bool { return c.Spec.ID == running[i].Spec.ID }
		if !slices.ContainsFunc(page.list, same) {
			page.list = append(page.list, running[i])
		}
	}
	return page, err
}

// running returns the loaded campaigns whose window is open. It queries Redis at most once every openTime, because
// there may be many campaigns that are not loaded.
func (s *Source) running(ctx context.Context) (list []ledger.StoredCampaign, err error) {
	if err := s.openMu.LockContext(ctx); err != nil {
		return nil, err
	}
	defer s.openMu.Unlock()
	if time.Since(s.openAt) > openTime {
		all, err := s.Ledger().NewestCampaigns(ctx, ledger.CampaignSearch{Unrefunded: true, Limit: openCampaigns})
		if err != nil {
			return nil, err
		}
		s.open, s.openAt = s.loaded(ctx, all), time.Now()
	}
	now := time.Now()
	for i := range s.open {
		if c := &s.open[i].Spec; !now.Before(c.From) && now.Before(c.To) && len(list) < consoleCampaigns {
			list = append(list, s.open[i])
		}
	}
	return list, nil
}

// loaded returns the campaigns that are in Redis and whose window is not over.
func (s *Source) loaded(ctx context.Context, all []ledger.StoredCampaign) (list []ledger.StoredCampaign) {
	now := time.Now()
	all = slices.DeleteFunc(all, func(c ledger.StoredCampaign) bool { return !now.Before(c.Spec.To) })
	errs := store.Each(len(all), store.AllAtOnce, func(i int) error {
		_, err := s.Store().Campaign(all[i].Spec.ID).Window(ctx)
		return err
	})
	for i, err := range errs {
		if !errors.Is(err, store.ErrNotInRedis) {
			list = append(list, all[i])
		}
	}
	return list
}

func ledgerAway(err error) *model.Sentence {
	return new(model.Because(err, "The ledger can't be read, so its data is missing or old."))
}

// Campaigns lists campaigns with their state in Redis and in the ledger. It reads them concurrently: a campaign whose
// server is down delays no other.
func (s *Source) Campaigns(ctx context.Context, q model.Search) (model.Campaigns, error) {
	page, note := s.list(ctx, q)
	list := page.list
	out := model.Campaigns{Search: q, List: make([]model.Campaign, len(list)), More: page.more, Note: note}
	var asking sync.WaitGroup
	for i := range list {
		asking.Go(func() {
			out.List[i] = campaigns.InLedger(&list[i])
			out.List[i].Samples = s.history.samples(list[i].Spec.ID)
			if err := guard.Call(s.Log(), func() error { campaigns.Of(s.App).AddRedis(ctx, &out.List[i]); return nil }); err != nil {
				out.List[i].Status = model.Unread
			}
		})
	}
	asking.Wait()
	now := time.Now()
	waits := func(c *model.Campaign) int {
		if c.Runs(now) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out.List, func(a, b model.Campaign) int {
		return cmp.Or(waits(&a)-waits(&b), b.From.Compare(a.From))
	})
	return out, nil
}

// Campaign reads one campaign.
func (s *Source) Campaign(ctx context.Context, id string) (*model.Live, error) {
	short, cancel := context.WithTimeout(ctx, consoleLedgerTime)
	defer cancel()
	stored, found, err := s.Ledger().Campaign(short, id)
	out := &model.Live{Campaign: model.Campaign{ID: id}}
	switch {
	case err != nil:
		out.LedgerUnread, out.Notes = true, append(out.Notes, *ledgerAway(err))
		if err := s.fromRedis(ctx, out); err != nil {
			return nil, err
		}
	case !found:
		return nil, fmt.Errorf("campaign %s: %w", id, model.ErrNotFound)
	default:
		out.Campaign, out.Hash, out.Split = campaigns.InLedger(&stored), stored.Hash, stored.Spec.Split
		out.Settled, out.Revealed = stored.Grants, !stored.Revealed.IsZero()
		out.LoadBegun, out.Loading, out.Created = !stored.Loading.IsZero(), stored.Loading, stored.Created
	}
	if campaigns.Of(s.App).AddRedis(ctx, &out.Campaign); out.Note != nil {
		out.Notes = append(out.Notes, *out.Note)
	}
	out.Full = out.InRedis && s.full(ctx)
	also := func(note model.Sentence) {
		if !out.Outage { // else the first note has said that Redis does not answer
			out.Notes = append(out.Notes, note)
		}
	}
	if answers, err := campaigns.Of(s.App).Answers(ctx, id); err != nil {
		also(model.Because(err, "The answers to grabs could not be read."))
	} else {
		out.Answers = &answers
	}
	out.Samples = s.history.samples(id)
	if out.Spans, err = s.spans(ctx, &out.Campaign); err != nil && !out.LedgerUnread {
		out.Notes = append(out.Notes, model.Because(err, "Who acted on the campaign could not be read."))
	}
	if last, err := books.Of(s.App).LastAudit(ctx); err != nil {
		out.Audit.Unread = true
		also(model.Because(err, "The last audit could not be read."))
	} else if last.Started.After(stored.Created) { // an audit before the creation says nothing about this campaign
		out.Audit = model.Verdict{Agrees: last.Verdict == string(model.Agrees), Differences: *last.Differences,
			At: last.Started}
	}
	if err := s.addLags(ctx, out); err != nil {
		also(model.Because(err, "The lag of the sinks could not be read."))
	}
	if found {
		s.addShape(ctx, &stored, out)
	}
	return out, nil
}

// Titles returns the names and time zones of campaigns. It leaves out those that the ledger does not have, and all of them
// while it can't be read.
func (s *Source) Titles(ctx context.Context, ids []string) map[string]model.Title {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, consoleLedgerTime)
	defer cancel()
	list, err := s.Ledger().NewestCampaigns(ctx, ledger.CampaignSearch{Scope: ids, Limit: len(ids)})
	if err != nil {
		s.Log().Info("the names of campaigns for a page of the console could not be read", zap.Error(err))
	}
	titles := make(map[string]model.Title, len(list))
	for i := range list {
		c := &list[i].Spec
		titles[c.ID] = model.Title{Name: c.Name, Zone: c.TimeZone}
	}
	return titles
}

// full reports whether a Redis server has used all memory that it may use. It asks at most once every fullTime. If a
// server does not tell, it is not full.
func (s *Source) full(ctx context.Context) bool {
	if s.fullMu.LockContext(ctx) != nil {
		return false
	}
	defer s.fullMu.Unlock()
	if time.Since(s.fullAt) > fullTime {
		servers, err := store.Inspect(ctx, s.Redis())
		s.isFull = err == nil && slices.ContainsFunc(servers, func(r store.Server) bool {
			return r.MaxMemory > 0 && r.Memory >= r.MaxMemory
		})
		s.fullAt = time.Now()
	}
	return s.isFull
}

// fromRedis fills in from Redis the data that the ledger could not provide.
func (s *Source) fromRedis(ctx context.Context, out *model.Live) error {
	w, err := s.Store().Campaign(out.ID).Window(ctx)
	if errors.Is(err, store.ErrNotInRedis) {
		return hongbao.Outagef(hongbao.ClassTransient, "campaign %s is not in Redis, and the ledger can't be read", out.ID)
	}
	out.Name, out.Kind, out.Currency, out.From, out.To = w.Name, hongbao.Kind(w.Kind), w.Currency, w.From, w.To
	return err
}

// addLags adds the lag of each sink on the campaign's shards.
func (s *Source) addLags(ctx context.Context, out *model.Live) error {
	places, err := s.Store().Campaign(out.ID).Places(ctx)
	if err != nil {
		return err
	}
	for _, sink := range s.Config.Deployment.Sinks {
		lag := model.Lag{Sink: sink}
		for _, k := range places {
			g, err := k.Group(sink).Status(ctx)
			if errors.Is(err, store.ErrFrozen) {
				out.Notes = append(out.Notes, model.Because(err, "The campaign's shard %d is frozen.", k.Index()))
				return nil
			}
			if err != nil {
				return fmt.Errorf("lag of sink %s: %w", sink, err)
			}
			lag.Grants, lag.Oldest = lag.Grants+g.Waiting, max(lag.Oldest, g.Oldest)
		}
		out.Lags = append(out.Lags, lag)
	}
	return nil
}

// Sinks returns the state of the sinks.
func (s *Source) Sinks(ctx context.Context) ([]deliveries.SinkStatus, error) {
	status, err := deliveries.Of(s.App).Status(ctx)
	if err != nil {
		return nil, err
	}
	return status.Sinks, nil
}

// Replays returns all replays in Redis, from every process and command.
func (s *Source) Replays(ctx context.Context) ([]deliveries.ReplayState, error) {
	return deliveries.Of(s.App).Replays(ctx)
}

// Undecided counts the withheld packets of a campaign that a person can still grant or release.
func (s *Source) Undecided(ctx context.Context, id string) (int64, error) {
	return losses.Of(s.App).Undecided(ctx, id)
}

// Restored returns the last restores of data that Redis had lost, by shard, newest first.
func (s *Source) Restored(ctx context.Context) ([]model.Restored, error) {
	return losses.Of(s.App).Restored(ctx)
}

// Withheld counts the withheld packets of each campaign about which a person can decide.
func (s *Source) Withheld(ctx context.Context) ([]model.Withheld, error) {
	return losses.Of(s.App).UndecidedByCampaign(ctx)
}
