package test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	sqlitedb "github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/sinks/remote"
)

// simpleBank is a remote that books every request, also repeated ones. If hold is not nil, answers wait until it is
// closed.
type simpleBank struct {
	*httptest.Server
	mu      sync.Mutex
	booked  map[string]int
	hold    chan struct{}
	arrived chan string
}

func newSimpleBank(t *testing.T) *simpleBank {
	t.Helper()
	b := &simpleBank{booked: map[string]int{}, arrived: make(chan string, 100)}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c map[string]any
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&c) != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		reference := c["reference"].(string)
		b.mu.Lock()
		b.booked[reference]++
		hold := b.hold
		b.mu.Unlock()
		b.arrived <- reference
		if hold != nil {
			<-hold
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(c)
	}))
	t.Cleanup(b.Close)
	return b
}

// once checks that the remote has booked exactly these packets of campaign rain, each once.
func (b *simpleBank) once(t *testing.T, packets ...int64) {
	t.Helper()
	want := map[string]int{}
	for _, p := range packets {
		want[remote.Key("test", "rain", p)] = 1
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Equal(t, want, b.booked)
}

// blindWorkers creates handlers for a remote without queries. The remote may or may not deduplicate requests by key.
type blindWorkers struct {
	*bundle
	*inLedger
	bank *simpleBank
}

func newBlindWorkers(t *testing.T) *blindWorkers {
	t.Helper()
	plan := &planned{forged: map[string]hongbao.Amount{}, money: map[string]string{}}
	b := &blindWorkers{bundle: setup(t, 1).farAlong(t), bank: newSimpleBank(t),
		inLedger: newLedger(t, plan, sqlitedb.Database{Path: filepath.Join(t.TempDir(), "ledger.db")})}
	b.create(t, "rain", "CNY", 10)
	return b
}

func (b *blindWorkers) worker(t *testing.T, retention time.Duration, change ...func(*remote.Config)) *remote.Handler {
	t.Helper()
	cfg := remote.Config{
		URL: b.bank.URL, Deployment: "test", ConnectTimeout: 5 * time.Second, HeaderTimeout: 15 * time.Second,
		Timeout: 18 * time.Second, IdleTimeout: time.Second,
		BodyBytes: 4096, Concurrency: 8, Retention: retention, Margin: time.Minute, ClaimTime: 20 * time.Second,
		Pause:           time.Millisecond,
		BreakerFailures: 1000, BreakerOpen: time.Second, MaxRetryAfter: time.Second,
	}
	for _, f := range change {
		f(&cfg)
	}
	h, err := remote.New(cfg, b.plan, b.settler(t))
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

func rainGrants(packets ...int64) (list []hongbao.Grant) {
	for _, p := range packets {
		list = append(list, hongbao.Grant{Seq: p, Epoch: 1, Campaign: "rain", Packet: p, Amount: amountOf(p),
			User: user(int(p)), Time: time.UnixMilli(1_700_000_000_000).UTC()})
	}
	return list
}

// Another worker gets the grant while the first request is in flight, as after a failover of Redis. It sends no
// request.
func TestAnotherWorkerWhileTheRemoteBooks(t *testing.T) {
	t.Parallel()
	b := newBlindWorkers(t)
	b.bank.hold = make(chan struct{})
	release := sync.OnceFunc(func() { close(b.bank.hold) })
	t.Cleanup(release)
	first := make(chan []error, 1)
	h := b.worker(t, 0)
	go func() { first <- h.Handle(t.Context(), testkit.Batch(rainGrants(1))) }()
	select {
	case reference := <-b.bank.arrived:
		require.Equal(t, remote.Key("test", "rain", 1), reference)
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was sent")
	}
	other := b.worker(t, 0)
	errs := other.Handle(t.Context(), testkit.Batch(rainGrants(1)))
	b.bank.once(t, 1)
	require.Len(t, errs, 1)
	require.True(t, hongbao.IsWaiting(errs[0]), "%v", errs[0])
	release()
	require.Nil(t, <-first)
	require.Nil(t, other.Handle(t.Context(), testkit.Batch(rainGrants(1, 2))))
	b.bank.once(t, 1, 2)
	b.agrees(t)
}

// The remote has booked a credit that exceeds the funding, so the ledger quarantines the grant. When the grant is
// delivered again, no request is sent.
func TestQuarantinedAtTheRemote(t *testing.T) {
	t.Parallel()
	for name, retention := range map[string]time.Duration{"neither": 0, "idempotent": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBlindWorkers(t)
			b.plan.forged[planKey("rain", 2)] = 1_000_000 // a wrong plan; otherwise the plan check would fail first
			list := rainGrants(1, 2, 3)
			list[1].Amount = 1_000_000
			require.Nil(t, b.worker(t, retention).Handle(t.Context(), testkit.Batch(list)))
			aside, err := b.inLedger.ledger.Quarantine(t.Context(), 0, 10)
			require.NoError(t, err)
			require.Len(t, aside, 1)
			require.Equal(t, ledger.OverFunded, aside[0].Reason)
			b.bank.once(t, 1, 2, 3)
			require.Nil(t, b.worker(t, retention).Handle(t.Context(), testkit.Batch(list)))
			b.bank.once(t, 1, 2, 3)
			b.agrees(t)
		})
	}
}

