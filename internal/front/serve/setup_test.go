package serve

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/front/web/webtest"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	secret = []byte("0123456789abcdef0123456789abcdef")

	gatewayKey, gatewayText = access.NewKey(access.RoleGateway, []string{"granted", "several", "counts", "transient",
		"absent", "unknown_campaign", "panics"})
	viewerKey, viewerText   = access.NewKey(access.RoleViewer, nil)
	wholeKey, wholeText     = access.NewKey(access.RoleGateway, nil)
	clientKey, clientText   = bankKey(access.RoleClient)
	accountKey, accountText = bankKey(access.RoleAccountant)
	apiKeys                 = access.NewAuthority(keyList{keys: []access.Key{gatewayKey, viewerKey, wholeKey, clientKey, accountKey}})
	rsaKey                  = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	ecKey                   = sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	_, edKey, _             = ed25519.GenerateKey(rand.Reader)
)

// bankKey returns an API key for the balance API.
func bankKey(role access.Role) (access.Key, string) {
	k, text := access.NewKey(role, nil)
	k.Client = "worker"
	return k, text
}

// keyList implements the ledger of API keys. It may be unreachable.
type keyList struct {
	access.Source // nil: these tests use no sessions
	keys          []access.Key
	err           error
}

func (l keyList) Live(context.Context) (access.Live, error) { return access.Live{Keys: l.keys}, l.err }

// jwk returns a key in JSON Web Key form.
func jwk(t testing.TB, key any, kid, alg string) json.RawMessage {
	t.Helper()
	k, err := jwkset.NewJWKFromKey(key, jwkset.JWKOptions{
		Marshal:  jwkset.JWKMarshalOptions{Private: true},
		Metadata: jwkset.JWKMetadataOptions{KID: kid, ALG: jwkset.ALG(alg)},
	})
	require.NoError(t, err)
	text, err := json.Marshal(k.Marshal())
	require.NoError(t, err)
	return text
}

func set(t testing.TB, keys ...json.RawMessage) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"keys": keys})
	require.NoError(t, err)
	return text
}

func allKeys(t testing.TB) []byte {
	t.Helper()
	return set(t, jwk(t, secret, "hs", "HS256"), jwk(t, rsaKey().Public(), "rs", "RS256"),
		jwk(t, ecKey().Public(), "es", "ES256"), jwk(t, edKey.Public(), "ed", "EdDSA"))
}

// token describes a token. change alters the claims and the header of a valid token.
type token struct {
	method jwt.SigningMethod
	key    crypto.PrivateKey
	kid    string
}

func hs() token { return token{jwt.SigningMethodHS256, secret, "hs"} }

func (k token) sign(t testing.TB, user string, change ...func(claims jwt.MapClaims, head map[string]any)) string {
	t.Helper()
	claims := jwt.MapClaims{
		"iss": "https://id.test", "aud": "hongbao", "sub": user, "exp": time.Now().Add(time.Hour).Unix(), "dev": "d-" + user,
	}
	tok := jwt.NewWithClaims(k.method, claims)
	tok.Header["kid"] = k.kid
	for _, f := range change {
		f(claims, tok.Header)
	}
	text, err := tok.SignedString(k.key)
	if err != nil {
		t.Error(err)
	}
	return text
}

// claim sets a claim; a nil value removes it.
func claim(name string, value any) func(jwt.MapClaims, map[string]any) {
	return func(claims jwt.MapClaims, _ map[string]any) {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
}

// headField sets a field of the token's header; a nil value removes it.
func headField(name string, value any) func(jwt.MapClaims, map[string]any) {
	return func(_ jwt.MapClaims, h map[string]any) {
		if h[name] = value; value == nil {
			delete(h, name)
		}
	}
}

// fake is a Grabber and a Reader in memory. Its answer to a grab depends only on the campaign's id.
type fake struct {
	mu     sync.Mutex
	grabs  []hongbao.Grab
	reads  int
	window model.PublicView
	denied atomic.Int64
	err    error
	// held returns the receipts for Receipts, together with err.
	held  func(user string) ([]hongbao.Receipt, error)
	hold  chan struct{} // if set, a grab waits for it
	began chan struct{}
}

var (
	decided   = time.UnixMilli(1_700_000_000_123)
	errAbsent = hongbao.Errorf(hongbao.ClassPermanent, "campaign absent: %w", store.ErrNotInRedis)
)

func (f *fake) Grab(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error) {
	kept := *g
	kept.Facts = maps.Clone(g.Facts)
	f.mu.Lock()
	f.grabs = append(f.grabs, kept)
	f.mu.Unlock()
	if f.hold != nil {
		f.began <- struct{}{}
		select {
		case <-f.hold:
		case <-ctx.Done():
			return hongbao.Answer{}, hongbao.Errorf(hongbao.ClassUnknown, "no answer yet: %w", ctx.Err())
		}
	}
	a := hongbao.Answer{Outcome: hongbao.Outcome(g.Campaign), Time: decided}
	mine := hongbao.Receipt{Packet: 7, Amount: 185, Shard: 1, Seq: 9, Time: decided, RequestID: g.RequestID}
	switch g.Campaign {
	case "granted", "already_granted":
		a.Receipts, a.Currency = []hongbao.Receipt{mine}, "CNY"
	case "limit_reached":
		a.Limit = &hongbao.LimitHit{Limit: hongbao.Limit{By: "device", Per: hongbao.PerDay, Max: 2}, Resets: decided}
	case "not_started":
		a.Starts = decided.Add(time.Hour)
	case "several":
		return a, hongbao.Errorf(hongbao.ClassPermanent, "no request id")
	case "counts":
		g.RequestID = "drawn"
		return a, hongbao.Errorf(hongbao.ClassPermanent, "no fact")
	case "transient":
		return a, hongbao.Outagef(hongbao.ClassTransient, "down")
	case "panics":
		panic("a bug")
	case "broken":
		return a, hongbao.Errorf(hongbao.ClassBroken, "broken")
	case "unknown":
		return a, hongbao.Outagef(hongbao.ClassUnknown, "no answer")
	}
	return a, nil
}

func (f *fake) Window(_ context.Context, campaign string) (model.PublicView, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if campaign == "absent" {
		return model.PublicView{}, errAbsent
	}
	return f.window, f.err
}

func (f *fake) Receipts(_ context.Context, campaign, user string) (model.Receipts, error) {
	if campaign == "absent" {
		return model.Receipts{}, errAbsent
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held != nil {
		list, err := f.held(user)
		return model.Receipts{Campaign: campaign, User: user, Receipts: list, Currency: "CNY"}, err
	}
	return model.Receipts{Campaign: campaign, User: user, Receipts: []hongbao.Receipt{{Packet: 1, Seq: 1, Time: time.Unix(1, 0), Code: "SECRET"}}}, f.err
}

func (f *fake) grabbed() []hongbao.Grab {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]hongbao.Grab(nil), f.grabs...)
}

