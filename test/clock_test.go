package test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// ahead sets the idle time of each pending entry to one hour, as a clock that jumps ahead by an hour does.
var ahead = redis.NewScript(`for _, row in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1000)) do
	redis.call('XCLAIM', KEYS[1], ARGV[1], row[2], 0, row[1], 'IDLE', 3600000, 'JUSTID')
end
return 0`)

// heedless is a handler that settles even after its lease has expired. Its first call waits until resume is closed.
type heedless struct {
	hongbao.Handler
	began, resume chan struct{}
	once          sync.Once
	settled       int // number of grants for which Handler returned no error
}

func (h *heedless) Handle(ctx context.Context, batch hongbao.Batch) []error {
	grants := batch.Grants
	h.once.Do(func() {
		close(h.began)
		<-h.resume
	})
	errs := h.Handler.Handle(context.WithoutCancel(ctx), testkit.Batch(grants))
	if errs == nil {
		h.settled += len(grants)
	}
	return errs
}

// The clock of Redis jumps ahead by an hour during a worker's call (F60), so the worker's leases expire. A peer settles
// the same grants, and then the first worker settles them again. Each grant is credited once.
func TestLeasesWhenTheClockIsSetAhead(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	const packets = 300
	l, settler := b.ledger(t, b.load(t, spec("rain", 2*packets, 100_000))) // enough to pay everyone twice
	want := b.crowd(t, "rain", packets)
	start := func(name string, h hongbao.Handler) (w *consumer.Consumer, stop func()) {
		return b.work(t, "balance", name, h, func(c *consumer.Config) {
			c.Poll, c.Block, c.Lease = 20*time.Millisecond, 20*time.Millisecond, time.Minute
		})
	}
	h := &heedless{Handler: settler, began: make(chan struct{}), resume: make(chan struct{})}
	_, stopSlow := start("slow", h)
	<-h.began
	require.NoError(t, ahead.Run(t.Context(), b.rdb, []string{b.store.Shard(0).Keys.Events()}, "balance").Err())
	peer, stopPeer := start("peer", settler)
	testkit.Eventually(t, 30*time.Second, func() bool { return peer.Stats().Done == packets },
		"the peer has settled all grants, including the slow worker's")
	require.Positive(t, peer.Stats().Taken, "the peer took over entries")
	close(h.resume)
	stopSlow()
	stopPeer()
	require.Positive(t, h.settled, "the slow worker settled again what the peer had settled")
	for name, amount := range want {
		balance, _, err := l.Balance(t.Context(), tables.UserAccount(name, "CNY"))
		require.NoError(t, err)
		require.Equal(t, amount, balance, name)
	}
	differences, err := books.Of(l.Tables()).CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
	require.True(t, b.settled(t))
	require.Zero(t, b.dead(t))
}
