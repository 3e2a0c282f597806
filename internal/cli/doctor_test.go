package cli

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// doctor runs `hongbao doctor`, requires its exit code, and returns its findings.
func (d *deployment) doctor(code int) (all []app.Finding) {
	d.t.Helper()
	r := d.run("doctor", "--json")
	require.Equal(d.t, code, r.code, "%s%s", r.out, r.err)
	var e app.Examination
	require.NoError(d.t, json.Unmarshal([]byte(r.out), &e))
	require.Equal(d.t, code == 3, e.Problems > 0)
	return e.Findings
}

// finds reports whether a finding has this server and level, and a text that contains all words.
func finds(all []app.Finding, server, level string, words ...string) bool {
	for _, f := range all {
		has := f.Server == server && f.Level == level
		for _, w := range words {
			has = has && strings.Contains(f.About, w)
		}
		if has {
			return true
		}
	}
	return false
}

// `hongbao doctor` finds each fault that the test causes on a real server, and names the remedy. Before, it finds none.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{kafka: true, redis: testkit.NewRedis(t, testkit.RedisOptions{})})
	all := d.doctor(0)
	for _, server := range []string{"redis", "ledger", "topic"} {
		require.True(t, finds(all, server, "ok"), "%s: %v", server, all)
	}
	require.True(t, finds(all, "redis", "ok", "every command"), all)
	for _, server := range []string{"redis", "ledger"} { // both servers run on this machine
		require.True(t, slices.ContainsFunc(all, func(f app.Finding) bool {
			return f.Server == server && strings.Contains(f.About, "the disk of")
		}), "%s: %v", server, all)
	}
	require.True(t, finds(all, "redis", "warning", "group of sink balance is missing", "hongbao work"), all)
	require.True(t, finds(all, "redis", "warning", "maxmemory is not set"), all)

	d.ok("sink", "pause", "kafka", "--by", "ann", "--why", "drill")
	require.True(t, finds(d.doctor(0), "redis", "warning", "sink kafka is paused"))

	d.findsWrongSettings()
	d.findsFewRights()

	env := d.env
	d.set("KAFKA_PARTITIONS", "3")
	require.True(t, finds(d.doctor(3), "topic", "problem", "partitions"))
	d.env = env
	d.set("LEDGER_DSN", t.TempDir()+"/other.db")
	require.True(t, finds(d.doctor(3), "ledger", "problem", "hongbao init"))
	d.env = env

	d.findsAnotherFounding()
	require.NoError(t, d.rdb.HSet(t.Context(), d.store.Shard(0).Keys.Meta(), "frozen", "1").Err())
	require.True(t, finds(d.doctor(3), "redis", "problem", "shard 0 is frozen", "hongbao recover"))
}

// findsWrongSettings gives one setting of Redis after the other a wrong value.
func (d *deployment) findsWrongSettings() {
	t, ctx := d.t, d.t.Context()
	t.Helper()
	set := func(name, value string) {
		t.Helper()
		require.NoError(t, d.rdb.ConfigSet(ctx, name, value).Err())
	}
	set("maxmemory", "1")
	require.True(t, finds(d.doctor(0), "redis", "warning", "of 1 bytes of memory"))
	set("maxmemory", "65536gb")
	require.True(t, finds(d.doctor(0), "redis", "warning", "maxmemory is 65536 GiB", "three quarters of the machine's"))
	set("maxmemory", "0")

	set("maxmemory-policy", "allkeys-lru")
	require.True(t, finds(d.doctor(3), "redis", "problem", "allkeys-lru", "noeviction"))
	set("maxmemory-policy", "noeviction")
	set("appendonly", "no")
	require.True(t, finds(d.doctor(3), "redis", "problem", "appendonly is no"))
	safe := d.env
	for _, allowed := range []string{"redis_appendonly", "redis_settings"} {
		d.set("UNSAFE_ALLOW", allowed)
		all := d.doctor(0)
		require.True(t, finds(all, "redis", "warning", "unsafe.allow", "appendonly is no"), all)
		require.True(t, finds(all, "configuration", "warning", allowed+": a check that protects money is off"), all)
		require.True(t, finds(all, "redis", "warning", "maxmemory is not set"), "the other servers are checked: %v", all)
		require.False(t, finds(all, "redis", "ok", "append-only"), all)
	}
	d.env = safe
	set("appendonly", "yes")
	d.set("UNSAFE_ALLOW", "webhook_without_tls")
	require.True(t, finds(d.doctor(0), "configuration", "warning", "a check that protects users' data and coupon codes is off"))
	d.env = safe
}

