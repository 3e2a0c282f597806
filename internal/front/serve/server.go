package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Grabber decides grabs; producer.Producer implements it and decides the grabs of many callers in one call to Redis.
// A Grabber must not keep a reference to g after it has returned.
type Grabber interface {
	Grab(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error)
}

// Reader reads campaigns. Receipts returns ledger.ErrArchived for an archived campaign. Both methods return
// store.ErrNotInRedis for an unknown campaign.
type Reader interface {
	// Window returns the public state of a campaign.
	Window(ctx context.Context, campaign string) (model.PublicView, error)
	// Receipts returns the receipts of a user.
	Receipts(ctx context.Context, campaign, user string) (model.Receipts, error)
}

// Deps are the dependencies of a Server.
type Deps struct {
	Grabber Grabber
	Reader  Reader
	// KeyFile reads the file in Config.Keys; it is nil if Config.Keys is a URL or empty. open describes who else
	// can read the file, and is "" if nobody can.
	KeyFile func() (text []byte, open string, err error)
	// Keys identifies callers by their API keys; nil if the server accepts no API keys.
	Keys Keys
	// Denied records in the journal that an action was denied to an API key.
	Denied func(ctx context.Context, a access.Action, campaign string, why error)
	// Refused, if not nil, counts n grabs of a campaign that the server refused before the Grabber got them, with the
	// code rate_limited or unavailable. The campaign may not exist.
	Refused func(campaign, code string, n int)
	// Wrap, if not nil, wraps the handler of the public listener.
	Wrap func(http.Handler) http.Handler
	// Guard, if not nil, wraps the handler of every listener.
	Guard func(http.Handler) http.Handler
	// Metrics is the handler of /metrics on the ops listener; if it is nil, there is no such path. Pprof adds
	// /debug/pprof.
	Metrics http.Handler
	Pprof   bool
	// Opener opens the listeners.
	Opener web.Opener
	// Connections, if not nil, is called whenever a listener's number of open connections changes.
	Connections func(listener string, by int)
	Log         *zap.Logger
}

// Addresses are the addresses of a Server's listeners.
type Addresses struct{ Public, Ops net.Addr }

// Server answers grabs over HTTP. Its methods are safe for concurrent use, but call Run only once.
type Server struct {
	cfg           Config
	deps          Deps
	campaignCache *campaignCache
	verifier      *verifier     // nil: the server accepts no tokens
	keyURL        *urlSet       // nil: serve.keys is no URL
	paying        chan struct{} // limits the concurrent lookups of users of lost campaigns
	limits        *limits       // of users
	keys          *limits       // of API keys
	addresses     *addresses    // nil: the rate of an address is not limited
	log           *zap.Logger   // bounded
	// gatewayFacts maps the names that gateways use for facts to the facts.
	gatewayFacts map[string]string

	public   http.Handler
	inner    http.Handler // the handler of the ops listener
	draining atomic.Bool
}

// sendAgain tells what callers can do if a shutdown interrupts their requests.
const sendAgain = "a grab that is sent again with the same request id gets its answer"

// New checks the configuration and returns a server. It opens nothing.
func New(cfg Config, deps Deps) (*Server, error) {
	err := cfg.Check()
	if deps.Grabber == nil || deps.Reader == nil || deps.Log == nil ||
		(deps.KeyFile == nil) != (cfg.Keys == "" || cfg.KeysURL() != "") {
		err = errors.Join(err, errors.New("Grabber, Reader and Log are required, and KeyFile if Keys names a file"))
	}
	if deps.Keys != nil && deps.Denied == nil {
		err = errors.Join(err, errors.New("Denied is required with Keys"))
	}
	if !cfg.HasTokens() && deps.Keys == nil {
		err = errors.Join(err, errors.New("no one could grab: set serve.keys, serve.issuer and serve.audience for users "+
			"with tokens, or ledger.dsn for gateways with API keys"))
	}
	if err != nil {
		return nil, err
	}
	if deps.Connections == nil {
		deps.Connections = func(string, int) {}
	}
	if deps.Refused == nil {
		deps.Refused = func(string, string, int) {}
	}
	s := &Server{
		cfg: cfg, deps: deps, campaignCache: newWindows(deps.Reader), limits: newLimits(cfg.Rate, cfg.Burst),
		keys: newLimits(cfg.KeyRate, cfg.KeyBurst), paying: make(chan struct{}, maxPaid),
		log: web.Sampled(deps.Log),
	}
	if cfg.AddressRate > 0 {
		trusted, err := cfg.Proxies()
		if err != nil {
			return nil, err
		}
		s.addresses = &addresses{newLimits(cfg.AddressRate, cfg.AddressBurst), trusted}
	}
	s.inner = web.OpsHandler(s.ready, deps.Metrics, deps.Pprof)
	public, err := s.API().Handler()
	if err != nil {
		return nil, err
	}
	s.public = web.CORS(public, cfg.CORSOrigins)
	if deps.Wrap != nil {
		s.public = deps.Wrap(s.public)
	}
	s.public = s.sendAway(s.public)
	return s, err
}

