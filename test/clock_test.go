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
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// ahead does to pending entries what a clock does that is set ahead by an hour: they have been idle for that hour, and
// nothing else.
var ahead = redis.NewScript(`for _, row in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1000)) do
	redis.call('XCLAIM', KEYS[1], ARGV[1], row[2], 0, row[1], 'IDLE', 3600000, 'JUSTID')
end
return 0`)

// heedless settles whatever has become of its lease. Its first call waits for goOn.
type heedless struct {
	hongbao.Handler
	began, goOn chan struct{}
	once        sync.Once
	settled     int // grants that it was told are settled
}

func (h *heedless) Handle(ctx context.Context, grants []hongbao.Grant) []error {
	h.once.Do(func() {
		close(h.began)
		<-h.goOn
	})
	errs := h.Handler.Handle(context.WithoutCancel(ctx), grants)
	if errs == nil {
		h.settled += len(grants)
	}
	return errs
}

// The clock of Redis is set ahead by an hour while a worker is in the middle (F60): its leases are over at that moment,
// a peer settles the same grants, and so does the first worker after that. Each grant is credited once.
func TestLeasesWhenTheClockIsSetAhead(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	const packets = 300
	l, settler := b.ledger(t, b.load(t, spec("rain", 2*packets, 100_000))) // the pool could pay everybody twice
	want := b.crowd(t, "rain", packets)
	start := func(name string, h hongbao.Handler) (w *consumer.Consumer, stop func()) {
		return b.work(t, "balance", name, h, func(c *consumer.Config) {
			c.Poll, c.Block, c.Lease = 20*time.Millisecond, 20*time.Millisecond, time.Minute
		})
	}
	h := &heedless{Handler: settler, began: make(chan struct{}), goOn: make(chan struct{})}
	_, stopSlow := start("slow", h)
	<-h.began
	require.NoError(t, ahead.Run(t.Context(), b.rdb, []string{b.store.Shard(0).Keys.Events()}, "balance").Err())
	peer, stopPeer := start("peer", settler)
	testkit.Eventually(t, 30*time.Second, func() bool { return peer.Stats().Done == packets },
		"the peer has settled all, and what the slow one has in its hands")
	require.Positive(t, peer.Stats().Taken, "the leases were doubled")
	close(h.goOn)
	stopSlow()
	stopPeer()
	require.Positive(t, h.settled, "the slow one settled what the peer had settled")
	for name, amount := range want {
		balance, _, err := l.Balance(t.Context(), ledger.UserAccount(name, "CNY"))
		require.NoError(t, err)
		require.Equal(t, amount, balance, name)
	}
	differences, err := l.CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
	require.True(t, b.settled(t))
	require.Zero(t, b.dead(t))
}