// findsFewRights connects as a Redis user without some of the required rights.
func (d *deployment) findsFewRights() {
	t, ctx, env := d.t, d.t.Context(), d.env
	t.Helper()
	d.set("REDIS_USERNAME", "few", "REDIS_PASSWORD", "secret")
	few := []any{"ACL", "SETUSER", "few", "reset", "on", ">secret", "~*", "+@all", "-xack", "-xclaim"}
	require.NoError(t, d.rdb.Do(ctx, few...).Err())
	require.True(t, finds(d.doctor(0), "redis", "warning", "may not run XACK, XCLAIM on"))
	require.NoError(t, d.rdb.Do(ctx, append(few, "-eval")...).Err())
	require.True(t, finds(d.doctor(3), "redis", "problem", "may not run scripts"))
	d.env = env
}

// findsAnotherFounding gives the data in Redis another founding than the ledger's.
func (d *deployment) findsAnotherFounding() {
	t, ctx := d.t, d.t.Context()
	t.Helper()
	mark, _, err := d.store.Open(ctx)
	require.NoError(t, err)
	founded := func(founding string) {
		t.Helper()
		for _, key := range []string{d.store.Deployment(), d.store.Shard(0).Keys.Meta()} {
			require.NoError(t, d.rdb.HSet(ctx, key, "founding", founding).Err())
		}
	}
	founded("another")
	all := d.doctor(3)
	require.True(t, finds(all, "redis", "problem", "not founded together") ||
		finds(all, "ledger", "problem", "not founded together"), all)
	founded(mark.Founding)
}

// The doctor checks that the remote, the address of a key set and the collector of traces answer.
func TestDoctorAsksTheOthers(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	var keys atomic.Pointer[string]
	answer := func(text string) { keys.Store(&text) }
	answer(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},{"kty":"OKP"}]}`)
	others := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/keys" {
			w.WriteHeader(http.StatusUnauthorized) // it is there
			return
		}
		_, _ = io.WriteString(w, *keys.Load())
	}))
	defer others.Close()
	d.set("SETTLEMENT_KIND", "remote", "REMOTE_URL", others.URL+"/bank", "REMOTE_RETENTION", "0s",
		"REMOTE_QUERYABLE", "false", "TRACING_ENDPOINT", others.URL, "SERVE_KEYS", others.URL+"/keys",
		"SERVE_ISSUER", "https://id.example.com", "SERVE_AUDIENCE", "hongbao")
	all := d.doctor(0)
	for server, has := range map[string]string{"remote": "/bank answers", "keys": "has 1 usable key", "collector": "answers"} {
		require.True(t, finds(all, server, "ok", has), "%s: %v", server, all)
	}
	require.True(t, finds(all, "keys", "warning", `key 2, ""`), "%v", all)
	for _, text := range []string{`{"keys":[]}`, `{}`, "maintenance", `{"keys":[{"kty":"OKP"}]}`} {
		answer(text)
		require.True(t, finds(d.doctor(3), "keys", "problem", "serve.keys"), text)
	}
	others.Close()
	all = d.doctor(3)
	require.True(t, finds(all, "remote", "problem", "remote.url"), all)
	require.True(t, finds(all, "keys", "problem", "serve.keys"), all)
	require.True(t, finds(all, "collector", "warning", "tracing.endpoint"), "only spans are lost: %v", all)
	require.True(t, finds(all, "redis", "ok"), all)
}

// A server that accepts connections and never answers is a problem. The doctor still checks the other servers.
func TestDoctorOfAHungServer(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	mute, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections; nobody answers
	require.NoError(t, err)
	defer func() { _ = mute.Close() }()
	d.set("REDIS_ADDRS", mute.Addr().String(), "KAFKA_BROKERS", mute.Addr().String())
	begin := time.Now()
	all := d.doctor(3)
	require.Less(t, time.Since(begin), 50*time.Second)
	require.True(t, finds(all, "redis", "problem", "redis.addrs"), all)
	require.True(t, finds(all, "topic", "problem", "kafka.brokers"), all)
	require.True(t, finds(all, "ledger", "ok"), all)
}
