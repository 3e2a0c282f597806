package serve

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Receipts are the receipts of a user in a campaign.
type Receipts struct {
	Campaign string    `json:"campaign" doc:"The campaign's id."`
	User     string    `json:"user" doc:"Id of the user who has these receipts."`
	Currency string    `json:"currency,omitempty" doc:"Currency of the amounts, ISO 4217. Absent for coupons without a value."`
	Receipts []Receipt `json:"receipts" nullable:"false" doc:"All receipts of the user in this campaign."`
	// Incomplete is true if the receipts come from the ledger, which may not have all of them yet.
	Incomplete bool `json:"incomplete,omitempty" doc:"True if some receipts may be missing for now: send the same request later."`
}

// ownReceipts answers GET /v1/campaigns/{id}/grabs/me.
func (s *Server) ownReceipts(w http.ResponseWriter, r *http.Request, who *caller) error {
	id, err := web.CampaignOf(r)
	if err != nil {
		return err
	}
	held, err := s.deps.Reader.Receipts(r.Context(), id, who.user)
	if err != nil {
		return unread(err)
	}
	web.WriteJSON(w, http.StatusOK, receiptsOf(&held))
	return nil
}

func receiptsOf(held *model.Receipts) *Receipts {
	return &Receipts{held.Campaign, held.User, held.Currency, answered(held.Receipts), held.Incomplete}
}

// CampaignAnswer is the public state of a campaign.
type CampaignAnswer struct {
	Campaign string    `json:"campaign" doc:"The campaign's id."`
	Name     string    `json:"name" doc:"The campaign's name for people."`
	Kind     string    `json:"kind" enum:"red_packet,coupon" doc:"What the campaign's packets are."`
	Currency string    `json:"currency,omitempty" doc:"Currency of the amounts, ISO 4217. Absent for coupons without a value."`
	Status   string    `json:"status" enum:"not_started,open,sold_out,paused,frozen,ended" doc:"State of the campaign that a grab would find now."`
	Starts   time.Time `json:"starts" doc:"Time when grabs begin."`
	Ends     time.Time `json:"ends" doc:"Time when grabs end."`
	Time     time.Time `json:"time" doc:"Present time by the clock that decides grabs."`
	// StartsIn and EndsIn are 0 if the time has passed.
	StartsIn int64 `json:"starts_in_ms" doc:"Milliseconds until 'starts'; 0 if that time has passed. With the status 'not_started' the campaign is then still being loaded: ask again every second."`
	EndsIn   int64 `json:"ends_in_ms" doc:"Milliseconds until grabs end; 0 if they have ended."`
}

// campaign answers GET /v1/campaigns/{id}.
func (s *Server) campaign(w http.ResponseWriter, r *http.Request) error {
	id, err := web.CampaignOf(r)
	if err == nil {
		err = noQuery(r)
	}
	if err != nil {
		return err
	}
	window, err := s.campaignCache.get(r.Context(), id)
	if err != nil {
		return unread(err)
	}
	now := window.Now.Truncate(time.Millisecond) // rounded as in the answer, so that the countdown agrees with it
	web.WriteJSON(w, http.StatusOK, CampaignAnswer{
		Campaign: id, Name: window.Name, Kind: window.Kind, Currency: window.Currency, Status: window.Status(),
		Starts: window.From.UTC(), Ends: window.To.UTC(), Time: now.UTC(),
		StartsIn: max(0, window.From.Sub(now).Milliseconds()),
		EndsIn:   max(0, window.To.Sub(now).Milliseconds()),
	})
	return nil
}

// unread returns the answer for a failed read from Redis or the ledger.
func unread(err error) error {
	switch {
	case errors.Is(err, store.ErrFrozen), errors.Is(err, store.ErrLost):
		return &web.Refusal{Code: "frozen", Detail: "send the same request again", Wait: retryAfter, Cause: err}
	case errors.Is(err, store.ErrNotDurable):
		return &web.Refusal{Code: "not_durable", Detail: "send the same request again", Wait: retryAfter, Cause: err}
	case errors.Is(err, ledger.ErrArchived):
		return &web.Refusal{Code: "archived", Detail: "ask the operator of this service", Cause: err}
	case hongbao.ClassOf(err) == hongbao.ClassPermanent && errors.Is(err, store.ErrNotInRedis):
		return &web.Refusal{Code: "unknown_campaign", Detail: "check the id"}
	}
	return &web.Refusal{Code: "unavailable", Detail: "send the same request again", Wait: retryAfter, Cause: err}
}

