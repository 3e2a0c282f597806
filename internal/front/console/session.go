package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/model"
)

// cookieName returns the name of the session cookie. The name contains the deployment's id, because browsers send the
// cookies of a host to all its ports. Without the id, two deployments on one host would overwrite each other's
// sessions. With TLS, the prefix __Host- makes browsers reject a cookie that another host or a page without TLS has
// set.
func (c *Console) cookieName(secure bool) string {
	if secure {
		return "__Host-hongbao-" + c.deployment
	}
	return "hongbao-" + c.deployment
}

// secure reports whether the browser sends the request by TLS. If a proxy ends TLS, only the browser knows that: it names
// the scheme in the header Origin of every form. Whoever forges the header affects only their own cookie.
func (c *Console) secure(r *http.Request) bool {
	return c.tls || strings.HasPrefix(r.Header.Get("Origin"), "https://")
}

// session returns the session of the request's cookie, or "".
func (c *Console) session(r *http.Request) string { return c.cookieOf(r, "") }

// cookieOf returns the value of the request's cookie whose name ends with suffix, or "".
func (c *Console) cookieOf(r *http.Request, suffix string) string {
	cookie, err := r.Cookie(c.cookieName(true) + suffix)
	if err != nil && !c.tls {
		cookie, err = r.Cookie(c.cookieName(false) + suffix)
	}
	if err != nil {
		return ""
	}
	return cookie.Value
}

// linkOf returns the link by which the request reads, or "". A key and a session go before it.
func (c *Console) linkOf(r *http.Request) string {
	if web.Bearer(r) != "" || c.session(r) != "" {
		return ""
	}
	return c.cookieOf(r, linkSuffix)
}

// callerOf identifies the caller by the API key in the header or, without that, by the session cookie, or by the cookie of
// a link. It does not accept a key in the URL.
func (c *Console) callerOf(r *http.Request) (access.Caller, error) {
	if key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return c.authority.Identify(r.Context(), strings.TrimSpace(key))
	}
	if session := c.session(r); session != "" {
		return c.authority.Session(r.Context(), session)
	}
	if link := c.linkOf(r); link != "" {
		return c.authority.Link(r.Context(), link)
	}
	return access.Caller{}, access.ErrUnauthorized
}

// handler answers a request of an identified caller.
type handler func(w http.ResponseWriter, r *http.Request, who *access.Caller)

// reads reports whether the request only reads. For HEAD, net/http drops the body of the answer.
func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// allow calls h only for callers who may do the action. If the console is read-only, it rejects every change.
func (c *Console) allow(a access.Action, h handler) http.Handler { return c.admit(a, false, h) }

// allowLinks is allow for the pages of a campaign, which a link shows, too.
func (c *Console) allowLinks(h handler) http.Handler { return c.admit(access.ReadCampaigns, true, h) }

func (c *Console) admit(a access.Action, links bool, h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := c.callerOf(r.WithContext(access.For(r.Context(), a)))
		if errors.Is(err, access.ErrUnauthorized) && web.Bearer(r) != "" {
			c.actions.Denied(access.As(r.Context(), web.Stranger(r, "")), a, "", err)
		}
		ctx := access.As(r.Context(), web.ActorOf(&who, r, ""))
		switch {
		case errors.Is(err, access.ErrUnauthorized) && c.linkOf(r) != "":
			c.fail(w, r, http.StatusUnauthorized, noLink)
		case errors.Is(err, access.ErrUnauthorized) && (!reads(r) || r.URL.Path == "/events"):
			c.fail(w, r, http.StatusUnauthorized, model.Say("Your session is over. Log in again."))
		case errors.Is(err, access.ErrUnauthorized):
			http.Redirect(w, r, "/login?to="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		case err != nil:
			c.failed(w, r, err)
		case who.Link != nil && !c.admitLink(w, r, &who, links): // it has answered
		case !reads(r) && c.cfg.ReadOnly:
			c.fail(w, r, http.StatusForbidden, model.Say("This console is read-only (%s).", "console.read_only"))
		case who.May(access.ReadCampaigns) != nil: // a gateway reads receipts by the API, not here
			c.fail(w, r, http.StatusForbidden, c.explain(who.May(access.ReadCampaigns)))
		case who.May(a) != nil:
			c.actions.Denied(ctx, a, "", who.May(a))
			c.fail(w, r, http.StatusForbidden, c.explain(who.May(a)))
		default:
			if r.URL.Path != "/events" { // an open live page renews its stream by itself, so that is no sign of its user
				c.keepSession(r)
			}
			h(w, r.WithContext(ctx), &who)
		}
	})
}

