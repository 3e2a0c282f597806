package console

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
)

// Source reads what the pages show. Its methods may be called at once.
type Source interface {
	// Campaigns are a page of those that were found, those that run now first.
	Campaigns(ctx context.Context, s model.Search) (model.Campaigns, error)
	// Campaign gives one; ErrNotFound if there is none.
	Campaign(ctx context.Context, id string) (*model.Live, error)
	Sinks(ctx context.Context) ([]app.SinkStatus, error)
	// Letters gives a page of dead letters after an id, and where the next begins.
	Letters(ctx context.Context, f deadletter.Filter, after string) (page []deadletter.Letter, next string, err error)
	// Letter gives one; ErrNotFound if there is none.
	Letter(ctx context.Context, id string) (deadletter.Letter, error)
	// Quarantine gives a page of grants in quarantine after a number; with all, the decided ones too.
	Quarantine(ctx context.Context, after int64, all bool) ([]ledger.Quarantined, error)
	// Quarantined gives one; ErrNotFound if there is none.
	Quarantined(ctx context.Context, id int64) (ledger.Quarantined, error)
	// Trail follows the grants of a user, or of a packet, through all places.
	Trail(ctx context.Context, q model.Question) (model.Trails, error)
	// Replays are those that were begun by anybody, as far as Redis knows them.
	Replays(ctx context.Context) ([]app.ReplayState, error)
	// Restored lists the last restores of what Redis had lost, by shard, the newest first.
	Restored(ctx context.Context) ([]recovery.Restored, error)
	// Journal gives a page of who did what, the newest first.
	Journal(ctx context.Context, q access.JournalQuery) (access.JournalPage, error)
}

// Actions change things. Every one is recorded with the actor that ctx has: access.As.
type Actions interface {
	// Denied records that the actor was refused what he may not do.
	Denied(ctx context.Context, a access.Action, campaign string, why error)
	// CheckCampaign tells whether a campaign is there already, and refuses one that can't be created.
	CheckCampaign(ctx context.Context, spec hongbao.Campaign) (there bool, err error)
	// CreateCampaign funds a campaign; the same again changes nothing, and is not new. StoreCodes draws the codes of one
	// of coupons.
	CreateCampaign(ctx context.Context, who *access.Caller, spec hongbao.Campaign) (isNew bool, err error)
	StoreCodes(ctx context.Context, spec hongbao.Campaign) error
	// LoadCampaign loads a campaign into Redis, or goes on with that.
	LoadCampaign(ctx context.Context, who *access.Caller, id string) error
	// TopUp adds packets to a campaign.
	TopUp(ctx context.Context, who *access.Caller, o app.TopUpForm) (text string, err error)
	// Replay delivers grants again. Source.Replays tells how far it is.
	Replay(ctx context.Context, who *access.Caller, o app.ReplayForm) (text string, err error)
	Audit(ctx context.Context, who *access.Caller) (*audit.Report, error)
}

// maxSearched and maxPage bound a search.
const maxSearched, maxPage = 100, 10_000

// parseSearch reads what Path writes; false if it is another page's.
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

// Faults are what somebody breaks on purpose, on a development server. Everywhere else there are none: neither the page
// nor its routes.
type Faults interface {
	// Buttons are what can be broken now.
	Buttons() []model.Fault
	// Cause breaks something; ErrNotFound for what it does not know.
	Cause(ctx context.Context, fault string) error
	// Story tells what happened, the newest first.
	Story() []model.Told
}
