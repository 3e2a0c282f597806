package metrics

import (
	"context"
	"errors"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
)

// everything returns the scrape of a process in which every kind of metric has a value.
func everything(t *testing.T) string {
	t.Helper()
	s := New("serve", "v1", "rain")
	c := s.Grabs()
	c.Grabbed(t.Context(), &hongbao.Grab{Trace: sampled}, hongbao.OutcomeGranted, nil, 3*time.Millisecond)
	c.Called("rain", 2, time.Millisecond, errors.New("no answer"))
	w := s.Sinks()
	w.Handler("kafka", stub{nil, hongbao.Waitingf("later")}).Handle(t.Context(), testkit.Batch([]hongbao.Grant{{Trace: sampled}, {}}))
	counts := map[*Metric]int64{}
	for _, m := range ofWork.Metrics {
		if m.Kind != Histogram && slices.Equal(m.Labels, []string{"sink"}) {
			counts[m] = 7
		}
	}
	w.Tally("kafka", func() Tally {
		return Tally{Counts: counts, Incidents: map[string]int64{"forged_entry": 1}, Shards: map[string]int{"working": 2},
			LastSteps: []time.Time{time.Now()}}
	})
	s.Requests()("listen", http.NewServeMux()).ServeHTTP(httptest.NewRecorder(),
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil))
	s.Ledger()("write", time.Second, false, nil)
	s.Remembered(func() (bytes, forgotten int64) { return 1_000, 2 })
	s.Keys(func(context.Context) map[access.Role]time.Time {
		return map[access.Role]time.Time{access.RoleClient: time.Now()}
	})
	s.Kafka()("Produce", time.Second, errors.New("no answer"))
	s.CountAlarms(zap.NewNop())
	s.Certificates(func() map[string]time.Time { return map[string]time.Time{"serve.tls_cert": time.Now()} })
	s.Settings(Settings{UnsafeAllow: []string{"redis_settings"}})
	s.Publisher(func() Published { return Published{Batches: 4} })
	s.Left(Poll{Timeout: time.Second, Every: time.Hour, Ask: func(context.Context) (*State, error) {
		return &State{Campaigns: []CampaignState{{ID: "rain", Left: 3}}}, nil
	}})
	s.State(Poll{Timeout: time.Second, Every: time.Hour, Ask: func(context.Context) (*State, error) {
		return &State{
			Sinks:  []SinkState{{Sink: "kafka", Workers: 2, Shards: []SinkShard{{Shard: 4, Lag: 5, Parked: []int64{0, 3}}}}},
			Shards: []ShardState{{Shard: 4, Open: true, Events: 9}}, Servers: []ServerState{{Server: "r:1"}},
			Withheld: new(int64), JournalWaits: new(int64), Audit: &AuditState{Started: time.Now()},
			Ledger: &LedgerState{Unrefunded: new(time.Duration), Unfinished: map[string]Backlog{"top_ups": {Count: 3}}},
		}, nil
	}})
	text := scrape(t, s)
	for _, m := range All() {
		if m != Connections { // exists only while a listener runs
			require.Contains(t, text, "# TYPE "+strings.TrimSuffix(m.Name, "_total")+" ")
		}
	}
	return text
}

// Each metric family appears once, and its samples follow its metadata. A strict parser rejects any other scrape.
func TestFamiliesComeOnce(t *testing.T) {
	t.Parallel()
	text := everything(t)
	seen, family := map[string]bool{}, ""
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			family, _, _ = strings.Cut(rest, " ")
			require.False(t, seen[family], "two families are named %s", family)
			seen[family] = true
		} else if !strings.HasPrefix(line, "#") {
			require.True(t, strings.HasPrefix(line, family), "%s comes after %s", line, family)
		}
	}
	require.True(t, strings.HasSuffix(text, "# EOF\n"))
}

// The strict parser of the Python package prometheus_client accepts the scrape.
func TestStrictParserTakesTheMetrics(t *testing.T) {
	t.Parallel()
	const program = `import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
print(len(list(parse(sys.stdin.read()))))`
	python := "python3"
	if own := os.Getenv("HONGBAO_TEST_PYTHON"); own != "" {
		python = own
	}
	if exec.CommandContext(t.Context(), python, "-c", "import prometheus_client.openmetrics.parser").Run() != nil {
		//nolint:forbidigo // scripts/setup.sh does not install it; TestFamiliesComeOnce always runs
		t.Skip("needs prometheus_client; HONGBAO_TEST_PYTHON names a Python that has it")
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", program)
	cmd.Stdin = strings.NewReader(everything(t))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
