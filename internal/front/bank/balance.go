package bank

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// Book books credits; ledger.Ledger implements it. A repeated credit changes nothing.
type Book interface {
	// Credit books credits and returns a result for each, in order. A result has class Conflict if the key or the
	// reference was used before, and Permanent if the credit can't be booked. The error of the call applies to all
	// credits.
	Credit(ctx context.Context, credits []payment.Credit) ([]payment.Credited, error)
}

// Reader reads the booked credits; ledger.Ledger implements it.
type Reader interface {
	CreditByReference(ctx context.Context, client, reference string) (payment.Credit, bool, error)
	Credits(ctx context.Context, page payment.CreditPage) ([]payment.Credit, error)
	AccountBalances(ctx context.Context, account string) ([]payment.AccountBalance, error)
	Statement(ctx context.Context, page payment.StatementPage) ([]payment.StatementLine, error)
}

// Deps are the dependencies of a Balance. All but Wrap are required.
type Deps struct {
	Book   Book
	Reader Reader
	// Keys identifies clients by their API keys.
	Keys *access.Authority
	// Denied records in the journal that an action was denied to an API key.
	Denied func(ctx context.Context, a access.Action, campaign string, why error)
	// HasRead records in the journal that an accountant has read an account.
	HasRead func(ctx context.Context, r access.Read)
	// Wrap, if not nil, wraps the server's own handler.
	Wrap func(http.Handler) http.Handler
	Log  *zap.Logger
}

// Balance is the server of a balance system. Its methods are safe for concurrent use, but call Run only once.
type Balance struct {
	cfg    Config
	book   Book
	reader Reader
	log    *zap.Logger
	// strangers is the log for requests without a valid key. It is sampled, because anyone may send such
	// requests.
	strangers *zap.Logger
	keys      *access.Authority
	denied    func(ctx context.Context, a access.Action, campaign string, why error)
	hasRead   func(ctx context.Context, r access.Read)
	slots     chan struct{}

	handler http.Handler

	mu      sync.Mutex
	running map[clientKey]bool // idempotency keys of the credits that are being booked
	asking  map[string]int     // number of running requests of each client
}

// NewBalance checks the configuration and returns a server. It opens nothing.
func NewBalance(cfg Config, deps Deps) (*Balance, error) {
	err := cfg.Check()
	if deps.Book == nil || deps.Reader == nil || deps.Keys == nil || deps.Denied == nil || deps.HasRead == nil ||
		deps.Log == nil {
		err = errors.Join(err, errors.New("Book, Reader, Keys, Denied, HasRead and Log are required"))
	}
	if err != nil {
		return nil, err
	}
	b := &Balance{
		cfg: cfg, book: deps.Book, reader: deps.Reader, log: deps.Log, strangers: web.Sampled(deps.Log), keys: deps.Keys,
		denied: deps.Denied, hasRead: deps.HasRead, slots: make(chan struct{}, cfg.InFlight), running: map[clientKey]bool{},
		asking: map[string]int{},
	}
	b.handler, err = b.API().Handler()
	if err == nil && deps.Wrap != nil {
		b.handler = deps.Wrap(b.handler)
	}
	return b, err
}

// Run serves until ctx ends. Then it accepts no more requests, and returns when the running requests are answered
// or the drain time is over. If ready is not nil, Run calls it with the server's address once the server listens.
func (b *Balance) Run(ctx context.Context, ready func(net.Addr)) error {
	l, err := web.Listen(ctx, b.cfg.Listen, "balance.listen")
	if err != nil {
		return err
	}
	if ready != nil {
		ready(l.Addr())
	}
	if l = netutil.LimitListener(l, b.cfg.Connections); b.cfg.TLS != nil {
		l = tls.NewListener(l, b.cfg.TLS)
	}
	srv := web.Start(context.WithoutCancel(ctx), l, b.handler, web.Limits{
		ReadHeaderTimeout: b.cfg.ReadHeaderTimeout, ReadTimeout: b.cfg.ReadTimeout, WriteTimeout: b.cfg.WriteTimeout,
		IdleTimeout: b.cfg.IdleTimeout,
	}, b.log)
	select {
	case err := <-srv.Ended:
		return err
	case <-ctx.Done():
	}
	return srv.Stop(b.cfg.DrainTimeout, "their callers repeat them with the same keys")
}
