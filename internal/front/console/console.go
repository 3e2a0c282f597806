package console

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/guard"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

//go:embed templates
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// Console serves the pages of the console. Its methods are safe for concurrent use, but call Run only once.
type Console struct {
	cfg        configs.Console
	source     Source
	actions    Actions
	operations func(who *access.Caller) Operations
	faults     Faults // nil on servers without faults
	authority  Authority
	log        *zap.Logger
	tls        bool
	deployment string
	tongues    []*tongue // in the order of languages
	poller     *poller
	jobs       *jobs.Registry
	glancer    *glancer
	doors      doors
	handler    http.Handler
}

// New checks the configuration and parses the templates. It starts no goroutine; Run does.
func New(cfg configs.Console, deps Deps) (*Console, error) {
	if err := deps.check(&cfg); err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	tongues, err := newTongues()
	if err != nil {
		return nil, err
	}
	c := &Console{cfg: cfg, source: deps.Source, actions: deps.Actions, operations: deps.Operations, faults: deps.Faults,
		authority: deps.Authority, log: deps.Log, tls: deps.TLS, deployment: deps.Deployment, tongues: tongues,
		poller: newPoller(cfg.Every, cfg.Watchers, deps.Log), jobs: deps.Jobs, glancer: &glancer{source: deps.Source},
		doors: doors{all: map[string]door{}}}
	c.handler = c.routes()
	return c, nil
}

// Run reads the data of the watched pages until ctx ends. Then it ends all streams.
func (c *Console) Run(ctx context.Context) error {
	c.poller.run(ctx)
	return nil
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// policy is the Content-Security-Policy of every page: a page may load only resources of this server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// maxForm is the maximum size of a form's body, in bytes.
const maxForm = 64 << 10

// routes returns the handler of all pages. It rejects changes that come from other sites.
func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	static, err := fs.Sub(staticFiles, "static")
	if err != nil {
		panic(err) // can't happen: the folder is embedded
	}
	mux.Handle("GET /static/", http.StripPrefix("/static/", cached(http.FileServerFS(static))))
	mux.HandleFunc("GET /login", c.loginPage)
	mux.HandleFunc("POST /login", c.login)
	mux.HandleFunc("POST /logout", c.logout)
	mux.HandleFunc("POST /language", c.choose)
	mux.Handle("GET /events", c.allowLinks(c.events))
	c.pageRoutes(mux)
	c.changeRoutes(mux)
	c.linkRoutes(mux)
	if c.faults != nil {
		c.faultRoutes(mux)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, http.StatusNotFound, model.Say("There is no such page."))
	})
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, http.StatusForbidden, model.Say("This request came from another site."))
	}))
	inner := protection.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !strings.HasPrefix(r.URL.Path, "/static/") {
			h.Set("Cache-Control", "no-store")
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := guard.Call(c.log, func() error { inner.ServeHTTP(w, r); return nil }); err != nil {
			if h.Get("Content-Type") != "" { // the page has begun
				panic(http.ErrAbortHandler)
			}
			http.Error(w, "The server can't create this page. See its log.", http.StatusInternalServerError)
		}
	})
}

// cached lets browsers cache the static files, which change only with a new version. The cache time is short, so
// that users see the files of a new version soon.
func cached(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=300")
		h.ServeHTTP(w, r)
	})
}

// page is the data that every template gets.
type page struct {
	Title model.Sentence
	// Meta is below the title; it may be empty.
	Meta model.Sentence
	Path string
	// Here is the address of the page, for the switch of the language. Languages are the others.
	Here        string
	Languages   []*tongue
	Caller      *access.Caller
	ReadOnly    bool
	Faults      bool // whether the server has the page of faults
	Error, Done model.Sentence
	View        any
	// Live says that the page has live updates. Own says that it has a head of its own.
	Live, Own bool
	// Link says that a link shows the page. Wide says that the page is as wide as the screen, also without a caller.
	Link, Wide bool
	// Back is the campaign that a person came from; "" if there is none.
	Back string
	// Glance is empty if the caller may not see the whole deployment.
	Glance glance
	// Every is the interval of the live updates in milliseconds, for console.js.
	Every int64
}

// May reports whether a template shows the button of an action.
func (p page) May(a access.Action) bool {
	return p.Caller != nil && !p.ReadOnly && p.Caller.May(a) == nil
}

// MayOrSee reports whether a template shows the button of a step: a link to a page, or an action.
func (p page) MayOrSee(a access.Action) bool {
	if a == access.ReadSinks {
		return p.Sees(a)
	}
	return p.May(a)
}

