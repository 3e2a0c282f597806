package test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/front/bank"
	"github.com/hongbao-project/hongbao/internal/ledger"
	kept "github.com/hongbao-project/hongbao/internal/ledger/access"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/sinks/remote"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Client worker has two keys: one books credits, the other reads accounts.
var (
	bankKey, balanceToken   = bankKeyOf(access.RoleClient)
	accountKey, accountText = bankKeyOf(access.RoleAccountant)
)

func bankKeyOf(role access.Role) (access.Key, string) {
	k, text := access.NewKey(role, nil)
	k.Client = "worker"
	return k, text
}

// remoteBalance starts a balance server with its own ledger, as `hongbao balance` runs it.
func remoteBalance(t *testing.T) (url string, sut *ledger.Ledger) {
	t.Helper()
	sut = newDatabase(t, sqlite(filepath.Join(t.TempDir(), "balance.db")))
	for _, key := range []access.Key{bankKey, accountKey} {
		_, err := kept.Of(sut.Tables()).AddKey(t.Context(), key)
		require.NoError(t, err)
	}
	for _, currency := range []string{"CNY", "USD"} {
		_, err := sut.Fund(t.Context(), model.Funding{Client: "worker", ID: currency, Currency: currency,
			Amount: hongbao.MaxAmount, Decision: stream.Decision{By: "ann", Why: "tests"}})
		require.NoError(t, err)
	}
	b, err := bank.NewBalance(bank.Config{
		Listen: "127.0.0.1:0", ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second,
		IdleTimeout:  time.Minute, HandleTimeout: 20 * time.Second, DrainTimeout: 10 * time.Second,
		BatchBytes: 1 << 20, BatchCredits: 500, InFlight: 1000, Connections: 1000,
	}, bank.Deps{Book: sut, Reader: sut, Keys: access.NewAuthority(kept.Of(sut.Tables())), Log: zap.NewNop(),
		Denied:  func(context.Context, access.Action, string, error) {},
		HasRead: func(context.Context, access.Read) {}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() { ended <- b.Run(ctx, func(a net.Addr) { ready <- a }) }()
	addr := <-ready
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		require.NoError(t, sut.Close())
	})
	return "http://" + addr.String(), sut
}

// liar is a proxy in front of a balance server that injects faults. It may change or withhold the answer to a request
// that it has forwarded, or answer without forwarding, or forward a request after the caller's timeout.
type liar struct {
	*httptest.Server
	target string
	late   sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	share  float64 // share of requests that get a fault
	next   int     // kind of the next fault
	lied   [lies]int
	wrong  map[string]bool // request bodies that got a wrong answer
}

func newLiar(t *testing.T, target string) *liar {
	t.Helper()
	l := &liar{target: target, random: rand.New(rand.NewPCG(1, 2)), share: 0.3, wrong: map[string]bool{}}
	l.Server = httptest.NewServer(l)
	t.Cleanup(func() { l.Close(); l.late.Wait() })
	return l
}

// The faults that a request can get. All faults from lieSilent on forward the request.
const (
	truth     = iota - 1
	lieUnsent // answered at once, never forwarded
	lieLate   // forwarded after the caller's timeout, never answered
	lieSilent // never answered
	lie500
	lie502
	lie504
	lieWrong // answered with a wrong amount
	lieCut   // the answer is cut in the middle
	lieSlow  // answered after the caller's timeout
	lies
)

func (l *liar) draw(r *http.Request, body []byte) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.random.Float64() >= l.share {
		return truth
	}
	// A query never gets a wrong answer. A request gets a wrong answer at most once, because a remote that repeats a
	// wrong answer needs a person.
	which, get := l.next, r.Method == http.MethodGet
	if which == lieWrong && (get || l.wrong[string(body)]) || which == lieLate && get {
		which = lie500
	} else if l.next = (l.next + 1) % lies; which == lieWrong {
		l.wrong[string(body)] = true
	}
	l.lied[which]++
	return which
}

// fired checks that each kind of fault happened.
func (l *liar) fired(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for which, n := range l.lied {
		require.Positive(t, n, "fault %d never happened", which)
	}
}

func (l *liar) forward(r *http.Request, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, l.target+r.URL.EscapedPath(),
		bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header = r.Header.Clone()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, data, err
}

func (l *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch which := l.draw(r, body); which {
	case truth:
		if status, answer, err := l.forward(r, body); err == nil {
			w.WriteHeader(status)
			_, _ = w.Write(answer)
		}
	case lieUnsent:
		w.WriteHeader(http.StatusServiceUnavailable)
	case lieLate:
		l.late.Add(1)
		time.AfterFunc(500*time.Millisecond, func() {
			defer l.late.Done()
			_, _, _ = l.forward(r, body)
		})
		hangUp(w)
	default:
		_, answer, err := l.forward(r, body)
		if err != nil {
			hangUp(w)
			return
		}
		lie(w, r, which, answer)
	}
}

