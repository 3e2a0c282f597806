package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
)

// view is a page with live updates.
type view struct {
	title      model.Sentence
	name, live string // names of templates
	load       loader
	// filter returns the part of the data that the caller may see.
	filter func(now *reading, who *access.Caller) any
}

func everything(now *reading, _ *access.Caller) any { return now.data }

// viewOf returns the page with a path. It returns false if there is no such page, or if the caller may not see
// it.
func (c *Console) viewOf(ctx context.Context, path string, who *access.Caller) (view, bool) {
	if who.Link != nil {
		return c.viewOfCampaign(path, who)
	}
	if s, ok := parseSearch(path); ok {
		s.Scope = strings.Join(who.Campaigns, ",")
		return view{model.Say("Campaigns"), "campaigns", "campaigns-live",
			func(ctx context.Context) (any, error) { return c.source.Campaigns(ctx, s) }, visible}, true
	}
	switch path {
	case "/sinks":
		if who.May(access.ReadSinks) != nil {
			return view{}, false
		}
		return view{model.Say("Deliveries"), "sinks", "sinks-live",
			func(ctx context.Context) (any, error) { return c.source.Sinks(ctx) }, viewSinks}, true
	case faultsPath:
		return view{model.Say("Faults"), "faults", "faults-live", c.broken, everything}, c.faults != nil && who.May(access.ReadSinks) == nil
	case "/jobs":
		return view{model.Say("Replays and jobs"), "jobs", "jobs-live",
			c.work, everything}, who.May(access.ReadSinks) == nil
	}
	if id, ok := strings.CutPrefix(path, "/jobs/"); ok {
		return c.jobView(ctx, id, who)
	}
	return c.viewOfCampaign(path, who)
}

// viewOfCampaign returns the page of a campaign, or its page for a stage.
func (c *Console) viewOfCampaign(path string, who *access.Caller) (view, bool) {
	path, money, onStage := rainOf(path)
	id, ok := strings.CutPrefix(path, "/campaigns/")
	if !ok || hongbao.CheckCampaignID(id) != nil || !who.Sees(id) {
		return view{}, false
	}
	v := view{model.Say("Campaign %s", id), "campaign", "campaign-live", func(ctx context.Context) (any, error) {
		live, err := c.source.Campaign(ctx, id)
		if err != nil {
			return nil, err
		}
		return &watched{live, c.glancer.look().sinks, c.jobs.AuditOf(ctx, live.Audit.At), time.Now()}, nil
	}, c.viewCampaign}
	if who.Link != nil {
		v = c.viewOfLink(v, who.Link)
		money = money && who.Link.Money
	}
	if onStage {
		rainPage(&v, money)
	}
	return v, true
}

// visible returns the campaigns that the caller may see.
func visible(now *reading, who *access.Caller) any {
	all, ok := now.data.(model.Campaigns)
	if ok && who.Scoped() {
		all.List = slices.DeleteFunc(slices.Clone(all.List), func(x model.Campaign) bool { return !who.Sees(x.ID) })
	}
	return all
}

// Audited is a campaign with the differences that the last audit found.
type Audited struct {
	*model.Live
	// Listed reports whether a server ran the last audit. If so, Differences has the campaign's differences, and Elsewhere
	// counts all others.
	Listed      bool
	Differences []model.Difference
	Elsewhere   int
}

// viewCampaign makes the page of a campaign from a reading.
func (c *Console) viewCampaign(now *reading, _ *access.Caller) any {
	w, ok := now.data.(*watched)
	if !ok {
		return now.data
	}
	return viewCampaign(w, withAudit(w.Live, w.audit), now.rates, c.cfg.Every, time.Now())
}

// withAudit adds the differences of the last audit, if a server has its report.
func withAudit(live *model.Live, last *model.AuditReport) Audited {
	out := Audited{Live: live}
	if out.Listed = last != nil; !out.Listed {
		return out
	}
	for _, d := range last.Differences {
		if d.Campaign == live.ID {
			out.Differences = append(out.Differences, d)
		} else {
			out.Elsewhere++
		}
	}
	return out
}

