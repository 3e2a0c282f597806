package producer

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// Producer decides grabs. Its methods may be called at once by any number of goroutines.
type Producer struct {
	cfg    Config
	layout *shards.Layout
	ctx    context.Context // ends when Close gives up waiting
	cancel context.CancelFunc

	log *zap.Logger

	looks    singleflight.Group // at campaigns that have no lane, and at servers
	watching sync.Once
	parts    sync.WaitGroup // what runs until ctx ends

	mu      sync.RWMutex
	lanes   map[string]*lane
	unknown map[string]time.Time // campaigns that are not there, and until when that holds
	servers map[redis.UniversalClient]inspected
	closed  bool
	flights sync.WaitGroup
}

// New checks the configuration. It talks to nobody yet.
func New(cfg Config) (*Producer, error) {
	layout, err := cfg.check()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Producer{
		cfg: cfg, layout: layout, ctx: ctx, cancel: cancel, log: cfg.Log,
		lanes: map[string]*lane{}, unknown: map[string]time.Time{}, servers: map[redis.UniversalClient]inspected{},
	}
	if p.log == nil {
		p.log = zap.NewNop()
	}
	return p, nil
}

// ErrClosed says that the producer was closed; nothing happened.
var ErrClosed = errors.New("the producer is closed")

// Grab asks for a packet and returns the answer. If g has no request id, and the campaign gives one packet a user, an
// id is made up and written into g, so that g can be repeated after an error.
//
// When ctx ends first the error is Unknown: the grab may be decided all the same, and repeating it with the same
// request id tells.
func (p *Producer) Grab(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error) {
	if err := g.Check(); err != nil {
		return hongbao.Answer{}, err
	}
	l, err := p.lane(ctx, g.Campaign)
	if errors.Is(err, shards.ErrFrozen) {
		return hongbao.Answer{Outcome: hongbao.OutcomeFrozen, Time: time.Now()}, nil
	}
	if err != nil {
		return hongbao.Answer{}, err
	}
	if l == nil {
		return hongbao.Answer{Outcome: hongbao.OutcomeUnknownCampaign, Time: time.Now()}, nil
	}
	if g.RequestID == "" {
		if l.info().hold > 1 {
			return hongbao.Answer{}, hongbao.Errorf(hongbao.ClassPermanent,
				"grab in campaign %s without a request id: a user may have %d packets there, so each grab needs an id of its own "+
					"to tell a repeat from a new one", g.Campaign, l.info().hold)
		}
		g.RequestID = newRequestID()
	}
	return p.grabUntilDecided(ctx, l, g)
}

// grabUntilDecided sends the grab until it is decided, or was undecided for long enough.
func (p *Producer) grabUntilDecided(ctx context.Context, l *lane, g *hongbao.Grab) (hongbao.Answer, error) {
	var giveUp time.Time
	for {
		answer, err := l.send(ctx, g)
		if err != nil || answer.Outcome.Final() {
			return answer, err
		}
		now := time.Now()
		if giveUp.IsZero() {
			giveUp = now.Add(p.cfg.UndecidedTimeout)
		}
		if pause := 20*time.Millisecond + rand.N(80*time.Millisecond); !now.Add(pause).Before(giveUp) || !wait(ctx, pause) {
			return answer, nil
		}
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Close takes no more grabs, and waits for those that were taken until ctx ends; what is still under way then gets an
// Unknown error at once, and Close itself returns when Redis' client has given up as well, within its read timeout. A
// second call waits too.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	landed := make(chan struct{})
	go func() {
		p.flights.Wait()
		close(landed)
	}()
	var err error
	select {
	case <-landed:
	case <-ctx.Done():
		err = hongbao.Errorf(hongbao.ClassUnknown, "producer closed while grabs were under way: %w", ctx.Err())
	}
	p.cancel()
	<-landed
	p.parts.Wait()
	return err
}

// newRequestID makes up an id: 36 random bits, enough to tell one user's grabs in one campaign apart.
func newRequestID() string {
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._"
	var id [6]byte
	bits := rand.Uint64()
	for i := range id {
		id[i] = letters[bits&63]
		bits >>= 6
	}
	return string(id[:])
}