// RoleOf returns the role of the caller.
func (p page) RoleOf() string { return string(p.Caller.Role) }

// Sees reports whether a template shows the link to a page.
func (p page) Sees(a access.Action) bool { return p.Caller != nil && p.Caller.May(a) == nil }

// render executes a template.
func (t *tongue) render(name string, p page) (string, error) {
	var b bytes.Buffer
	if err := t.pages.ExecuteTemplate(&b, name, p); err != nil {
		return "", hongbao.Errorf(hongbao.ClassBroken, "render page %s: %w", name, err)
	}
	return b.String(), nil
}

// glanceFor returns the glance for a caller who may see the whole deployment, else an empty one.
func (c *Console) glanceFor(who *access.Caller) (none glance) {
	if who == nil || who.Scoped() || who.May(access.ReadSinks) != nil {
		return none
	}
	return c.glancer.look()
}

// show renders a page and sends it.
func (c *Console) show(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	p.ReadOnly, p.Faults, p.Every = c.cfg.ReadOnly, c.faults != nil, c.cfg.Every.Milliseconds()
	if p.Path == "" {
		p.Path = r.URL.Path
	}
	t := c.tongueOf(r)
	if p.Here = "/"; reads(r) {
		p.Here = r.URL.RequestURI()
	}
	for _, other := range c.tongues {
		if other != t {
			p.Languages = append(p.Languages, other)
		}
	}
	p.Glance = c.glanceFor(p.Caller)
	text, err := t.render(name, p)
	if err != nil {
		c.log.Error("the console could not create a page", zap.Error(err))
		http.Error(w, "The server can't create this page. See its log.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // an error means that the caller has closed the connection
}

// fail sends a page that shows an error message.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, status int, text model.Sentence) {
	c.show(w, r, status, "message", page{Title: titleOf(status), Error: text, Caller: c.knownCaller(r),
		View: r.PostFormValue("why")}) // what a person wrote is not lost
}

// failed sends a page for an error of Source or Actions. The error decides the status. The page of a link has no text of the
// error, which may name servers.
func (c *Console) failed(w http.ResponseWriter, r *http.Request, err error) {
	said := c.explain(err)
	if c.linkOf(r) != "" {
		said.Original = ""
	}
	c.fail(w, r, statusOf(err), said)
}

// titleOf returns the title of a page that shows an error.
func titleOf(status int) model.Sentence {
	switch status {
	case http.StatusNotFound:
		return model.Say("Not found")
	case http.StatusUnauthorized, http.StatusForbidden:
		return model.Say("Not allowed")
	case http.StatusServiceUnavailable:
		return model.Say("Not now")
	}
	return model.Say("Not done")
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, model.ErrNotFound):
		return http.StatusNotFound
	case ops.IsInput(err):
		return http.StatusBadRequest
	case hongbao.ClassOf(err) == hongbao.ClassPermanent, hongbao.ClassOf(err) == hongbao.ClassConflict:
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}

// maxExplained is the maximum length of an error on a page, in bytes.
const maxExplained = 1000

// explain returns a sentence about an error, with the error's text. It also logs the error, because users close pages.
func (c *Console) explain(err error) model.Sentence {
	c.log.Info("an error on a page of the console", zap.Error(err))
	text := err.Error()
	if len(text) > maxExplained {
		text = strings.ToValidUTF8(text[:maxExplained], "") + "..."
	}
	first, size := utf8.DecodeRuneInString(text)
	s := about(err)
	s.Original = string(unicode.ToUpper(first)) + text[size:]
	return s
}

// about returns a sentence about the kind of an error.
func about(err error) model.Sentence {
	switch {
	case errors.Is(err, model.ErrNotFound):
		return model.Say("There is no such thing, or your key is not valid for it.")
	case errors.Is(err, access.ErrForbidden), errors.Is(err, access.ErrNotInScope), errors.Is(err, access.ErrMayNotSpend):
		return model.Say("Your key may not do this.")
	case ops.IsInput(err):
		return model.Say("Nothing was done: the input has a mistake.")
	case hongbao.ClassOf(err) == hongbao.ClassPermanent, hongbao.ClassOf(err) == hongbao.ClassConflict:
		return model.Say("This was refused.")
	case hongbao.IsOutage(err):
		return model.Say("A server that this needs can't be reached now. Try again.")
	}
	return model.Say("This failed. Try again.")
}
