package configs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/internal/sinks/remote"
	"github.com/hongbao-project/hongbao/internal/sinks/webhook"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/load"
	"github.com/hongbao-project/hongbao/producer"
)

type nothing struct{}

func (nothing) Handle(context.Context, hongbao.Batch) []error { return nil }

// stages returns an error if any stage refuses its part of the configuration.
func stages(t *testing.T, c *Config) error {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer rdb.Close()
	reads := c.ReadsClient()
	defer reads.Close()
	st, err := store.New(store.Config{Redis: rdb, Reads: reads, Space: c.Space()})
	if err != nil {
		return err
	}
	return cmp.Or(grabs(c, st), works(c, st), settles(c), ends(c, st), publishes(c, st))
}

func grabs(c *Config, st *store.Store) error {
	_, load := load.New(st, c.Loader)
	pl := c.Plans
	pl.Source = func(context.Context, string) (hongbao.Campaign, campaign.Seed, []campaign.TopUp, error) {
		panic("not asked")
	}
	_, plans := campaign.NewPlans(pl)
	p := c.Producer
	p.Deployment = deployment.Of(st, zap.NewNop())
	_, grab := producer.New(p)
	sv := c.ServeConfig()
	sv.Keys, sv.Issuer, sv.Audience = "keys.json", "issuer", "audience"
	ct := c.ControlConfig()
	return cmp.Or(load, plans, grab, sv.Check(), ct.Check(), c.Console.Check())
}

func works(c *Config, st *store.Store) error {
	var work error
	for _, sink := range c.Deployment.Sinks {
		if c.IsWebhook(sink) {
			_, err := webhook.New(c.WebhookConfig(sink))
			work = cmp.Or(work, err)
		}
		w := c.ConsumerConfig(sink)
		w.Deployment, w.Handler = deployment.Of(st, zap.NewNop()), nothing{}
		_, err := consumer.New(w)
		work = cmp.Or(work, err)
	}
	tr := c.TrimmerConfig()
	tr.Deployment = deployment.Of(st, zap.NewNop())
	_, trim := consumer.NewTrimmer(tr)
	return cmp.Or(work, trim)
}

func settles(c *Config) error {
	l := c.LedgerConfig()
	l.Database = sqlite.Database{Path: "ledger.db"}
	re := c.RemoteConfig()
	re.URL = "http://127.0.0.1"
	ba := c.BalanceConfig()
	return cmp.Or(l.Check(), re.Check(), ba.Check())
}

func ends(c *Config, st *store.Store) error {
	locks, err := st.Locks(c.LockConfig())
	if err != nil {
		return err
	}
	rc := c.Retirer
	rc.Store, rc.Locks, rc.Log = st, locks, zap.NewNop()
	_, retire := closing.NewRetirer(rc)
	cc := c.CloserConfig()
	cc.Store, cc.Ledger, cc.Locks, cc.Log = st, noRefunds{}, locks, zap.NewNop()
	_, end := closing.New(cc)
	return cmp.Or(retire, end)
}

func publishes(c *Config, st *store.Store) error {
	cl := c.ClaimsConfig()
	cl.Owner = "w1"
	claims, err := st.Claims(cl)
	if err != nil {
		return err
	}
	k := c.PublisherConfig()
	k.Worker = "w1"
	_, err = publish.New(k, claims, noEntries{})
	return err
}

type noRefunds struct{ closing.Ledger }

type noEntries struct{}

func (noEntries) Entries(context.Context, stream.Opening, string, string) ([]stream.Entry, error) {
	return nil, nil
}

// starredSamples has a sink for each starred section, and withStarred sets these sinks.
var starredSamples = map[string]string{webhooks: "crm", own: "points"}