// watchable sends a page that has live updates.
func (c *Console) watchable(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	path := r.URL.Path
	switch {
	case path == "/":
		path = r.URL.RequestURI()
	case strings.HasSuffix(path, "/rain") && r.URL.Query().Get("money") == "1":
		path += "?money=1"
	}
	v, ok := c.viewOf(r.Context(), path, who)
	if !ok {
		c.fail(w, r, http.StatusNotFound, model.Say("There is no such page, or your key is not valid for this campaign."))
		return
	}
	c.showView(w, r, who, &v)
}

// showView loads and shows a page with live updates.
func (c *Console) showView(w http.ResponseWriter, r *http.Request, who *access.Caller, v *view) {
	ctx, cancel := context.WithTimeout(r.Context(), loadTime)
	defer cancel()
	now := reading{}
	if now.data, now.err = v.load(ctx); now.err != nil {
		c.failed(w, r, now.err)
		return
	}
	if x, ok := now.data.(*watched); ok {
		now.rates = ratesOf(x.Live, x.read)
	}
	p := page{Title: v.title, Caller: who, View: v.filter(&now, who), Live: true, Own: v.name == "campaign", Back: back(r.URL),
		Done: done(r.URL)}
	if who.Link != nil {
		w.Header().Set("Referrer-Policy", "no-referrer") // the page has no form for which the server needs the header Origin
		p.Caller, p.Own, p.Link, p.Wide = nil, true, true, true
	}
	c.show(w, r, http.StatusOK, v.name, p)
}

// messages has the texts that a page may show after an action. The URL contains only the key of a text, so that nobody
// can forge a link that shows another text.
var messages = map[string]model.Sentence{
	"paused": model.Say("Paused."), "resumed": model.Say("Resumed."), "decided": model.Say("Decided."),
	"created":   model.Say("The ledger has the campaign and its money. Load the campaign to open it."),
	"cancelled": model.Say("Cancelled: the sponsor has the money back."), "closed": model.Say("Closed."),
	"ended":    model.Say("The link has ended. It may show the campaign for 10 more seconds."),
	"refunded": model.Say("Refunded: the sponsor has the money back."), "revealed": model.Say("The seed is public."),
	"there": model.Say("The ledger already had this campaign. Nothing was changed."),
}

// back returns the campaign that a person came from, or "".
func back(u *url.URL) string {
	if id := u.Query().Get("from"); hongbao.CheckCampaignID(id) == nil {
		return id
	}
	return ""
}

func done(u *url.URL) model.Sentence { return messages[u.Query().Get("done")] }

// pageRoutes adds the routes of the pages that change nothing.
func (c *Console) pageRoutes(mux *http.ServeMux) {
	mux.Handle("GET /{$}", c.allow(access.ReadCampaigns, c.watchable))
	mux.Handle("GET /campaigns/{id}", c.allowLinks(c.watchable))
	mux.Handle("GET /campaigns/{id}/rain", c.allowLinks(c.watchable))
	mux.Handle("GET /campaigns/{id}/result.svg", c.allowLinks(c.result))
	mux.Handle("GET /create", c.allow(access.CreateCampaign, c.create))
	mux.Handle("GET /sinks", c.allow(access.ReadSinks, c.watchable))
	mux.Handle("GET /jobs", c.allow(access.ReadSinks, c.watchable))
	mux.Handle("GET /jobs/{id}", c.allow(access.ReadCampaigns, c.job))
	mux.Handle("GET /letters", c.allow(access.ReadLetters, c.letters))
	mux.Handle("GET /letters/{sink}/{shard}/{id}", c.allow(access.ReadLetters, c.letter))
	mux.Handle("GET /quarantine", c.allow(access.ReadQuarantine, c.quarantine))
	mux.Handle("GET /quarantine/{id}", c.allow(access.ReadQuarantine, c.quarantined))
	mux.Handle("GET /trail", c.allow(access.ReadTrails, c.trail))
	mux.Handle("GET /restores", c.allow(access.ReadSinks, c.restores))
	mux.Handle("GET /journal", c.allow(access.ReadJournal, c.journal))
	mux.HandleFunc("GET /runbooks", c.runbook)
	mux.HandleFunc("GET /runbooks/{name}", c.runbook)
}
