package metrics

import (
	"context"
	"errors"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
)

const sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

var (
	sample     = regexp.MustCompile(`(?m)^[^#].*`)
	deployment = regexp.MustCompile(`\{deployment="rain"\}|,deployment="rain"|deployment="rain",`)
)

// scrape returns the metrics in the OpenMetrics format. It requires that each sample has the label of the deployment,
// and removes this label.
func scrape(t *testing.T, s *Set) string {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Contains(t, w.Header().Get("Content-Type"), "openmetrics")
	text := w.Body.String()
	for _, line := range sample.FindAllString(text, -1) {
		require.Regexp(t, deployment, line)
	}
	return deployment.ReplaceAllString(text, "")
}

func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		require.Contains(t, text, line+"\n")
	}
}

func TestGrabsAreCounted(t *testing.T) {
	t.Parallel()
	s := New("serve", "v1", "rain")
	c := s.Grabs()
	c.Grabbed(t.Context(), &hongbao.Grab{Trace: sampled}, hongbao.OutcomeGranted, nil, 3*time.Millisecond)
	c.Grabbed(t.Context(), &hongbao.Grab{}, hongbao.OutcomeSoldOut, nil, time.Millisecond)
	c.Grabbed(t.Context(), &hongbao.Grab{}, "", hongbao.Errorf(hongbao.ClassTransient, "down"), time.Second)
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	c.Grabbed(gone, &hongbao.Grab{}, "", hongbao.Errorf(hongbao.ClassUnknown, "no answer: %w", gone.Err()), time.Second)
	c.Grabbed(gone, &hongbao.Grab{}, hongbao.OutcomeSoldOut, nil, time.Second)
	late, end := context.WithDeadline(t.Context(), time.Now())
	defer end()
	c.Grabbed(late, &hongbao.Grab{}, "", hongbao.Errorf(hongbao.ClassUnknown, "no answer: %w", late.Err()), time.Second)
	c.Called("rain", 2, time.Millisecond, nil)
	c.Called("snow", 1, time.Millisecond, errors.New("no answer"))
	text := scrape(t, s)
	has(t, text, `hongbao_build_info{command="serve",version="v1"} 1.0`,
		`hongbao_grabs_total{outcome="granted"} 1.0`, `hongbao_grabs_total{outcome="sold_out"} 2.0`,
		`hongbao_grabs_total{outcome="error_canceled"} 1.0`, `hongbao_grabs_total{outcome="error_unknown"} 1.0`,
		`hongbao_grabs_total{outcome="busy"} 0.0`, `hongbao_grabs_total{outcome="error_transient"} 1.0`,
		`hongbao_grab_seconds_count 6`, `hongbao_grab_calls_total{result="ok"} 1.0`,
		`hongbao_grab_calls_total{result="unknown"} 1.0`, `hongbao_grab_call_grabs_sum 3.0`)
	require.Contains(t, text, `hongbao_grab_seconds_bucket{le="0.005"} 2 # {trace_id="0af7651916cd43dd8448eb211c80319c"} 0.003`)
	require.ElementsMatch(t, []string{"rain", "snow"}, c.Seen(5))
	require.Len(t, c.Seen(1), 1)
	require.Empty(t, c.Seen(0))
}

func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	s := New("balance", "v1", "rain")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/campaigns/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	wrap := s.Requests()
	h, admin := wrap("listen", mux), wrap("control", mux)
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
	})
	for range 3 {
		admin.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/campaigns/a", nil))
	}
	admin.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil))
	for _, path := range []string{"/v1/campaigns/a", "/v1/campaigns/b", "/other/c", "/other/d"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	}
	text := scrape(t, s)
	has(t, text, `hongbao_http_requests_total{listener="listen",route="/v1/campaigns/{id}",status="418"} 2.0`,
		`hongbao_http_requests_total{listener="listen",route="none",status="404"} 2.0`,
		`hongbao_http_requests_total{listener="control",route="/v1/campaigns/{id}",status="418"} 3.0`,
		`hongbao_http_request_seconds_count{listener="listen",route="/v1/campaigns/{id}"} 2`,
		`hongbao_http_request_seconds_count{listener="control",route="/v1/campaigns/{id}"} 3`,
		`hongbao_http_requests_total{listener="control",route="/events",status="200"} 1.0`)
	require.NotContains(t, text, `hongbao_http_request_seconds_count{listener="control",route="/events"}`)
}

