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
	"github.com/hongbao-project/hongbao/internal/ops"
)

// Source reads the data of the pages. It must be safe for concurrent use.
type Source interface {
	// Campaigns returns a page of the found campaigns, running ones first.
	Campaigns(ctx context.Context, s model.Search) (model.Campaigns, error)
	// Campaign returns a campaign; ErrNotFound if there is none.
	Campaign(ctx context.Context, id string) (*model.Live, error)
	Sinks(ctx context.Context) ([]app.SinkStatus, error)
	// Letters returns a page of dead letters after an id, and where the next page begins.
	Letters(ctx context.Context, f deadletter.Filter, after string) (page []deadletter.Letter, next string, err error)
	// Letter returns a letter; ErrNotFound if there is none.
	Letter(ctx context.Context, id string) (deadletter.Letter, error)
	// Quarantine returns a page of grants in quarantine after a number; with all, also the decided ones.
	Quarantine(ctx context.Context, after int64, all bool) ([]ledger.Quarantined, error)
	// Quarantined returns a grant in quarantine; ErrNotFound if there is none.
	Quarantined(ctx context.Context, id int64) (ledger.Quarantined, error)
	// Trail follows the grants of a user, or of a packet, through all stores.
	Trail(ctx context.Context, q model.Question) (model.Trails, error)
	// Replays returns every replay that Redis knows, whoever began it.
	Replays(ctx context.Context) ([]app.ReplayState, error)
	// Restored returns the last restores of data that Redis had lost, by shard, the newest first.
	Restored(ctx context.Context) ([]recovery.Restored, error)
	// Journal returns a page of the journal, the newest entries first.
	Journal(ctx context.Context, q access.JournalQuery) (access.JournalPage, error)
}

// Actions change things. Every change is recorded with the actor in ctx: access.As.
type Actions interface {
	// Denied records that the actor was refused an action that they may not do.
	Denied(ctx context.Context, a access.Action, campaign string, why error)
	// CheckCampaign reports whether a campaign exists already, and refuses one that can't be created.
	CheckCampaign(ctx context.Context, spec hongbao.Campaign) (there bool, err error)
	Audit(ctx context.Context, who *access.Caller) (*audit.Report, error)
}

// Operations are what a caller may do. The second step of a creation is a job.
type Operations interface {
	ops.Operations
	// FundCampaign is the first step of CreateCampaign, StoreCodes the second.
	FundCampaign(ctx context.Context, in ops.CampaignCreate) (*app.Created, error)
	StoreCodes(ctx context.Context, in ops.CampaignCreate) error
}

// maxSearched and maxPage bound a search.
const maxSearched, maxPage = 100, 10_000

// parseSearch reads the text that Path writes; false if it is another page's.
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

// Faults are the deliberate faults of a development server. Other servers have neither the page nor its routes.
type Faults interface {
	// Buttons returns the faults that can be caused now.
	Buttons() []model.Fault
	// Cause causes a fault; ErrNotFound for an unknown one.
	Cause(ctx context.Context, fault string) error
	// Story returns what happened, the newest first.
	Story() []model.Told
}
