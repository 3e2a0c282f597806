package console

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// Source reads the data of the pages. It must be safe for concurrent use.
type Source interface {
	// Campaigns returns one page of the search result, with running campaigns first.
	Campaigns(ctx context.Context, s model.Search) (model.Campaigns, error)
	// Campaign returns a campaign, or ErrNotFound.
	Campaign(ctx context.Context, id string) (*model.Live, error)
	// Titles returns the names and time zones of campaigns by their ids, without those that are not known.
	Titles(ctx context.Context, ids []string) map[string]model.Title
	// Undecided counts the withheld packets of a campaign that a person can still grant or release.
	Undecided(ctx context.Context, id string) (int64, error)
	Sinks(ctx context.Context) ([]deliveries.SinkStatus, error)
	// Letters returns the page of dead letters that follows the id after, and the id after which the next page
	// begins.
	Letters(ctx context.Context, f model.LetterFilter, after string) (page []model.Letter, next string, err error)
	// LetterGroups groups the dead letters that a filter selects, as many as it can read.
	LetterGroups(ctx context.Context, f model.LetterFilter) (model.LetterGroups, error)
	// Letter returns a dead letter, or ErrNotFound.
	Letter(ctx context.Context, id string) (model.Letter, error)
	// Quarantine returns the page of grants in quarantine that follows the number after. If all is set, it
	// includes decided grants.
	Quarantine(ctx context.Context, after int64, all bool) ([]model.Quarantined, error)
	// Quarantined returns a grant in quarantine, or ErrNotFound.
	Quarantined(ctx context.Context, id int64) (model.Quarantined, error)
	// Trail finds the grants of a user or of a packet in all stores.
	Trail(ctx context.Context, q model.Question) (model.Trails, error)
	// Replays returns all replays in Redis, from every process and command.
	Replays(ctx context.Context) ([]deliveries.ReplayState, error)
	// Restored returns the last restores of data that Redis had lost, by shard, newest first.
	Restored(ctx context.Context) ([]model.Restored, error)
	// Withheld counts the withheld packets of each campaign about which a person can decide.
	Withheld(ctx context.Context) ([]model.Withheld, error)
	// Journal returns one page of the journal, newest entries first.
	Journal(ctx context.Context, q access.JournalQuery) (access.JournalPage, error)
}

// Actions change things. Every change is recorded in the journal with the actor that access.As put into ctx.
type Actions interface {
	// Denied records in the journal that an action was denied to the actor.
	Denied(ctx context.Context, a access.Action, campaign string, why error)
	// LoggedIn records in the journal a log-in or a log-out of the actor; why is the reason of a refusal.
	LoggedIn(ctx context.Context, a access.Action, why error)
	// CheckCampaign returns what is known about a campaign before its creation. It returns an error if the campaign
	// can't be created.
	CheckCampaign(ctx context.Context, spec hongbao.Campaign) (campaigns.Check, error)
}

// Operations are the operations of a caller. CreateCampaign comes in two steps, because the second one runs as
// a job.
type Operations interface {
	ops.Operations
	// FundCampaign is the first step of CreateCampaign; StoreCodes is the second.
	FundCampaign(ctx context.Context, in ops.CampaignCreate) (*campaigns.Created, error)
	StoreCodes(ctx context.Context, in ops.CampaignCreate) error
	// ShareCampaign makes a link that shows a campaign. Links and EndLink list and end the links to a campaign.
	ShareCampaign(ctx context.Context, in ops.Share) (text string, link access.Session, err error)
	Links(ctx context.Context, campaign string) ([]access.Session, error)
	EndLink(ctx context.Context, campaign, id string) error
}

// maxSearched is the maximum length of a search text, and maxPage the maximum page number.
const maxSearched, maxPage = 100, 10_000

// parseSearch parses a path that Search.Path wrote. It returns false for the path of another page.
func parseSearch(path string) (s model.Search, ok bool) {
	u, err := url.Parse(path)
	if err != nil || u.Path != "/" {
		return s, false
	}
	s.Text = strings.TrimSpace(u.Query().Get("q"))
	if page := u.Query().Get("page"); page != "" {
		if s.Page, err = strconv.Atoi(page); err != nil {
			return s, false
		}
		s.Page--
	}
	return s, len(s.Text) <= maxSearched && utf8.ValidString(s.Text) && s.Page >= 0 && s.Page < maxPage
}

// Faults causes faults on a development server. Other servers have no page of faults.
type Faults interface {
	// Buttons returns the faults that can be caused in the present state.
	Buttons() []model.Fault
	// Cause causes a fault. It returns ErrNotFound for an unknown name.
	Cause(ctx context.Context, fault string) error
	// Log returns the faults that were caused, newest first.
	Log() []model.FaultNote
}