// The ledger did not have the campaign, so its grants went to quarantine and no credit was requested. Then the campaign
// is created. Workers leave the grants to a person. A replay requests only those that no person has decided about.
func TestPutAsideBeforeTheRemote(t *testing.T) {
	t.Parallel()
	b := newBlindWorkers(t)
	list := rainGrants(1, 2, 3)
	for i := range list {
		list[i].Campaign, list[i].Time = "snow", time.Now().UTC().Truncate(time.Millisecond)
	}
	person := stream.Decision{By: "ann", Why: "paid by hand"}
	require.NoError(t, b.inLedger.ledger.Disown(t.Context(), "snow", person))
	require.Equal(t, make([]error, 3), b.settler(t).PutAside(t.Context(), testkit.Batch(list)))
	aside, err := b.inLedger.ledger.Quarantine(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, aside, 3)
	_, err = b.inLedger.ledger.Decide(t.Context(), ledger.Resolution{ID: aside[0].ID, Decision: person}, nil)
	require.NoError(t, err)
	b.create(t, "snow", "CNY", 10)
	recorded := func() (packets []int64) {
		require.NoError(t, b.inLedger.ledger.EachGrant(t.Context(), "snow", func(g hongbao.Grant) error {
			packets = append(packets, g.Packet)
			return nil
		}))
		return packets
	}

	for range 2 {
		require.Nil(t, b.worker(t, time.Hour).Handle(t.Context(), testkit.Batch(list)))
		b.bank.once(t)
		require.Empty(t, recorded(), "the remote has credited none")
	}
	queryable := func(c *remote.Config) { c.Queryable = true }
	for _, g := range list[:2] {
		require.ErrorContains(t, b.worker(t, time.Hour, queryable).RecordBooked(t.Context(), g), "in quarantine")
	}
	require.Empty(t, recorded())
	replay := func(c *remote.Config) { c.Replay = true }
	for range 2 {
		require.Nil(t, b.worker(t, time.Hour, replay).Handle(t.Context(), testkit.Batch(list[:2])))
		require.Equal(t, []int64{2}, recorded(), "a person has decided packet 1")
	}
	require.Equal(t, map[string]int{remote.Key("test", "snow", 2): 2}, b.bank.booked, "each replay sends the same key")
	require.Nil(t, b.worker(t, time.Hour).Handle(t.Context(), testkit.Batch(list)))
	require.Equal(t, []int64{2}, recorded())
	b.agrees(t)
}