// stub is a handler that returns these errors.
type stub []error

func (s stub) Handle(context.Context, hongbao.Batch) []error { return s }

func TestSinksAreMeasured(t *testing.T) {
	t.Parallel()
	s := New("work", "v1", "rain")
	w := s.Sinks()
	errs := stub{nil, hongbao.Waitingf("later"), hongbao.Outagef(hongbao.ClassTransient, "down"),
		hongbao.Errorf(hongbao.ClassPermanent, "never"), errors.New("who knows")}
	require.Equal(t, []error(errs), w.Handler("kafka", errs).Handle(t.Context(), testkit.Batch(make([]hongbao.Grant, 5))))
	require.Nil(t, w.Handler("balance", stub(nil)).Handle(t.Context(), testkit.Batch([]hongbao.Grant{{Shard: 4}, {Shard: 4}, {Shard: 4}})))
	w.Tally("kafka", func() Tally {
		return Tally{Counts: map[*Metric]int64{WorkerDone: 7}, Shards: map[string]int{"working": 2},
			LastSteps: []time.Time{time.UnixMilli(1_700_000_000_250), time.UnixMilli(1_700_000_001_000)}}
	})
	has(t, scrape(t, s), `hongbao_worker_attempts_total{result="done",shard="0",sink="kafka"} 1.0`,
		`hongbao_worker_attempts_total{result="waiting",shard="0",sink="kafka"} 1.0`,
		`hongbao_worker_attempts_total{result="outage",shard="0",sink="kafka"} 1.0`,
		`hongbao_worker_attempts_total{result="permanent",shard="0",sink="kafka"} 1.0`,
		`hongbao_worker_attempts_total{result="unknown",shard="0",sink="kafka"} 1.0`,
		`hongbao_worker_attempts_total{result="done",shard="4",sink="balance"} 3.0`,
		`hongbao_worker_attempts_total{result="permanent",shard="4",sink="balance"} 0.0`,
		`hongbao_worker_batch_grants_sum{sink="kafka"} 5.0`, `hongbao_worker_done_grants_total{sink="kafka"} 7.0`,
		`hongbao_worker_last_step_timestamp_seconds{shard="0",sink="kafka"} 1.70000000025e+09`,
		`hongbao_worker_last_step_timestamp_seconds{shard="1",sink="kafka"} 1.700000001e+09`,
		`hongbao_worker_shards{code="working",sink="kafka"} 2.0`)
}

func TestAlarmsAreCounted(t *testing.T) {
	t.Parallel()
	core, lines := observer.New(zap.InfoLevel)
	s := New("work", "v1", "rain")
	log := s.CountAlarms(zap.New(core)).With(zap.Int("shard", 1))
	log.Error("ALARM", zap.String("code", "sink_down"))
	log.Warn("alarm", zap.String("code", "fsync_slow"))
	log.Warn("alarm", zap.String("code", "never heard of"))
	log.Info("no alarm", zap.String("code", "sink_down"))
	log.Debug("not written", zap.String("code", "sink_down"))
	require.Equal(t, 4, lines.Len())
	require.Equal(t, 4, lines.FilterField(zap.Int("shard", 1)).Len())
	has(t, scrape(t, s), `hongbao_alarms_total{code="sink_down"} 1.0`, `hongbao_alarms_total{code="fsync_slow"} 1.0`,
		`hongbao_alarms_total{code="other"} 1.0`, `hongbao_alarms_total{code="redis_down"} 0.0`)
}

