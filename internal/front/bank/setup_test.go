package bank

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/front/web/webtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memBook is a ledger in memory, with API keys. If err is set, every call returns it; if hold is set, calls wait for
// it.
type memBook struct {
	access.Source // nil: these tests use no sessions

	mu      sync.Mutex
	credits []payment.Credit
	keys    []access.Key
	asked   int // for the keys
	denied  atomic.Int64
	hasRead []string // guarded by mu
	err     error
	keysErr error // returned by reads of API keys only
	hold    chan struct{}
	began   chan struct{}
}

func (m *memBook) Credit(_ context.Context, credits []payment.Credit) ([]payment.Credited, error) {
	if m.hold != nil {
		m.began <- struct{}{}
		<-m.hold
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]payment.Credited, len(credits))
	for i, c := range credits {
		out[i] = m.one(c)
	}
	return out, m.err
}

func (m *memBook) one(c payment.Credit) payment.Credited {
	for _, has := range m.credits {
		if has.Client != c.Client {
			continue
		}
		same := has
		same.Created = c.Created
		switch {
		case same == c:
			return payment.Credited{Credit: has, Repeated: true}
		case has.Key == c.Key:
			return payment.Credited{Err: hongbao.Errorf(hongbao.ClassConflict, "%w", payment.ErrKeyReused)}
		case has.Reference == c.Reference:
			return payment.Credited{Err: hongbao.Errorf(hongbao.ClassConflict, "%w", payment.ErrReferenceReused)}
		}
	}
	if c.Account == "full" {
		return payment.Credited{Err: hongbao.Errorf(hongbao.ClassPermanent, "too much")}
	}
	if c.Account == "poor" {
		return payment.Credited{Err: hongbao.Errorf(hongbao.ClassTransient, "%w", payment.ErrFundExhausted)}
	}
	c.Created = time.UnixMilli(1_700_000_000_000 + int64(len(m.credits))).UTC()
	m.credits = append(m.credits, c)
	return payment.Credited{Credit: c}
}

func (m *memBook) CreditByReference(_ context.Context, client, reference string) (payment.Credit, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.credits, func(c payment.Credit) bool { return c.Client == client && c.Reference == reference })
	if i < 0 {
		return payment.Credit{}, false, m.err
	}
	return m.credits[i], true, m.err
}

func (m *memBook) AccountBalances(_ context.Context, account string) ([]payment.AccountBalance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := payment.AccountBalance{Currency: "CNY"}
	for _, c := range m.credits {
		if c.Account == account {
			b.Balance, b.Credits = b.Balance+c.Amount, b.Credits+1
		}
	}
	if b.Credits == 0 {
		return nil, m.err
	}
	return []payment.AccountBalance{b}, m.err
}

func (m *memBook) Statement(_ context.Context, page payment.StatementPage) ([]payment.StatementLine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []payment.StatementLine
	number := int64(0)
	for _, c := range m.credits {
		if c.Account != page.Account || c.Currency != page.Currency {
			continue
		}
		if number++; number > page.After && len(list) < page.Limit {
			list = append(list, payment.StatementLine{Number: number, Credit: c})
		}
	}
	return list, m.err
}

func (m *memBook) Credits(_ context.Context, page payment.CreditPage) ([]payment.Credit, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(m.credits), func(c payment.Credit) bool {
		return c.Client != page.Client ||
			c.Reference <= page.After
	})
	slices.SortFunc(list, func(a, b payment.Credit) int { return strings.Compare(a.Reference, b.Reference) })
	return list[:min(page.Limit, len(list))], m.err
}

// Live implements access.Source.
func (m *memBook) Live(context.Context) (access.Live, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	return access.Live{Keys: slices.Clone(m.keys)}, errors.Join(m.err, m.keysErr)
}

// noteRead records the reads that would go into the journal.
func (m *memBook) noteRead(ctx context.Context, r access.Read) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := access.NewEntry(ctx, r.Action)
	m.hasRead = append(m.hasRead, fmt.Sprint(e.Who, " ", r.Action, " ", r.Account, " ", access.AddressOf(ctx), " ", e.RequestID != ""))
}

// deny records the refusals that would go into the journal.
func (m *memBook) deny(context.Context, access.Action, string, error) { m.denied.Add(1) }

// newKey creates an API key with a role for a client; the client may be "".
func newKey(role access.Role, client string) (access.Key, string) {
	k, text := access.NewKey(role, nil)
	k.Client = client
	return k, text
}

var (
	clientKey1, clientText  = newKey(access.RoleClient, "c1")
	clientKey2, theirText   = newKey(access.RoleClient, "c2")
	accountKey, accountText = newKey(access.RoleAccountant, "c1")
	_, strangeText          = newKey(access.RoleClient, "c1")
)

func testConfig() Config {
	return Config{
		Listen: "127.0.0.1:0", ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second,
		WriteTimeout: 5 * time.Second, IdleTimeout: time.Second, HandleTimeout: 4 * time.Second,
		DrainTimeout: 5 * time.Second,
		BatchBytes:   64 << 10, BatchCredits: 20, InFlight: 16, Connections: 64,
	}
}

func newBook() *memBook { return &memBook{keys: []access.Key{clientKey1, clientKey2, accountKey}} }

func (m *memBook) deps(log *zap.Logger) Deps {
	return Deps{Book: m, Reader: m, Keys: access.NewAuthority(m), Denied: m.deny, HasRead: m.noteRead, Log: log}
}

type server struct {
	*memBook
	balance *Balance
	url     string
	logs    *observer.ObservedLogs
	stop    func() // and wait
}

func setup(t *testing.T, change ...func(*Config)) *server {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	s := &server{memBook: newBook(), logs: logs}
	cfg := testConfig()
	for _, f := range change {
		f(&cfg)
	}
	b, err := NewBalance(cfg, s.deps(zap.New(core)))
	require.NoError(t, err)
	s.balance = b
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() { ended <- b.Run(ctx, func(a net.Addr) { ready <- a }) }()
	s.url = "http://" + (<-ready).String()
	s.stop = sync.OnceFunc(func() { cancel(); require.NoError(t, <-ended) })
	t.Cleanup(s.stop)
	return s
}

type (
	reply = webtest.Answer
	tweak = webtest.Tweak
)

var as, header = webtest.As, webtest.Header

// call sends one valid request, changed by the tweaks, on a new connection. Requests for accounts use the accountant's
// key.
func (s *server) call(t *testing.T, method, path, body string, tweaks ...tweak) *reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	key := clientText
	if strings.HasPrefix(path, "/v1/accounts/") {
		key = accountText
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPost {
		req.Header.Set("Idempotency-Key", `"k1"`)
	}
	for _, f := range tweaks {
		f(req)
	}
	a, err := webtest.Send(req)
	require.NoError(t, err)
	return a
}

func (s *server) booked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.credits)
}

const good = `{"reference":"r1","account":"u1","currency":"CNY","amount":100}`