// Limits of the cache of campaigns.
const (
	windowAge  = time.Second
	maxWindows = 10_000
	// maxAsking is the maximum number of concurrent reads of known campaigns, and also of unknown ids. Without this
	// limit, clients that invent ids could use up the Redis connections.
	maxAsking = 8
	// lateAge is how old a cached state may be while all concurrent reads are in use.
	lateAge = 5 * time.Second
	// foundAge is how long the server remembers that a campaign exists.
	foundAge = time.Minute
)

var errAsking = errors.New("too many campaigns are being read")

// campaignCache caches the public state of campaigns for windowAge. So reads of one campaign by many users cost Redis
// almost nothing.
type campaignCache struct {
	reader Reader
	asking singleflight.Group
	room   chan struct{} // limits concurrent reads of known campaigns
	new    chan struct{} // limits concurrent reads of unknown ids

	mu      sync.Mutex
	known   map[string]seen
	cleaned time.Time // when old entries were last removed
}

// seen is a cached read and its time. For a campaign that does not exist, it has the error.
type seen struct {
	window model.PublicView
	err    error
	at     time.Time
}

// found reports whether the campaign exists.
func (s *seen) found() bool { return s.err == nil && !s.at.IsZero() }

// lasts returns how long the read stays in the cache.
func (s *seen) lasts() time.Duration {
	if s.found() {
		return foundAge
	}
	return windowAge
}

func newWindows(reader Reader) *campaignCache {
	return &campaignCache{reader: reader, known: map[string]seen{}, room: make(chan struct{}, maxAsking),
		new: make(chan struct{}, maxAsking)}
}

// get returns the public state of a campaign, with the clock moved to the present.
func (v *campaignCache) get(ctx context.Context, campaign string) (model.PublicView, error) {
	has, fresh := v.remembered(campaign)
	if !fresh {
		var err error
		if has, err = v.read(ctx, campaign); err != nil {
			return model.PublicView{}, err
		}
	}
	has.window.Now = has.window.Now.Add(time.Since(has.at))
	return has.window, has.err
}

// read reads a campaign. Concurrent callers share one read. It returns an error only if ctx has ended.
func (v *campaignCache) read(ctx context.Context, campaign string) (has seen, err error) {
	select {
	case r := <-v.asking.DoChan(campaign, func() (any, error) {
		return v.ask(context.WithoutCancel(ctx), campaign), nil
	}):
		has, _ = r.Val.(seen)
		return has, nil
	case <-ctx.Done():
		return has, ctx.Err()
	}
}

// remembered returns the cached read of a campaign, and reports whether it is fresh.
func (v *campaignCache) remembered(campaign string) (has seen, fresh bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	has, ok := v.known[campaign]
	return has, ok && time.Since(has.at) <= windowAge
}

func (v *campaignCache) ask(ctx context.Context, campaign string) seen {
	has, _ := v.remembered(campaign)
	room := v.new
	if has.found() {
		room = v.room
	}
	select {
	case room <- struct{}{}:
		defer func() { <-room }()
	default:
		if has.found() && time.Since(has.at) <= lateAge {
			return has
		}
		return seen{err: errAsking}
	}
	has = seen{}
	has.window, has.err = v.reader.Window(ctx, campaign)
	has.at = time.Now()
	if has.err != nil && !errors.Is(has.err, store.ErrNotInRedis) {
		return has
	}
	v.remember(campaign, has)
	return has
}

// remember adds a read to the cache, and removes old entries if the cache is full. An unknown id never
// displaces a valid entry.
func (v *campaignCache) remember(campaign string, has seen) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := time.Now(); len(v.known) >= maxWindows && (has.found() || now.Sub(v.cleaned) > windowAge) {
		v.cleaned = now
		maps.DeleteFunc(v.known, func(_ string, old seen) bool {
			return has.found() && !old.found() || time.Since(old.at) > old.lasts()
		})
	}
	if _, known := v.known[campaign]; known || len(v.known) < maxWindows {
		v.known[strings.Clone(campaign)] = has // clone: campaign is a substring of the request's header
	}
}
