package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/payment"
	"github.com/hongbao-project/hongbao/internal/web"
)

// Book is where credits are booked. ledger.Ledger is one. A repeat of a credit changes nothing.
type Book interface {
	// Credit books credits and answers each at its place: Conflict for a used key or reference, Permanent for one
	// that can't be booked. The error of the call concerns all of them.
	Credit(ctx context.Context, credits []payment.Credit) ([]payment.Credited, error)
}

// Reader tells what was booked. ledger.Ledger is one.
type Reader interface {
	CreditByReference(ctx context.Context, client, reference string) (payment.Credit, bool, error)
	Credits(ctx context.Context, page payment.CreditPage) ([]payment.Credit, error)
	AccountBalances(ctx context.Context, account string) ([]payment.AccountBalance, error)
	Statement(ctx context.Context, page payment.StatementPage) ([]payment.StatementLine, error)
	Tokens(ctx context.Context) ([]payment.ClientToken, error)
}

// Balance is the balance server. Its methods may be called at once; Run is called once.
type Balance struct {
	cfg    Config
	book   Book
	reader Reader
	log    *zap.Logger
	tokens tokens
	slots  chan struct{}

	mu      sync.Mutex
	running map[clientKey]bool // keys of credits under way
}

// NewBalance checks the configuration. It opens nothing.
func NewBalance(cfg Config, book Book, reader Reader, log *zap.Logger) (*Balance, error) {
	err := cfg.Check()
	if book == nil || reader == nil || log == nil {
		err = errors.Join(err, errors.New("book, reader and log are required"))
	}
	if err != nil {
		return nil, err
	}
	return &Balance{
		cfg: cfg, book: book, reader: reader, log: log, tokens: tokens{source: reader.Tokens},
		slots: make(chan struct{}, cfg.InFlight), running: map[clientKey]bool{},
	}, nil
}

// Run serves until ctx ends, then takes no more, and returns when the requests under way are answered or the drain
// time is over. ready, if not nil, is called with the address once it listens.
func (b *Balance) Run(ctx context.Context, ready func(net.Addr)) error {
	l, err := web.Listen(ctx, b.cfg.Listen, "balance.listen")
	if err != nil {
		return err
	}
	if ready != nil {
		ready(l.Addr())
	}
	if b.cfg.TLS != nil {
		l = tls.NewListener(l, b.cfg.TLS)
	}
	h := b.Handler()
	if b.cfg.Wrap != nil {
		h = b.cfg.Wrap(h)
	}
	srv := web.Start(context.WithoutCancel(ctx), l, h, web.Limits{
		ReadHeaderTimeout: b.cfg.ReadHeaderTimeout, ReadTimeout: b.cfg.ReadTimeout, WriteTimeout: b.cfg.WriteTimeout,
		IdleTimeout: b.cfg.IdleTimeout, HeaderBytes: b.cfg.HeaderBytes,
	}, zap.NewStdLog(b.log))
	select {
	case err := <-srv.Ended:
		return err
	case <-ctx.Done():
	}
	return srv.Stop(b.cfg.DrainTimeout, "their callers repeat them with the same keys")
}

// endpoint is what a path takes. Its work gets the client whose token came.
type endpoint struct {
	method string        // empty for any
	scope  payment.Scope // what the token must be good for; empty for any token
	open   bool          // without a token, and however much is under way
	do     func(w http.ResponseWriter, r *http.Request, client string) error
}

// Handler is what Run serves. An odd path is unknown like any other: a redirect would answer before the token is
// checked.
func (b *Balance) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/livez", b.route(endpoint{method: http.MethodGet, open: true, do: b.alive}))
	mux.Handle("/readyz", b.route(endpoint{method: http.MethodGet, open: true, do: b.ready}))
	mux.Handle("/v1/credits", b.route(
		endpoint{method: http.MethodPost, scope: payment.ScopeCredit, do: b.credit},
		endpoint{method: http.MethodGet, scope: payment.ScopeCredits, do: b.credits}))
	mux.Handle("/v1/credits:batch", b.route(endpoint{method: http.MethodPost, scope: payment.ScopeCredit, do: b.batch}))
	mux.Handle("/v1/credits/{reference}", b.route(endpoint{method: http.MethodGet, scope: payment.ScopeCredits,
		do: b.byReference}))
	mux.Handle("/v1/accounts/{id}", b.route(endpoint{method: http.MethodGet, scope: payment.ScopeAccounts, do: b.account}))
	mux.Handle("/v1/accounts/{id}/statement", b.route(endpoint{method: http.MethodGet, scope: payment.ScopeAccounts,
		do: b.statement}))
	unknown := b.route(endpoint{do: func(http.ResponseWriter, *http.Request, string) error {
		return refuse(http.StatusNotFound, "not_found", "there is no such path; see docs/openapi-balance.yaml")
	}})
	mux.Handle("/", unknown)
	return web.CleanPaths(mux, unknown)
}

// route checks what every request must pass, and writes its error. The endpoints of a path differ in their methods.
func (b *Balance) route(endpoints ...endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := newRequestID()
		h := w.Header()
		h.Set("X-Request-Id", id)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		start := time.Now()
		ctx, cancel := context.WithTimeout(r.Context(), b.cfg.HandleTimeout)
		defer cancel()
		if client, err := b.admit(w, r.WithContext(ctx), endpoints); err != nil {
			b.fail(w, id, err, zap.String("client", client), zap.String("method", r.Method), zap.String("path", r.URL.Path),
				zap.Duration("took", time.Since(start)))
		}
	})
}
