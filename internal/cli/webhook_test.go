package cli

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// receiver is the server of a webhook. It checks each signature, and remembers the bodies by webhook-id.
type receiver struct {
	*httptest.Server
	status  atomic.Int64
	mu      sync.Mutex
	bodies  map[string]string
	twice   int
	refused []string
}

const hookSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{bodies: map[string]string{}}
	r.status.Store(http.StatusNoContent)
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(hookSecret, "whsec_"))
	require.NoError(t, err)
	hook, err := standardwebhooks.NewWebhookRaw(key)
	require.NoError(t, err)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err == nil {
			err = hook.Verify(body, q.Header)
		}
		status := int(r.status.Load())
		r.mu.Lock()
		switch id := q.Header.Get("webhook-id"); {
		case err != nil:
			r.refused = append(r.refused, err.Error())
			status = http.StatusUnauthorized
		case status == http.StatusNoContent && r.bodies[id] == string(body):
			r.twice++
		case status == http.StatusNoContent:
			r.bodies[id] += string(body) // two different bodies under one id are no JSON
		}
		r.mu.Unlock()
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) got() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.bodies)
}

// waitFor waits until the receiver has n events.
func (r *receiver) waitFor(t *testing.T, n int) map[string]string {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() bool { return len(r.got()) >= n }, "the receiver has all events")
	return r.got()
}

// hooked is a deployment with a ledger and a webhook named crm.
func hooked(t *testing.T, o options) (*deployment, *receiver) {
	t.Helper()
	r := newReceiver(t)
	o.uninitialized = true
	d := setup(t, o)
	d.set("DEPLOYMENT_SINKS", "balance,crm", "WEBHOOK_CRM_URL", r.URL+"/hooks", "WEBHOOK_CRM_SECRET", hookSecret,
		"WEBHOOK_CRM_ALLOW_PRIVATE", "true", "UNSAFE_ALLOW", "webhook_without_tls")
	d.ok("init")
	return d, r
}

// The receiver gets each grant that the ledger has paid, with the grant's facts, and nothing else. A receiver that is
// down stops no grab. A replay posts the same ids again.
func TestWebhook(t *testing.T) {
	t.Parallel()
	d, r := hooked(t, options{})
	d.campaign("rain", 300, 30_000)
	w := d.start("work")
	require.Equal(t, 100, d.crowdOf("rain", 0, 100))
	paid := map[string]hongbao.Grant{}
	for id, body := range r.waitFor(t, 100) {
		var e struct {
			ID, Source, Type string
			Data             hongbao.Grant
		}
		require.NoError(t, json.Unmarshal([]byte(body), &e), body)
		require.Equal(t, id, e.ID)
		require.Equal(t, "/hongbao/"+d.prefix, e.Source)
		require.Equal(t, fmt.Sprintf("rain-%d", e.Data.Packet), id)
		paid[id] = e.Data
	}
	require.Len(t, paid, 100)
	entries, err := d.store.Shard(0).Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	n := 0
	for _, e := range entries {
		for _, g := range e.Grants {
			n++
			has := paid[fmt.Sprintf("rain-%d", g.Packet)]
			require.Equal(t, g.User, has.User)
			require.Equal(t, g.Amount, has.Amount)
			require.Equal(t, "CNY", has.Currency)
		}
	}
	require.Equal(t, 100, n)

	// The balance system is paused: what it has not paid is not posted.
	d.ok("sink", "pause", "balance", "--by", "ann", "--why", "the bank is closed")
	require.Equal(t, 50, d.crowdOf("rain", 100, 50))
	w.says("sink balance has finished none of these")
	require.Len(t, r.got(), 100)
	d.ok("sink", "resume", "balance", "--by", "ann", "--why", "it is open")
	r.waitFor(t, 150)

	// The receiver is down: grabs are decided and paid all the same.
	r.status.Store(http.StatusServiceUnavailable)
	require.Equal(t, 50, d.crowdOf("rain", 150, 50))
	require.Regexp(t, `paid.*, not delivered to crm yet: `, d.ok("why", "rain", "u000199"))
	r.status.Store(http.StatusNoContent)
	r.waitFor(t, 200)
	w.stop(syscall.SIGTERM)

	require.Contains(t, d.ok("config", "check", "--connect"), "redis, ledger and webhook crm: as they must be\n")
	before := r.twice
	require.Contains(t, d.ok("replay", "again", "--to", "crm", "--campaign", "rain"), "200")
	require.Len(t, r.got(), 200)
	require.GreaterOrEqual(t, r.twice-before, 200, "each event came again with its id")
	require.Empty(t, r.refused)
	require.Contains(t, d.audit(0).LeftOut, "sink crm: what its receiver has can't be read back; `hongbao status` says what waits for it")
}

// What concerns one event makes a dead letter, which can be requeued. What concerns the endpoint stops the sink.
func TestWebhookRefuses(t *testing.T) {
	t.Parallel()
	d, r := hooked(t, options{})
	d.campaign("rain", 20, 2_000)
	r.status.Store(http.StatusUnprocessableEntity)
	w := d.start("work")
	require.Equal(t, 5, d.crowdOf("rain", 0, 5))
	letters := func() (n int64) {
		status := decided[deliveries.Status](t, d.run("status", "--json").out)
		for _, s := range status.Sinks {
			n += s.Dead
		}
		return n
	}
	testkit.Eventually(t, time.Minute, func() bool { return letters() == 5 }, "each event is a dead letter")
	r.status.Store(http.StatusNoContent)
	d.ok("dead", "requeue", "--sink", "crm", "--expect", "5", "--by", "ann", "--why", "the receiver is fixed")
	require.Len(t, r.got(), 5)

	r.status.Store(http.StatusUnauthorized)
	require.Equal(t, 5, d.crowdOf("rain", 5, 5))
	w.says("401")
	require.Zero(t, letters())
	r.status.Store(http.StatusNoContent)
	r.waitFor(t, 10)
	w.stop(syscall.SIGTERM)

	d.env = slices.DeleteFunc(d.env, func(v string) bool { return strings.HasPrefix(v, "HONGBAO_WEBHOOK_CRM_SECRET") })
	d.refused(1, []string{"config", "check", "--connect"}, "sink crm has no secret")
	d.refused(1, []string{"work", "--sink", "crm"}, "sink crm has no secret, which signs its requests: set HONGBAO_WEBHOOK_CRM_SECRET "+
		"or HONGBAO_WEBHOOK_CRM_SECRET_FILE")
}