func testConfig() Config {
	return Config{
		Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", Issuer: "https://id.test", Audience: "hongbao", UserClaim: "sub",
		Keys: "keys.json", AddressBurst: 1,
		Facts: []string{"device=claim:dev", "device=gateway:dev", "shop=gateway:shop"}, Rate: 100_000, Burst: 100_000, KeyRate: 100_000, KeyBurst: 100_000, Connections: 64,
		ReadHeaderTimeout: 20 * time.Second, ReadTimeout: 20 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 20 * time.Second, DrainTimeout: 20 * time.Second,
	}
}

type server struct {
	*fake
	*Server
	url, ops string
	logs     *observer.ObservedLogs
	stop     func()   // and wait
	open     sync.Map // listener to *atomic.Int64
}

// connections returns how many connections of a listener are open.
func (s *server) connections(listener string) int64 {
	n, _ := s.open.LoadOrStore(listener, new(atomic.Int64))
	return n.(*atomic.Int64).Load()
}

// options configure a test server. A nil field stands for a valid default.
type options struct {
	cfg  func(*Config)
	keys func() ([]byte, string, error)
	fake *fake

	apiKeys Keys
	refused func(campaign, code string, n int)
	metrics http.Handler
}

func setup(t *testing.T, o options) *server {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	s := &server{fake: o.fake, logs: logs}
	if s.fake == nil {
		s.fake = &fake{window: model.PublicView{State: "open", Name: "Rain", Kind: "red_packet", Currency: "CNY",
			From: decided, To: decided.Add(time.Hour), Now: decided.Add(time.Minute)}}
	}
	cfg := testConfig()
	if o.cfg != nil {
		o.cfg(&cfg)
	}
	if o.keys == nil && cfg.Keys != "" && cfg.KeysURL() == "" {
		text := allKeys(t)
		o.keys = func() ([]byte, string, error) { return text, "", nil }
	}
	var err error
	deps := Deps{Grabber: s.fake, Reader: s.fake, KeyFile: o.keys, Log: zap.New(core), Keys: o.apiKeys, Denied: s.fake.deny,
		Metrics: o.metrics, Refused: o.refused}
	deps.Connections = func(listener string, by int) {
		n, _ := s.open.LoadOrStore(listener, new(atomic.Int64))
		n.(*atomic.Int64).Add(int64(by))
	}
	if deps.Keys == nil {
		deps.Keys = apiKeys
	}
	s.Server, err = New(cfg, deps)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan Addresses, 1), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func(at Addresses) { ready <- at }) }()
	select {
	case at := <-ready:
		s.url, s.ops = "http://"+at.Public.String(), "http://"+at.Ops.String()
	case err := <-ended:
		cancel()
		require.NoError(t, err)
	}
	s.stop = sync.OnceFunc(func() { cancel(); require.NoError(t, <-ended) })
	t.Cleanup(s.stop)
	return s
}

type (
	reply = webtest.Answer
	tweak = webtest.Tweak
)

var as, header = webtest.As, webtest.Header

// call sends one request on a new connection. The request is valid and comes from user u1, unless the tweaks
// change that.
func (s *server) call(t *testing.T, method, url, body string, tweaks ...tweak) *reply {
	t.Helper()
	if strings.HasPrefix(url, "/") {
		url = s.url + url
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return &reply{}
	}
	req.Header.Set("Authorization", "Bearer "+hs().sign(t, "u1"))
	req.Header.Set("Content-Type", "application/json")
	for _, f := range tweaks {
		f(req)
	}
	a, err := webtest.Send(req)
	if err != nil {
		t.Error(err)
		return &reply{}
	}
	return a
}

const good = `{"request_id":"r1"}`

func (f *fake) deny(context.Context, access.Action, string, error) { f.denied.Add(1) }