func hangUp(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

func lie(w http.ResponseWriter, r *http.Request, which int, answer []byte) {
	switch which {
	case lieSilent:
		hangUp(w)
	case lie500:
		w.WriteHeader(http.StatusInternalServerError)
	case lie502:
		w.WriteHeader(http.StatusBadGateway)
	case lie504:
		w.WriteHeader(http.StatusGatewayTimeout)
	case lieWrong:
		_, _ = w.Write([]byte(strings.Replace(string(answer), `"amount":`, `"amount":1`, 1)))
	case lieCut:
		_, _ = w.Write(answer[:len(answer)/2])
	case lieSlow:
		<-r.Context().Done() // the caller has given up
		_, _ = w.Write(answer)
	}
}

// remoteWorker starts a consumer that settles at the remote. The returned function stops it.
func (b *bundle) remoteWorker(t *testing.T, name, url string, db *ledger.Ledger, sut remote.Ledger,
	change func(*remote.Config)) (*consumer.Consumer, func()) {
	t.Helper()
	cfg := remote.Config{
		URL: url, Token: balanceToken, Deployment: "test", ConnectTimeout: time.Second, HeaderTimeout: 250 * time.Millisecond,
		Timeout:     300 * time.Millisecond,
		IdleTimeout: 5 * time.Second, BodyBytes: 4096, Concurrency: 32, Retention: 24 * time.Hour, Margin: time.Minute,
		Queryable: true,
		ClaimTime: 2 * time.Second, Repeats: 3, Pause: 5 * time.Millisecond, BreakerFailures: 1000,
		BreakerOpen: 50 * time.Millisecond, MaxRetryAfter: time.Second,
	}
	change(&cfg)
	h, err := remote.New(cfg, &plannedOf{b.plans(t, db), db}, sut)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return b.work(t, "balance", name, h, func(c *consumer.Config) {
		c.Deployment = deployment.Of(b.store, b.log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel)))
		c.Backoff, c.MaxBackoff, c.Poll = 20*time.Millisecond, 200*time.Millisecond, 20*time.Millisecond
		c.MaxAttempts, c.Lease = 100, 3*time.Second
	})
}

type plannedOf struct {
	*campaign.Plans
	ledger *ledger.Ledger
}

func (p *plannedOf) Currency(ctx context.Context, id string) (string, error) {
	c, found, err := p.ledger.Campaign(ctx, id)
	if err == nil && !found {
		err = errors.New("no such campaign")
	}
	return c.Spec.Currency, err
}

func (b *bundle) plans(t *testing.T, l *ledger.Ledger) *campaign.Plans {
	t.Helper()
	plans, err := campaign.NewPlans(campaign.PlansConfig{MaxPackets: hongbao.MaxPackets,
		Source: l.Plan})
	require.NoError(t, err)
	return plans
}

// crowd lets users grab all packets, and returns the amount of each user.
func (b *bundle) crowd(t *testing.T, id string, packets int) map[string]hongbao.Amount {
	t.Helper()
	p := b.producer(t)
	want := make(map[string]hongbao.Amount, packets)
	for i := range packets {
		a, err := p.Grab(t.Context(), &hongbao.Grab{Campaign: id, User: user(i)})
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
		want[user(i)] = a.Receipts[0].Amount
	}
	return want
}

// paid checks that the balance server has each of these credits once, and no others.
func paid(t *testing.T, l *ledger.Ledger, want map[string]hongbao.Amount) {
	t.Helper()
	differences, err := books.Of(l.Tables()).CheckCredits(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
	for account, amount := range want {
		balances, err := l.AccountBalances(t.Context(), account)
		require.NoError(t, err)
		require.Equal(t, []payment.AccountBalance{{Currency: "CNY", Balance: amount, Credits: 1}}, balances, account)
	}
}

// A worker settles at a balance server through a proxy that injects faults. Some credits are booked although the answer
// is an error, wrong or late. Nothing is credited twice, and every credit that a query can resolve is resolved. One of
// the workers is stopped in the middle.
func TestRemoteBalanceBehindALiar(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*remote.Config){
		"idempotent": func(c *remote.Config) { c.Queryable = false },
		"both":       func(*remote.Config) {},
		"batches":    func(c *remote.Config) { c.BatchCredits = 4 },
		"queryable":  func(c *remote.Config) { c.Retention, c.Margin, c.QueryFinal = 0, 0, 3*time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 2)
			const packets = 200
			db, sut := b.ledger(t, b.load(t, spec("rain", packets, 10_000)))
			want := b.crowd(t, "rain", packets)
			url, bank := remoteBalance(t)
			l := newLiar(t, url)
			c1, stop := b.remoteWorker(t, "w1", l.URL, db, sut, change)
			testkit.Eventually(t, 60*time.Second, func() bool { return c1.Stats().Done >= packets/4 },
				"the first worker has settled a quarter")
			stop()
			c2, _ := b.remoteWorker(t, "w2", l.URL, db, sut, change)
			testkit.Eventually(t, 120*time.Second, func() bool {
				differences, err := books.Of(bank.Tables()).CheckCredits(t.Context())
				require.NoError(t, err)
				require.Empty(t, differences)
				return c1.Stats().Done+c2.Stats().Done >= packets && b.settled(t)
			}, "all settled, none dead")
			l.late.Wait()
			paid(t, bank, want)
			l.fired(t)
			require.Zero(t, b.dead(t), "there are no dead letters")
			pending, err := sut.Pending(t.Context(), 0, hongbao.Grant{}, 10)
			require.NoError(t, err)
			require.Empty(t, pending)
		})
	}
}

// settled reports whether no entry is pending any more.
func (b *bundle) settled(t *testing.T) bool {
	t.Helper()
	for i := range b.store.Len() {
		k := b.store.Shard(i)
		p, err := b.rdb.XPending(t.Context(), k.Keys.Events(), "balance").Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			require.NoError(t, err)
		}
		if p != nil && p.Count > 0 {
			return false
		}
	}
	return true
}

func (b *bundle) dead(t *testing.T) (n int64) {
	t.Helper()
	for i := range b.store.Len() {
		m, err := b.rdb.XLen(t.Context(), b.store.Shard(i).Keys.Dead("balance")).Result()
		require.NoError(t, err)
		n += m
	}
	return n
}
