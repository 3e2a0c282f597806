package console

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	limits "golang.org/x/time/rate"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// A link shows one campaign to people without a key. Its text follows the # of its address, so browsers do not send it with
// the request: no log of a server or a proxy has it, and a chat program that opens the address gets an empty form. The
// form's script sends the text, and the browser gets a cookie with it.

// linkRoutes adds the pages with which people make links, and the one that opens a link.
func (c *Console) linkRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /watch", c.watchPage)
	mux.HandleFunc("POST /watch", c.watch)
	mux.Handle("GET /campaigns/{id}/links", c.allow(access.ShareCampaign, c.links))
	mux.Handle("POST /campaigns/{id}/links", c.allow(access.ShareCampaign, c.share))
	mux.Handle("POST /campaigns/{id}/links/end", c.allow(access.EndLink, c.endLink))
}

func (c *Console) watchPage(w http.ResponseWriter, r *http.Request) {
	c.show(w, r, http.StatusOK, "watch", page{Title: model.Say("Watch a campaign")})
}

// noLink refuses a link that does not open anything, for whatever reason.
var noLink = model.Say("This link shows nothing: it is incomplete, or it has ended.")

// watch opens a link: the browser gets its cookie. A browser with a session keeps that, so a link logs nobody out.
func (c *Console) watch(w http.ResponseWriter, r *http.Request) {
	text := strings.TrimSpace(r.PostFormValue("link"))
	if at := strings.LastIndexByte(text, '#'); at >= 0 { // the whole address was pasted
		text = text[at+1:]
	}
	r = r.WithContext(access.For(r.Context(), access.ReadCampaigns))
	who, err := c.authority.Link(r.Context(), text)
	switch {
	case errors.Is(err, access.ErrUnauthorized):
		c.show(w, r, http.StatusUnauthorized, "watch", page{Title: model.Say("Watch a campaign"), Error: noLink})
		return
	case err != nil:
		c.failed(w, r, err)
		return
	}
	if has, err := c.callerOf(r); err != nil || has.Link != nil {
		http.SetCookie(w, c.cookie(r, "")) // else a session that is over would hide the link
		cookie := c.cookie(r, text)        //nolint:gosec // as that of a session
		cookie.Name += linkSuffix
		cookie.MaxAge = int(time.Until(who.Expires).Seconds())
		http.SetCookie(w, cookie)
	}
	http.Redirect(w, r, "/campaigns/"+who.Link.Campaign, http.StatusSeeOther)
}

// linkSuffix follows the name of the session's cookie in the name of the cookie with a link.
const linkSuffix = "-link"

// linkLimit is how many requests a second a server answers to all who have the same link, and linkBurst how many at once.
const linkLimit, linkBurst = 10, 100

// doors limit the requests of each link. They are safe for concurrent use.
type doors struct {
	mu  sync.Mutex
	all map[string]door
}

type door struct {
	limit *limits.Limiter
	ends  time.Time
}

// open reports whether the limit of a link allows one more request.
func (d *doors) open(link *access.Session) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	x, ok := d.all[link.Hash]
	if !ok {
		for hash, old := range d.all {
			if now.After(old.ends) {
				delete(d.all, hash)
			}
		}
		x = door{limits.NewLimiter(linkLimit, linkBurst), link.Expires}
		d.all[link.Hash] = x
	}
	return x.limit.AllowN(now, 1)
}

// admitLink reports whether the owner of a link sees a page. If not, it answers the request.
func (c *Console) admitLink(w http.ResponseWriter, r *http.Request, who *access.Caller, shows bool) bool {
	switch {
	case !shows:
		c.fail(w, r, http.StatusNotFound, model.Say("This link shows one campaign and nothing else."))
		return false
	case !c.doors.open(who.Link):
		w.Header().Set("Retry-After", "10")
		c.fail(w, r, http.StatusTooManyRequests, model.Say("Too many people open this link now. Try again."))
		return false
	}
	return true
}

// linksView is the data of the page with the links to a campaign. Address is that of a new link, which the page shows once.
type linksView struct {
	titles
	Campaign string
	Links    []access.Session
	Address  string
}

