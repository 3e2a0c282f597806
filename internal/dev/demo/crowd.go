package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/producer"
)

const (
	callers   = 256
	twice     = 5  // one in so many users grabs a second time
	loseEvery = 40 // one in so many answers of Redis is lost
)

// crowd simulates the demo's users. Its counts may be read after run has returned.
type crowd struct {
	d        *Demo
	rdb      *redis.Client
	producer *producer.Producer
	lost     atomic.Int64

	mu       sync.Mutex
	outcomes map[hongbao.Outcome]int64
	amounts  []hongbao.Amount
	latency  *hdrhistogram.Histogram // microseconds
	grabs    int64
	again    int64 // second grabs, and how many of these got the first one's packet
	same     int64
	took     time.Duration
}

func newCrowd(d *Demo) (*crowd, error) {
	c := &crowd{d: d, outcomes: map[hongbao.Outcome]int64{}, latency: hdrhistogram.New(1, 60_000_000, 3)}
	var err error
	if c.rdb, err = lossyRedis(d.Config, loseEvery, func() { c.lost.Add(1) }); err != nil {
		return nil, err
	}
	cfg := d.Config.ProducerConfig()
	cfg.Redis, cfg.Space = c.rdb, d.Config.Space()
	c.producer, err = producer.New(cfg)
	return c, err
}

// run lets every user grab, and returns when all have their answers.
func (c *crowd) run(ctx context.Context) error {
	start := time.Now()
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for u := i; u < c.d.Users && errs[i] == nil; u += callers {
				errs[i] = c.user(ctx, u)
			}
		})
	}
	wg.Wait()
	c.took = time.Since(start)
	return errors.Join(errors.Join(errs...), c.producer.Close(context.WithoutCancel(ctx)), c.rdb.Close())
}

// user grabs, and some users grab once more under another request id, so that the second grab is no repeat.
func (c *crowd) user(ctx context.Context, u int) error {
	first, err := c.grab(ctx, u)
	if err != nil || u%twice != 0 {
		return err
	}
	second, err := c.grab(ctx, u)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again++
	if second.Outcome == hongbao.OutcomeAlreadyGranted && len(first.Receipts) == 1 &&
		second.Receipts[0] == first.Receipts[0] {
		c.same++
	} else if len(first.Receipts) > 0 {
		return fmt.Errorf("user %d got packet %d, and then %s instead of the same receipt", u, first.Receipts[0].Packet,
			second.Outcome)
	}
	return nil
}

func (c *crowd) grab(ctx context.Context, u int) (hongbao.Answer, error) {
	g := hongbao.Grab{Campaign: campaignID, User: fmt.Sprintf("user-%06d", u)}
	start := time.Now()
	a, err := c.producer.Grab(ctx, &g)
	spent := time.Since(start)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		return a, err
	}
	c.grabs++
	c.outcomes[a.Outcome]++
	if a.Outcome == hongbao.OutcomeGranted {
		c.amounts = append(c.amounts, a.Receipts[0].Amount)
	}
	if err := c.latency.RecordValue(spent.Microseconds()); err != nil {
		return a, fmt.Errorf("note a latency: %w", err)
	}
	return a, nil
}

// lossyRedis returns a client to the same server. One in every answers is lost after the server has acted.
func lossyRedis(cfg *configs.Config, every int64, lost func()) (*redis.Client, error) {
	base, ok := cfg.RedisClient().(*redis.Client)
	if !ok {
		return nil, errors.New("the demo needs a standalone Redis")
	}
	opts := *base.Options()
	if err := base.Close(); err != nil {
		return nil, fmt.Errorf("close a client: %w", err)
	}
	n := newEvery(every)
	opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{Timeout: opts.DialTimeout}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &lossyConn{Conn: c, loses: n, lost: lost}, nil
	}
	return redis.NewClient(&opts), nil
}

// every counts; its next is true for each kth count.
type every struct {
	n atomic.Int64
	k int64
}

func newEvery(k int64) *every { return &every{k: k} }

func (e *every) next() bool { return e.n.Add(1)%e.k == 0 }

// lossyConn is a connection that loses some answers: it reads the answer, so the server has acted, and then closes. It
// never loses the first three answers, which belong to the handshake.
type lossyConn struct {
	net.Conn
	loses *every
	lost  func()
	reads int
}

func (c *lossyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.reads++; err != nil || c.reads <= 3 || !c.loses.next() {
		return n, err
	}
	c.lost()
	return 0, errors.Join(io.ErrUnexpectedEOF, c.Conn.Close())
}
