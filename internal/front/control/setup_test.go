package control

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/front/web/webtest"
	"github.com/hongbao-project/hongbao/internal/ops/apikeys"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
	"github.com/hongbao-project/hongbao/internal/ops/pages"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// desk is a deployment with the administration API, for tests.
type desk struct {
	t    *testing.T
	cfg  *configs.Config
	app  *app.App
	c    *Control
	jobs *jobs.Registry
	h    http.Handler
	core zapcore.Core
	logs *observer.ObservedLogs
	keys map[string]string // by role, or by role/SCOPE for a key with a scope
}

type options struct {
	postgres bool
	redis    *testkit.RedisServer // if nil, all tests share one
	dsn      string               // of a PostgreSQL ledger; if empty, the desk gets its own ledger
	patience time.Duration
	shards   int // 0: one
}

// setup initializes a deployment on real servers and serves its administration API.
func setup(t *testing.T, o options) *desk {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	if o.redis == nil {
		o.redis = testkit.Redis(t)
	}
	prefix := testkit.Prefix(t)
	env := []string{
		"HONGBAO_REDIS_ADDRS=" + o.redis.Addr, "HONGBAO_DEPLOYMENT_ID=" + prefix, "HONGBAO_DEPLOYMENT_KEY_PREFIX=" + prefix,
		"HONGBAO_DEPLOYMENT_SINKS=balance", "HONGBAO_CONSUMER_MAX_ATTEMPTS=2", "HONGBAO_CONSUMER_POLL=50ms",
		"HONGBAO_CONSUMER_BLOCK=50ms", fmt.Sprint("HONGBAO_DEPLOYMENT_SHARDS=", max(o.shards, 1)),
	}
	switch {
	case o.postgres && o.dsn == "":
		o.dsn = testkit.Postgres(t)
		fallthrough
	case o.dsn != "":
		env = append(env, "HONGBAO_LEDGER_DRIVER=postgres", "HONGBAO_LEDGER_DSN="+o.dsn,
			"HONGBAO_UNSAFE_ALLOW=fsync,full_page_writes")
	default:
		env = append(env, "HONGBAO_LEDGER_DSN="+filepath.Join(t.TempDir(), "ledger.db"))
	}
	cfg, err := configs.Load("", env, nil)
	require.NoError(t, err)
	require.NoError(t, app.With(t.Context(), cfg, app.Needs{}, func(a *app.App) error {
		_, err := a.Init(t.Context())
		return err
	}))
	core, logs := observer.New(zapcore.WarnLevel)
	d := &desk{t: t, cfg: cfg, core: core, logs: logs, keys: map[string]string{}}
	opened, done := make(chan *app.App), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		done <- app.With(ctx, cfg, app.Needs{Redis: true}, func(a *app.App) error {
			defer a.TendJournal(ctx)() // as `hongbao serve` does
			opened <- a
			<-ctx.Done()
			return nil
		})
	}()
	select {
	case d.app = <-opened:
	case err := <-done:
		cancel()
		require.NoError(t, err)
	}
	if o.patience == 0 {
		o.patience = 20 * time.Second
	}
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	d.serve("first", o.patience)
	for _, role := range access.Roles() {
		d.key(string(role), role)
		if !ofBank(role) {
			d.key(string(role)+"/rain*", role, "rain*")
		}
	}
	return d
}

// serve makes a server of the administration API with jobs of its own, and sends it the next requests. d.logs has what the
// jobs of all servers have logged.
func (d *desk) serve(owner string, patience time.Duration) {
	d.t.Helper()
	log := zap.New(d.core)
	d.jobs = jobs.New(d.app.Access(), owner, log)
	d.t.Cleanup(d.jobs.Close)
	var err error
	d.c, err = New(Config{AnswerTime: 30 * time.Second, Patience: patience}, Deps{App: d.app, Authority: d.app.Authority(), Jobs: d.jobs,
		History: pages.NewSource(d.app).History, Log: log})
	require.NoError(d.t, err)
	d.h, err = d.c.API().Handler()
	require.NoError(d.t, err)
}

// ofBank reports whether the role is for the balance API. Such keys have a client and no campaigns.
func ofBank(role access.Role) bool { return role == access.RoleClient || role == access.RoleAccountant }

// key creates an API key and stores its text under a name.
func (d *desk) key(name string, role access.Role, campaigns ...string) {
	d.t.Helper()
	d.do(func(a *app.App) error {
		want := access.Key{Role: role, Campaigns: campaigns}
		if ofBank(role) {
			want.Client = "worker"
		}
		k, err := apikeys.Of(a).CreateKey(d.t.Context(), want)
		if err == nil {
			d.keys[name] = k.Text
		}
		return err
	})
}