// sendAway closes connections after their answers while the server drains. So callers send their next request to
// another server, and not on a connection that is about to close.
func (s *Server) sendAway(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// Run serves until ctx ends. Then /readyz reports that the server is not ready, and the server still accepts requests
// for the drain delay. Run returns when the running requests are answered or the drain time is over. If ready is not
// nil, Run calls it when all listeners are open.
func (s *Server) Run(ctx context.Context, ready func(Addresses)) error {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if err := s.openKeys(); err != nil {
		return err
	}
	all, at, err := s.listen(ctx)
	if err != nil {
		return err
	}
	if s.keyURL != nil {
		var fetching sync.WaitGroup
		fetching.Go(func() { s.keyURL.run(own) })
		defer fetching.Wait()
		defer cancel()
	}
	if ready != nil {
		ready(at)
	}
	failed, ended := make(chan struct{}, len(all)), make(chan error, len(all))
	stop, stopAll := context.WithCancel(own)
	defer stopAll()
	for _, l := range all {
		go func() { ended <- s.serve(own, stop, l, failed) }()
	}
	s.wait(ctx, failed)
	stopAll()
	var errs error
	for range all {
		errs = errors.Join(errs, <-ended)
	}
	return errs
}

// listening is an open listener with its handler.
type listening struct {
	net.Listener
	handler http.Handler
}

// listen opens all listeners. If one fails, it closes the others.
func (s *Server) listen(ctx context.Context) (all []listening, at Addresses, err error) {
	trusted, err := s.cfg.Proxies()
	open := func(address, name string, most int, t *tls.Config, h http.Handler) net.Addr {
		if err != nil {
			return nil
		}
		var l net.Listener
		if l, err = s.deps.Opener.Listen(ctx, address, "serve."+name); err != nil {
			return nil
		}
		bound := l.Addr()
		l = &counted{Listener: l, most: most, trusted: trusted, log: s.log, by: map[netip.Prefix]int{},
			changed: func(by int) { s.deps.Connections(name, by) }}
		if l = netutil.LimitListener(l, s.cfg.Connections); t != nil {
			l = tls.NewListener(l, t)
		}
		if s.deps.Guard != nil {
			h = s.deps.Guard(h)
		}
		all = append(all, listening{l, h})
		return bound
	}
	at.Public = open(s.cfg.Listen, "listen", s.cfg.AddressConnections, s.cfg.TLS, s.public)
	at.Ops = open(s.cfg.OpsListen, "ops_listen", 0, nil, s.inner)
	if err != nil {
		for _, l := range all {
			err = errors.Join(err, l.Close())
		}
	}
	return all, at, err
}

// serve serves one listener until stop ends or the listener fails. A failure also stops the other listeners.
func (s *Server) serve(ctx, stop context.Context, l listening, failed chan<- struct{}) error {
	server := web.Start(ctx, l, l.handler, Limits(&s.cfg), s.log)
	var err error
	select {
	case err = <-server.Ended:
		failed <- struct{}{}
	case <-stop.Done():
	}
	return errors.Join(err, server.Stop(s.cfg.DrainTimeout, sendAgain))
}

// openKeys reads the sources of facts, and the key set if it is a file. For a URL it only prepares the fetches.
func (s *Server) openKeys() error {
	facts, err := s.cfg.FactSources()
	if err != nil {
		return err
	}
	s.gatewayFacts = facts[configs.FactFromGateway]
	var keys keySet
	log := s.log.With(knobField("serve.keys"))
	switch {
	case !s.cfg.HasTokens():
		return nil
	case s.deps.KeyFile != nil:
		keys, err = newFileKeys(s.deps.KeyFile, log)
	default:
		s.keyURL = newURLSet(s.cfg.KeysURL(), http.DefaultTransport, log)
		keys = s.keyURL
	}
	if err != nil {
		return hongbao.Errorf(hongbao.ClassBroken, "the key set of serve.keys: %w", err)
	}
	s.verifier = newVerifier(&s.cfg, facts[configs.FactFromClaim], keys)
	return nil
}

// The reasons why /readyz reports that the server is not ready.
var (
	errDraining = errors.New("draining")
	errKeys     = errors.New("waiting for the first key set: check that serve.keys answers")
)

// ready returns nil if the server is ready, or the reason for /readyz.
func (s *Server) ready() error {
	if s.draining.Load() {
		return errDraining
	}
	if s.keyURL != nil && !s.keyURL.ready() {
		return errKeys
	}
	return nil
}

// wait waits until ctx has ended and the drain delay is over, or until a listener fails.
func (s *Server) wait(ctx context.Context, failed <-chan struct{}) {
	select {
	case <-failed:
		return
	case <-ctx.Done():
	}
	s.draining.Store(true)
	delay := time.NewTimer(s.cfg.DrainDelay)
	defer delay.Stop()
	select {
	case <-failed:
	case <-delay.C:
	}
}
