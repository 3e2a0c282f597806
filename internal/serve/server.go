package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/net/netutil"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/web"
)

// Grabber decides grabs. producer.Producer is one: it collects the grabs of all callers into calls.
type Grabber interface {
	Grab(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error)
}

// Reader reads campaigns. Both methods say with shards.ErrNotInRedis that nobody knows the campaign.
type Reader interface {
	// Window reads what a campaign shows to everybody.
	Window(ctx context.Context, campaign string) (shards.Window, error)
	// Receipts reads what a user holds, from where.
	Receipts(ctx context.Context, campaign, user string) (Receipts, error)
}

// Deps are what a Server works with.
type Deps struct {
	Grabber Grabber
	Reader  Reader
	// KeyFile reads the file of Config.Keys; nil if that is a URL. open says who else can read the file; empty for nobody.
	KeyFile func() (text []byte, open string, err error)
	Log     *zap.Logger
}

// Server answers grabs over HTTP. Its methods may be called at once; Run is called once.
type Server struct {
	cfg      Config
	grabber  Grabber
	windows  *windows
	reader   Reader
	keyFile  func() ([]byte, string, error)
	verifier *verifier
	limits   *limits
	log      *zap.Logger
	document []byte
	draining atomic.Bool
}

// sendAgain is what callers do whose requests are cut off.
const sendAgain = "a grab that is sent again with its request id gets its answer"

// logged is how many lines of one kind the log gets a second: every request may be refused.
const logged = 10

// New checks the configuration. It opens nothing.
func New(cfg Config, deps Deps) (*Server, error) {
	err := cfg.Check()
	if deps.Grabber == nil || deps.Reader == nil || deps.Log == nil || (deps.KeyFile == nil) == (cfg.KeysURL() == "") {
		err = errors.Join(err, errors.New("Grabber, Reader and Log are required, and KeyFile if Keys names a file"))
	}
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, grabber: deps.Grabber, reader: deps.Reader, windows: newWindows(deps.Reader), keyFile: deps.KeyFile,
		limits: newLimits(cfg.Rate, cfg.Burst),
		log: deps.Log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
			return zapcore.NewSamplerWithOptions(c, time.Second, logged, 0)
		})),
	}
	s.document, err = Document().MarshalJSON()
	return s, err
}

// Run serves until ctx ends. Then it says that it is not ready, takes requests for the drain delay, and returns when
// those under way are answered or the drain time is over. ready, if not nil, is called once both listeners are open.
func (s *Server) Run(ctx context.Context, ready func(public, ops net.Addr)) error {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if err := s.openKeys(own); err != nil {
		return err
	}
	public, err := web.Listen(ctx, s.cfg.Listen, "serve.listen")
	if err != nil {
		return err
	}
	ops, err := web.Listen(ctx, s.cfg.OpsListen, "serve.ops_listen")
	if err != nil {
		return errors.Join(err, public.Close())
	}
	if ready != nil {
		ready(public.Addr(), ops.Addr())
	}
	public = netutil.LimitListener(public, s.cfg.Connections)
	if s.cfg.TLS != nil {
		public = tls.NewListener(public, s.cfg.TLS)
	}
	outer, inner := s.start(own, public, s.Handler()), s.start(own, ops, s.ops())
	err = s.wait(ctx, outer, inner)
	return errors.Join(err, outer.Stop(s.cfg.DrainTimeout, sendAgain), inner.Stop(s.cfg.DrainTimeout, sendAgain))
}

// openKeys reads the key set for the first time.
func (s *Server) openKeys(ctx context.Context) error {
	var keys *keySet
	var err error
	if s.keyFile != nil {
		keys, err = newFileKeys(ctx, s.keyFile, s.log)
	} else {
		keys, err = newURLKeys(ctx, s.cfg.KeysURL(), s.log)
	}
	if err != nil {
		return hongbao.Errorf(hongbao.ClassBroken, "the key set of serve.keys: %w", err)
	}
	facts, err := s.cfg.facts()
	s.verifier = newVerifier(&s.cfg, facts, keys)
	return err
}

// wait waits until ctx has ended and the drain delay after it is over, or until a listener fails.
func (s *Server) wait(ctx context.Context, outer, inner *web.Server) error {
	select {
	case err := <-outer.Ended:
		return err
	case err := <-inner.Ended:
		return err
	case <-ctx.Done():
	}
	s.draining.Store(true)
	delay := time.NewTimer(s.cfg.DrainDelay)
	defer delay.Stop()
	select {
	case err := <-outer.Ended:
		return err
	case err := <-inner.Ended:
		return err
	case <-delay.C:
		return nil
	}
}

// httpLog takes what net/http has to say. Its message is constant, so the sampler bounds it however texts differ.
type httpLog struct{ *zap.Logger }

// Write implements io.Writer.
func (l httpLog) Write(text []byte) (int, error) {
	l.Info("net/http on a connection", zap.ByteString("text", bytes.TrimSpace(text)))
	return len(text), nil
}

func (s *Server) start(ctx context.Context, l net.Listener, h http.Handler) *web.Server {
	return web.Start(ctx, l, h, web.Limits{
		ReadHeaderTimeout: s.cfg.ReadHeaderTimeout, ReadTimeout: s.cfg.ReadTimeout, WriteTimeout: s.cfg.WriteTimeout,
		IdleTimeout: s.cfg.IdleTimeout, HeaderBytes: s.cfg.HeaderBytes,
	}, log.New(httpLog{s.log}, "", 0))
}