// do runs a function with connections of its own, as a command would.
func (d *desk) do(what func(a *app.App) error) {
	d.t.Helper()
	require.NoError(d.t, app.With(d.t.Context(), d.cfg, app.Needs{Redis: true, Ledger: true}, what))
}

// campaignOf returns the specification of a campaign that is open now.
func campaignOf(id string, packets, total int64) hongbao.Campaign {
	now := time.Now().UTC().Truncate(time.Second)
	return hongbao.Campaign{
		ID: id, Name: "Rain", Kind: hongbao.KindRedPacket, Currency: "CNY", Total: hongbao.Amount(total), Packets: packets,
		Split: hongbao.Split{Mode: hongbao.SplitEven}, From: now.Add(-time.Minute), To: now.Add(time.Hour),
		TimeZone: "Asia/Shanghai", Sponsor: "acme", Durability: hongbao.DurabilityFast,
		Limits: []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 1}},
	}
}

// campaign creates and loads a campaign that is open now.
func (d *desk) campaign(id string, packets, total int64) {
	d.t.Helper()
	d.load(campaignOf(id, packets, total))
}

func (d *desk) load(c hongbao.Campaign) {
	d.t.Helper()
	d.do(func(a *app.App) error {
		if _, err := campaigns.Of(a).Create(d.t.Context(), c, nil); err != nil {
			return err
		}
		_, err := campaigns.Of(a).Load(d.t.Context(), c.ID)
		return err
	})
}

// grab lets a user grab and requires that the grab is granted.
func (d *desk) grab(campaign, user string) hongbao.Receipt {
	d.t.Helper()
	var got hongbao.Receipt
	pc := d.cfg.Producer
	rdb := d.cfg.RedisClient()
	defer func() { require.NoError(d.t, rdb.Close()) }()
	st, err := store.New(store.Config{Redis: rdb, Space: d.cfg.Space(), Deployment: d.cfg.Deployment.ID})
	require.NoError(d.t, err)
	pc.Deployment = deployment.Of(st, zap.NewNop())
	p, err := producer.New(pc)
	require.NoError(d.t, err)
	defer func() { require.NoError(d.t, p.Close(context.WithoutCancel(d.t.Context()))) }()
	a, err := p.Grab(d.t.Context(), &hongbao.Grab{Campaign: campaign, User: user, RequestID: "r-" + user})
	require.NoError(d.t, err)
	require.Equal(d.t, hongbao.OutcomeGranted, a.Outcome)
	got = a.Receipts[0]
	return got
}

// work runs the workers until every grant is delivered to all sinks.
func (d *desk) work() {
	d.t.Helper()
	ctx, cancel := context.WithCancel(d.t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- app.With(ctx, d.cfg, app.Needs{Redis: true}, func(a *app.App) (err error) {
			c := a.Config.ConsumerConfig(configs.SinkBalance)
			c.Deployment, c.Consumer = a.Deployment(), a.Worker()
			if c.Handler, err = a.Handler(ctx, configs.SinkBalance); err != nil {
				return err
			}
			w, err := consumer.New(c)
			if err != nil {
				return err
			}
			return w.Run(ctx)
		})
	}()
	testkit.Eventually(d.t, 30*time.Second, func() bool {
		s, err := deliveries.Of(d.app).Status(d.t.Context())
		require.NoError(d.t, err)
		return s.Sinks[0].Waiting == 0
	}, "the workers finish all")
	cancel()
	require.NoError(d.t, <-done)
}

type reply = webtest.Answer

// request returns a valid request that the tweaks have changed.
func (d *desk) request(key, method, path, body string, tweaks ...func(*http.Request)) *http.Request {
	var r *http.Request
	if method == http.MethodGet {
		r = httptest.NewRequestWithContext(d.t.Context(), method, path, http.NoBody)
	} else {
		r = httptest.NewRequestWithContext(d.t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", rand.Text())
	}
	r.Header.Set("Authorization", "Bearer "+d.keys[key])
	for _, f := range tweaks {
		f(r)
	}
	return r
}

func (d *desk) send(r *http.Request) *reply {
	a, err := webtest.Serve(d.h, r)
	if err == nil && a.Body == nil {
		err = fmt.Errorf("no JSON: %q", a.Text)
	}
	if err == nil {
		err = documented(r, a)
	}
	if err != nil {
		d.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	return a
}

func (d *desk) call(key, method, path, body string, tweaks ...func(*http.Request)) *reply {
	d.t.Helper()
	return d.send(d.request(key, method, path, body, tweaks...))
}

func (d *desk) get(key, path string) *reply {
	d.t.Helper()
	return d.call(key, http.MethodGet, path, "")
}