func (c *Console) links(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	if id, ok := c.campaignOf(w, r, who, access.ShareCampaign); ok {
		c.showLinks(w, r, who, linksView{Campaign: id})
	}
}

// showLinks sends the page with the links to a campaign.
func (c *Console) showLinks(w http.ResponseWriter, r *http.Request, who *access.Caller, v linksView) {
	var err error
	if v.Links, err = c.operations(who).Links(r.Context(), v.Campaign); err != nil {
		c.failed(w, r, err)
		return
	}
	v.titles = c.titlesOf(r.Context(), v.Campaign)
	c.show(w, r, http.StatusOK, "links", page{Title: model.Say("Links to watch %s", v.Name(v.Campaign)), Caller: who, View: v,
		Path: "/campaigns/" + v.Campaign + "/links", Done: done(r.URL)})
}

// share makes a link and shows its address.
func (c *Console) share(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	id, ok := c.campaignOf(w, r, who, access.ShareCampaign)
	if !ok {
		return
	}
	in := ops.Share{Campaign: id, Money: r.PostFormValue("money") != "", Why: strings.TrimSpace(r.PostFormValue("why"))}
	text, _, err := c.operations(who).ShareCampaign(r.Context(), in)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	scheme := "http://"
	if c.secure(r) {
		scheme = "https://"
	}
	c.showLinks(w, r, who, linksView{Campaign: id, Address: scheme + r.Host + "/watch#" + text})
}

func (c *Console) endLink(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	id, ok := c.campaignOf(w, r, who, access.EndLink)
	if !ok {
		return
	}
	if err := c.operations(who).EndLink(r.Context(), id, r.PostFormValue("link")); err != nil {
		c.failed(w, r, err)
		return
	}
	http.Redirect(w, r, "/campaigns/"+id+"/links?done=ended", http.StatusSeeOther) //nolint:gosec // id was checked
}

// watchedBy returns what a link shows of the reading of a campaign: not who did what and why, no audit, no texts of errors,
// no shards, and money only if the link has it.
func (w *watched) watchedBy(link *access.Session) *watched {
	c := &w.Campaign
	live := &model.Live{
		Campaign: model.Campaign{ID: c.ID, Name: c.Name, Kind: c.Kind, Packets: c.Packets, Currency: c.Currency, State: c.State,
			Status: c.Status, From: c.From, To: c.To, TimeZone: c.TimeZone, Outage: c.Outage, InRedis: c.InRedis, Dealt: c.Dealt,
			Granted: c.Granted, Left: c.Left, Sinks: c.Sinks, Samples: c.Samples},
		Lags: w.Lags, Settled: w.Settled, LedgerUnread: w.LedgerUnread, LoadBegun: w.LoadBegun, Answers: w.Answers, First: w.First,
		Last: w.Last, Created: w.Created, Loading: w.Loading, Full: w.Full, Revealed: w.Revealed, Timeline: w.Timeline, Step: w.Step,
	}
	if link.Money {
		live.Funded, live.Paid, live.Refunded, live.GrantedSum, live.LeftSum = c.Funded, c.Paid, c.Refunded, c.GrantedSum, c.LeftSum
	}
	var sinks []deliveries.SinkStatus // nil if they could not be read
	for i := range w.sinks {
		sinks = append(sinks, deliveries.SinkStatus{Sink: w.sinks[i].Sink, State: w.sinks[i].State})
	}
	return &watched{Live: live, sinks: sinks, read: w.read}
}

// viewOfLink returns the page that the owner of a link sees.
func (c *Console) viewOfLink(v view, link *access.Session) view {
	v.name, v.live = "watched", "watched-live"
	v.filter = func(now *reading, _ *access.Caller) any {
		w, ok := now.data.(*watched)
		if !ok {
			return now.data
		}
		w = w.watchedBy(link)
		seen := viewCampaign(w, Audited{Live: w.Live}, now.rates, c.cfg.Every, time.Now())
		seen.Money = link.Money
		return seen
	}
	return v
}