// Concurrent scrapes read the state once. A failure is cached as long as a state would be. After a failure, no stale
// series remain.
func TestStateIsAskedForOnce(t *testing.T) {
	t.Parallel()
	s, asked := New("serve", "v1", "rain"), 0
	var fail error
	var part *State
	at := time.Unix(1_700_000_000, 0)
	c := &stateCache{poll: Poll{Every: time.Hour, Timeout: time.Second, Ask: func(ctx context.Context) (*State, error) {
		asked++
		_, bounded := ctx.Deadline()
		require.True(t, bounded)
		if fail != nil {
			return part, fail
		}
		return &State{Sinks: []SinkState{{Sink: "kafka", Workers: 2, Rate: 50, PausedByWorker: 4, PausedByPerson: 1,
			Shards: []SinkShard{{Shard: 4, Lag: 5, Parked: []int64{0, 3}, Oldest: time.Minute}}}}, Shards: []ShardState{{Shard: 4, Open: true, Events: 9}},
			Servers:   []ServerState{{Server: "r:1", Memory: 10, MachineMemory: 30, AppendOnly: true, RequiredReplicas: 2}},
			Campaigns: []CampaignState{{"rain", 3}}, Withheld: new(int64(17)), JournalWaits: new(int64(4)),
			Audit: &AuditState{at, 2, 1}, Ledger: &LedgerState{map[string]Backlog{"top_ups": {3, time.Minute}}, new(time.Hour), 2}}, nil
	}}}
	s.registry.MustRegister(newPolled(c.read, ofState.Metrics...), newPolled(c.readLeft, CampaignLeft))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { scrape(t, s) })
	}
	wg.Wait()
	require.Equal(t, 1, asked)
	has(t, scrape(t, s), `hongbao_state_up 1.0`, `hongbao_sink_lag_grants{shard="4",sink="kafka"} 5.0`,
		`hongbao_sink_oldest_seconds{shard="4",sink="kafka"} 60.0`, `hongbao_sink_parked_entries{level="1",shard="4",sink="kafka"} 3.0`,
		`hongbao_sink_workers{sink="kafka"} 2.0`, `hongbao_shard_open{shard="4"} 1.0`, `hongbao_shard_events{shard="4"} 9.0`,
		`hongbao_redis_append_only{server="r:1"} 1.0`, `hongbao_redis_noeviction{server="r:1"} 0.0`,
		`hongbao_campaign_left_packets{campaign="rain"} 3.0`, `hongbao_audit_agrees 0.0`, `hongbao_audit_differences 2.0`,
		`hongbao_audit_dead_letters 1.0`,
		`hongbao_audit_timestamp_seconds 1.7e+09`, `hongbao_ledger_unfinished{kind="top_ups"} 3.0`,
		`hongbao_ledger_unfinished_oldest_seconds{kind="top_ups"} 60.0`, `hongbao_ledger_paused_campaigns 2.0`, `hongbao_ledger_unrefunded_oldest_seconds 3600.0`, `hongbao_withheld_packets 17.0`, `hongbao_journal_waiting_entries 4.0`,
		`hongbao_redis_machine_memory_bytes{server="r:1"} 30.0`, `hongbao_redis_required_replicas{server="r:1"} 2.0`,
		`hongbao_sink_rate_limit{sink="kafka"} 50.0`, `hongbao_sink_paused_campaigns{by="worker",sink="kafka"} 4.0`,
		`hongbao_sink_paused_campaigns{by="person",sink="kafka"} 1.0`)
	fail, c.at = errors.New("Redis is down"), time.Now().Add(-2*time.Hour)
	text := scrape(t, s)
	scrape(t, s)
	require.Equal(t, 2, asked)
	has(t, text, `hongbao_state_up 0.0`)
	require.NotContains(t, text, "hongbao_sink_lag_grants{", "nothing stale")
	part, c.at = &State{Sinks: []SinkState{{Sink: "kafka", Shards: []SinkShard{{Shard: 3, Lag: 7}}}, {Sink: "balance"}}},
		time.Now().Add(-2*time.Hour)
	text = scrape(t, s)
	has(t, text, `hongbao_state_up 0.0`, `hongbao_sink_lag_grants{shard="3",sink="kafka"} 7.0`,
		`hongbao_sink_workers{sink="kafka"} 0.0`)
	require.NotContains(t, text, `sink="balance"`, "no shard reported it")
}

