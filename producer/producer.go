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

// Producer sends grabs to Redis and returns the answers. It is safe for concurrent use.
type Producer struct {
	cfg    Config
	log    *zap.Logger
	store  *store.Store
	ctx    context.Context // canceled when Close stops waiting
	cancel context.CancelFunc

	looks    singleflight.Group // shares lookups of campaigns and inspections of servers
	watching sync.Once
	watches  sync.WaitGroup // goroutines that end with ctx, or earlier
	sending  sync.WaitGroup // send loops and lookups of campaigns

	// Grabs read campaigns without a lock. A change replaces the map, under mu.
	campaigns atomic.Pointer[map[string]*campaign]
	closed    atomic.Bool // set under mu
	left      atomic.Bool

	mu      sync.RWMutex
	unknown map[string]time.Time // missing campaigns, each until when to remember that
	servers map[redis.UniversalClient]inspected
}

// New returns a Producer, or an error that names every problem of the configuration. It opens no connection.
func New(cfg Config) (*Producer, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	st := cfg.Deployment.Store()
	ctx, cancel := context.WithCancel(context.Background())
	p := &Producer{
		cfg: cfg, store: st, ctx: ctx, cancel: cancel, log: cfg.Deployment.Log(),
		unknown: map[string]time.Time{}, servers: map[redis.UniversalClient]inspected{},
	}
	p.campaigns.Store(&map[string]*campaign{})
	st.Enter()
	return p, nil
}

// ErrClosed means that the producer was closed before the grab was sent. Nothing happened.
var ErrClosed = errors.New("the producer is closed")

// Close makes new grabs fail with ErrClosed, and waits for the grabs in flight until ctx ends. Grabs that are then
// still in flight get an Unknown error at once. Close returns after the Redis client has given up too, at most its
// read timeout later. Further calls of Close also wait.
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
		err = hongbao.Errorf(hongbao.ClassUnknown, "producer closed while grabs were in flight: %w", ctx.Err())
	}
	p.cancel()
	<-done
	p.watches.Wait()
	if p.left.CompareAndSwap(false, true) && ctx.Err() == nil {
		_ = p.store.Leave(ctx) // otherwise a recovery would wait some seconds for this process
	}
	return err
}
