package producer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Producer decides grabs. Any number of goroutines may call its methods concurrently.
type Producer struct {
	cfg    Config
	log    *zap.Logger
	store  *store.Store
	ctx    context.Context // ends when Close gives up waiting
	cancel context.CancelFunc

	looks    singleflight.Group // at campaigns that have no lanes, and at servers
	watching sync.Once
	watches  sync.WaitGroup // goroutines that run until ctx ends, at most
	sending  sync.WaitGroup // loops that send, and first looks

	// campaigns is read by every grab without a lock; a change, under mu, replaces the map.
	campaigns atomic.Pointer[map[string]*campaign]
	closed    atomic.Bool // set under mu
	left      atomic.Bool

	mu      sync.RWMutex
	unknown map[string]time.Time // campaigns that are not there, and until when to believe it
	servers map[redis.UniversalClient]inspected
}

// New checks the configuration. It does not connect yet.
func New(cfg Config) (*Producer, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	st, err := store.Of(cfg.Redis, cfg.Space)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Producer{
		cfg: cfg, store: st, ctx: ctx, cancel: cancel, log: cfg.Log,
		unknown: map[string]time.Time{}, servers: map[redis.UniversalClient]inspected{},
	}
	p.campaigns.Store(&map[string]*campaign{})
	if p.log == nil {
		p.log = zap.NewNop()
	}
	st.Enter()
	return p, nil
}

// ErrClosed reports that the producer was closed. Nothing happened.
var ErrClosed = errors.New("the producer is closed")

// Close takes no more grabs, and waits until ctx ends for those that were taken. Grabs that are still under way then
// get an Unknown error at once. Close itself returns when Redis' client has given up as well, within its read timeout.
// A second call waits too.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed.Store(true)
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		p.sending.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = hongbao.Errorf(hongbao.ClassUnknown, "producer closed while grabs were under way: %w", ctx.Err())
	}
	p.cancel()
	<-done
	p.watches.Wait()
	if p.left.CompareAndSwap(false, true) && ctx.Err() == nil {
		_ = p.store.Leave(ctx) // a recoverer waits a few seconds for a line that stays
	}
	return err
}