var withStarred = []string{"HONGBAO_DEPLOYMENT_SINKS=balance,kafka,crm,points", "HONGBAO_OWN_POINTS_PROGRAM=points-worker",
	"HONGBAO_WEBHOOK_CRM_URL=https://crm", "HONGBAO_WEBHOOK_CRM_SECRET=whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}

// sets is the input that sets one knob, on the command line, or in the environment if the knob has no flag.
func sets(k *entry, text string) input {
	if k.sink != "" {
		return input{env: append(withStarred[:len(withStarred):len(withStarred)], k.Env()+"="+text)}
	}
	return input{args: []string{"--" + k.Name + "=" + text}}
}

// Every configuration that Load accepts is accepted by all stages: the defaults, and the defaults with one number at
// either of its bounds.
func TestBoundsAreTheStages(t *testing.T) {
	t.Parallel()
	require.NoError(t, stages(t, (&input{}).must(t)))
	for i := range knobs {
		k := &knobs[i]
		if kind := k.Kind(); kind != "integer" && kind != "duration" {
			continue
		}
		if k.sink != "" {
			k = k.named(starredSamples[k.Section()])
		}
		for _, bound := range []int64{k.Low, k.High} {
			text := fmt.Sprint(bound)
			if k.Kind() == "duration" {
				text = knob.Span(time.Duration(bound))
			}
			in := sets(k, text)
			c, err := in.load(t)
			if err != nil { // the bound contradicts a default, so the stages may refuse it, too, but not as out of bounds
				require.Contains(t, err.Error(), "want it ", k.Name)
				c, _ = in.raw(t, k)
				if err := stages(t, c); err != nil {
					requireOrderOnly(t, k.Name, err)
				}
				continue
			}
			require.NoError(t, stages(t, c), "%s=%s", k.Name, text)
		}
	}
}

// requireOrderOnly requires that a stage has refused two contradicting values, not a single value.
func requireOrderOnly(t *testing.T, knob string, err error) {
	t.Helper()
	for _, s := range []string{"MaxBackoff is", "is above MaxClaimAge", "a quarter of ProducerExpiration",
		"want more than the lock timeout",
		"want at most ClaimTime", "Margin is", "QueryFinal is", "BatchCredits is", "HandleTimeout is"} {
		if strings.Contains(err.Error(), s) {
			return
		}
	}
	t.Errorf("%s is within its bounds, but the stage says: %v", knob, err)
}

// A value is just beyond one of its bounds. Load refuses it, and so does the stage that uses the value.
func TestBeyondTheBounds(t *testing.T) {
	t.Parallel()
	for i := range knobs {
		k := &knobs[i]
		kind := k.Kind()
		if kind != "integer" && kind != "duration" {
			continue
		}
		if k.sink != "" {
			k = k.named(starredSamples[k.Section()])
		}
		for _, beyond := range []int64{k.Low - 1, k.High + 1} {
			text := fmt.Sprint(beyond)
			if kind == "duration" {
				text = time.Duration(beyond).String()
			}
			in := sets(k, text)
			got := in.problems(t)
			require.Contains(t, got[0], ": "+k.Name+": ")
			require.Contains(t, got[0], ": want ")
			if slices.Contains([]string{"redis", "ops", "tracing", "work"}, k.Section()) {
				continue // no stage checks these
			}
			c := (&input{args: []string{"--kafka.create_topic"}}).must(t)
			if k.sink != "" {
				c = (&input{env: withStarred}).must(t)
			}
			_ = k.Set(k.of(c), text) // the error is expected
			require.Error(t, stages(t, c), "%s=%s: the stage accepts it, so the two bounds differ", k.Name, text)
		}
	}
}

// Both clients have every option that matters.
func TestRedisClients(t *testing.T) {
	t.Parallel()
	in := input{
		args: []string{"--redis.addrs=r:1", "--redis.username=u", "--redis.db=3", "--redis.tls", "--deployment.shards=7",
			"--redis.dial_timeout=1500ms",
			"--redis.write_timeout=2500ms", "--redis.pool_timeout=3500ms"},
		env: []string{"HONGBAO_REDIS_PASSWORD=p"},
	}
	c := in.must(t)
	rdb, reads := c.RedisClient().(*redis.Client), c.ReadsClient().(*redis.Client)
	t.Cleanup(func() { _, _ = rdb.Close(), reads.Close() })
	for _, o := range []*redis.Options{rdb.Options(), reads.Options()} {
		require.Equal(t, []any{"r:1", "u", "p", 3, "hongbao", 3},
			[]any{o.Addr, o.Username, o.Password, o.DB, o.ClientName, o.Protocol})
		require.Equal(t, 1500*time.Millisecond, o.DialTimeout)
		require.Equal(t, 1, o.DialerRetries)
		require.Equal(t, 2500*time.Millisecond, o.WriteTimeout)
		require.Equal(t, 3500*time.Millisecond, o.PoolTimeout)
		require.Equal(t, 5*time.Minute, o.ConnMaxIdleTime)
		require.True(t, o.ContextTimeoutEnabled)
		require.True(t, o.DisableIdentity)
		require.Equal(t, -1, o.PipelinePoolSize)
		require.Equal(t, maintnotifications.ModeDisabled, o.MaintNotificationsConfig.Mode)
		require.False(t, o.TLSConfig.InsecureSkipVerify)
	}
	o, r := rdb.Options(), reads.Options()
	require.Equal(t, []any{2, 50, 3 * time.Second}, []any{o.MaxRetries, o.PoolSize, o.ReadTimeout})
	require.Equal(t, []any{0, 7*2 + 2, 4 * time.Second}, []any{r.MaxRetries, r.PoolSize, r.ReadTimeout},
		"go-redis reports -1 as 0 retries")

	none := (&input{args: []string{"--redis.retries=0"}}).must(t).RedisClient().(*redis.Client)
	t.Cleanup(func() { _ = none.Close() })
	require.Equal(t, 0, none.Options().MaxRetries)
	require.Nil(t, none.Options().TLSConfig)
}

func TestRedisModes(t *testing.T) {
	t.Parallel()
	c := (&input{args: []string{"--redis.mode=cluster"}}).must(t).RedisClient()
	cluster, ok := c.(*redis.ClusterClient)
	require.True(t, ok, "a cluster client, although there is only one address")
	t.Cleanup(func() { _ = cluster.Close() })
	o := cluster.Options()
	require.Equal(t, []any{3, false, false, false, true},
		[]any{o.MaxRedirects, o.ReadOnly, o.RouteByLatency, o.RouteRandomly, o.ContextTimeoutEnabled})
	require.Equal(t, time.Second, o.ClusterStateReloadInterval, "a dead node can't redirect the client")
	in := input{args: []string{"--redis.mode=sentinel", "--redis.master_name=m", "--redis.sentinel_username=s"},
		env: []string{"HONGBAO_REDIS_SENTINEL_PASSWORD=p"}}
	failover, ok := in.must(t).RedisClient().(*redis.Client)
	require.True(t, ok)
	t.Cleanup(func() { _ = failover.Close() })
	require.Equal(t, "FailoverClient", failover.Options().Addr)
	require.True(t, failover.Options().ContextTimeoutEnabled)
}

func TestLogger(t *testing.T) {
	t.Parallel()
	for format, isJSON := range map[string]bool{"auto": true, "json": true, "console": false} { // out is not a terminal
		c := (&input{args: []string{"--log.format=" + format, "--log.level=warn"}}).must(t)
		var out bytes.Buffer
		log, err := c.Logger(&out)
		require.NoError(t, err)
		log.Info("too unimportant")
		for range 1_000 { // nothing is sampled
			log.Warn("it happened", zap.String("user", "x\n{\"level\":\"error\"}\x1b[31m"), zap.Duration("after", time.Second))
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		require.Len(t, lines, 1_000, format)
		require.NotContains(t, out.String(), "\x1b", format)
		require.Contains(t, lines[0], "it happened", format)
		var fields map[string]any
		err = json.Unmarshal([]byte(lines[0]), &fields)
		require.Equal(t, isJSON, err == nil, lines[0])
		if isJSON {
			require.Equal(t, []any{"warn", "it happened", "1s"}, []any{fields["level"], fields["message"], fields["after"]})
			_, err := time.Parse(time.RFC3339Nano, fields["time"].(string))
			require.NoError(t, err)
		}
	}
	file, err := os.CreateTemp(t.TempDir(), "log")
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	require.False(t, (&input{}).must(t).console(file), "a file is not a terminal")
}

// Both sinks are consumer groups whose streams are trimmed. So a worker that was suspended for long must not push
// events that other workers have finished.
func TestClaimsOfSinksAreTrimmed(t *testing.T) {
	t.Parallel()
	c, err := Load("../../configs/hongbao.yaml", nil, nil)
	require.NoError(t, err)
	require.True(t, c.ClaimsConfig().Trimmed)
}

// The settings of one sink override the settings of all sinks, for that sink.
func TestKnobsOfOneSink(t *testing.T) {
	t.Parallel()
	c := (&input{args: []string{"--consumer.batch_grants=500", "--sinks.kafka_batch_grants=70",
		"--sinks.kafka_max_attempts=5", "--sinks.balance_grants_per_second=9", "--sinks.balance_max_calls=3"}}).must(t)
	balance, kafka := c.ConsumerConfig(SinkBalance), c.ConsumerConfig(SinkKafka)
	require.Equal(t, []any{500, int64(12), 9, 3},
		[]any{balance.BatchGrants, balance.MaxAttempts, balance.GrantsPerSecond, balance.MaxCalls})
	require.Equal(t, []any{70, int64(5), 0, 0}, []any{kafka.BatchGrants, kafka.MaxAttempts, kafka.GrantsPerSecond, kafka.MaxCalls})
	got := (&input{args: []string{"--sinks.kafka_max_attempts=1"}}).problems(t)
	require.Contains(t, got[0], "at least 2")
}

// After an outage of ten seconds a gateway may repeat at once what it sent meanwhile, at its full rate.
func TestAKeyMayRepeatWhatAnOutageLeft(t *testing.T) {
	t.Parallel()
	serve := knob.Defaults[Serve]()
	require.GreaterOrEqual(t, serve.KeyBurst, 10*serve.KeyRate)
}

// A load balancer keeps idle connections for 60 seconds by default. If the server closed a connection at that moment, the
// balancer would lose a request, which it may not repeat. The clients of package remote close theirs first, too.
func TestServersOutwaitLoadBalancers(t *testing.T) {
	t.Parallel()
	const balancer = time.Minute
	serve, balance, client := knob.Defaults[Serve](), knob.Defaults[Balance](), knob.Defaults[remote.Config]()
	require.Greater(t, serve.IdleTimeout, balancer+10*time.Second)
	require.Greater(t, balance.IdleTimeout, balancer+10*time.Second)
	require.Greater(t, balance.IdleTimeout, client.IdleTimeout+10*time.Second)
}