// keepSession moves the end of the session of the request's cookie.
func (c *Console) keepSession(r *http.Request) {
	session := c.session(r)
	if session == "" {
		return
	}
	if err := c.authority.KeepSession(r.Context(), session, c.sessionTimes()); err != nil {
		c.log.Warn("a session was not extended; the next request tries it again", zap.Error(err))
	}
}

func (c *Console) sessionTimes() access.SessionTimes {
	return access.SessionTimes{Lasts: c.cfg.SessionTime, Idle: c.cfg.IdleTime}
}

func (c *Console) loginPage(w http.ResponseWriter, r *http.Request) {
	c.show(w, r, http.StatusOK, "login", page{Title: model.Say("Log in"), View: local(r.URL.Query().Get("to"))})
}

// login starts a session for an API key and sets the session cookie.
func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	to := local(r.PostFormValue("to"))
	key := strings.TrimSpace(r.PostFormValue("key"))
	r = r.WithContext(access.For(r.Context(), access.ReadCampaigns)) // a cached key can log in while the ledger is down
	who, err := c.authority.Identify(r.Context(), key)
	switch {
	case errors.Is(err, access.ErrUnauthorized):
		c.loggedIn(r, access.LogIn, nil, err)
		c.show(w, r, http.StatusUnauthorized, "login", page{Title: model.Say("Log in"), View: to,
			Error: model.Say("This key is not valid here: it is mistyped, expired or revoked.")})
		return
	case err != nil:
		c.failed(w, r, err)
		return
	case who.May(access.ReadCampaigns) != nil:
		c.loggedIn(r, access.LogIn, &who, who.May(access.ReadCampaigns))
		c.fail(w, r, http.StatusForbidden, model.Say("A key of the role %s does not open the console.", who.Role))
		return
	}
	session, err := c.authority.StartSession(r.Context(), key, c.sessionTimes())
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.loggedIn(r, access.LogIn, &who, nil)
	c.endSession(r) // the browser is about to lose the old cookie, so nobody could log out the old session
	http.SetCookie(w, c.cookie(r, session))
	http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // local returns only paths of this site
}

// loggedIn records a log-in or a log-out. The parameter who is nil if the key is not valid.
func (c *Console) loggedIn(r *http.Request, a access.Action, who *access.Caller, why error) {
	actor := web.Stranger(r, "")
	if who != nil {
		actor = web.ActorOf(who, r, "")
	}
	c.actions.LoggedIn(access.As(r.Context(), actor), a, why)
}

// logout ends the session in all replicas.
func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	if who, err := c.callerOf(r); err == nil {
		c.loggedIn(r, access.LogOut, &who, nil)
	}
	c.endSession(r)
	http.SetCookie(w, c.cookie(r, ""))
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// endSession ends the session of the request's cookie.
func (c *Console) endSession(r *http.Request) {
	session := c.session(r)
	if session == "" {
		return
	}
	if err := c.authority.EndSession(r.Context(), session); err != nil {
		c.log.Warn("a session could not be ended; it expires by itself", zap.Error(err))
	}
}

// cookie returns a cookie that the browser keeps until it closes. The server ends the session long before. If session
// is empty, the cookie makes the browser remove its cookie.
func (c *Console) cookie(r *http.Request, session string) *http.Cookie {
	age := 0
	if session == "" {
		age = -1
	}
	secure := c.secure(r)
	//nolint:gosec // Secure is set where the browser uses https; otherwise the listener is on loopback
	return &http.Cookie{Name: c.cookieName(secure), Value: session, Path: "/", MaxAge: age, HttpOnly: true, Secure: secure,
		SameSite: http.SameSiteStrictMode}
}

// local returns the path to open after the login. It falls back to "/" if to leads to another site.
func local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(to, "//") ||
		strings.Contains(to, `\`) {
		return "/"
	}
	return u.RequestURI()
}