func TestStoresAreMeasured(t *testing.T) {
	t.Parallel()
	s := New("work", "v1", "rain")
	ledger, kafka := s.Ledger(), s.Kafka()
	ledger("write", time.Second, false, nil)
	ledger("write", time.Second, true, errors.New("lost"))
	ledger("read", time.Second, false, hongbao.Errorf(hongbao.ClassTransient, "down"))
	kafka("Produce", time.Second, nil)
	kafka("Produce", time.Second, errors.New("down"))
	s.Publisher(func() Published { return Published{Batches: 4} })
	has(t, scrape(t, s), `hongbao_ledger_transaction_seconds_count{kind="write"} 2`,
		`hongbao_ledger_errors_total{class="again",kind="write"} 1.0`,
		`hongbao_ledger_errors_total{class="transient",kind="read"} 1.0`,
		`hongbao_kafka_request_seconds_count{request="Produce"} 2`, `hongbao_kafka_errors_total{request="Produce"} 1.0`,
		`hongbao_publish_batches_total 4.0`)
}

// A scrape reports the ends of that moment: a role without a key that ends has no series.
func TestKeyEnds(t *testing.T) {
	t.Parallel()
	s, ends := New("serve", "v1", "rain"), map[access.Role]time.Time{}
	s.Keys(func(context.Context) map[access.Role]time.Time { return ends })
	require.NotContains(t, scrape(t, s), "hongbao_key_expiry_timestamp_seconds{")
	ends[access.RoleGateway] = time.Unix(1_700_000_000, 0)
	has(t, scrape(t, s), `hongbao_key_expiry_timestamp_seconds{role="gateway"} 1.7e+09`)
}

// A scrape reports the ends of that moment.
func TestCertificateEnds(t *testing.T) {
	t.Parallel()
	s, ends := New("serve", "v1", "rain"), map[string]time.Time{}
	s.Certificates(func() map[string]time.Time { return ends })
	require.NotContains(t, scrape(t, s), "hongbao_certificate_expiry_timestamp_seconds{")
	ends["serve.tls_cert"] = time.Unix(1_700_000_000, 0)
	has(t, scrape(t, s), `hongbao_certificate_expiry_timestamp_seconds{knob="serve.tls_cert"} 1.7e+09`)
}

func TestTraceID(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", TraceID(sampled))
	for flags, is := range map[string]bool{"00": false, "01": true, "03": true, "02": false, "0a": false, "0b": true, "ff": true} {
		require.Equal(t, is, TraceID(sampled[:53]+flags) != "", flags)
	}
	require.Empty(t, TraceID(""))
}

// Alarms are counted whatever log.level is: with the level error, the alerts of warnings still fire.
func TestAlarmsBelowTheLevelAreCounted(t *testing.T) {
	t.Parallel()
	core, lines := observer.New(zap.ErrorLevel)
	s := New("work", "v1", "rain")
	log := s.CountAlarms(zap.New(core)).With(zap.Int("shard", 1))
	log.Warn("alarm", zap.String("code", "redis_restored"))
	log.Warn("no alarm")
	log.Error("ALARM", zap.String("code", "sink_down"))
	require.Equal(t, 1, lines.Len(), "only the error is written")
	require.Nil(t, log.Check(zap.InfoLevel, "a line without a code costs nothing"))
	has(t, scrape(t, s), `hongbao_alarms_total{code="redis_restored"} 1.0`, `hongbao_alarms_total{code="sink_down"} 1.0`)
}
