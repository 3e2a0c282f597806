package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// provider simulates an identity provider without a network.
type provider struct {
	text  atomic.Pointer[string] // nil: the provider is down
	delay atomic.Int64
	asked atomic.Int64
}

func (p *provider) put(text []byte) { s := string(text); p.text.Store(&s) }

// RoundTrip implements http.RoundTripper.
func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	p.asked.Add(1)
	text := p.text.Load()
	select {
	case <-time.After(time.Duration(p.delay.Load())):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if text == nil {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(*text)), Request: r}, nil
}

func sleep(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the bubble's clock

// inBubble runs a test in a synctest bubble, with a key set and its provider.
func inBubble(t *testing.T, test func(t *testing.T, p *provider, k *urlSet, alarms *observer.ObservedLogs)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.ErrorLevel)
		p := &provider{}
		k := newURLSet("https://id.test/keys", p, zap.New(core))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { k.run(ctx) })
		synctest.Wait()
		test(t, p, k, logs)
	})
}

// If the provider is down when a server starts, the server fetches every second and uses the first key set at
// once.
func TestTheFirstKeySetComesLate(t *testing.T) {
	t.Parallel()
	old := set(t, jwk(t, edKey.Public(), "old", "EdDSA"))
	inBubble(t, func(t *testing.T, p *provider, k *urlSet, alarms *observer.ObservedLogs) {
		_, err := k.find(t.Context(), "old", "EdDSA")
		require.ErrorIs(t, err, errNoKeys)
		require.False(t, k.ready())
		sleep(2 * time.Second)
		require.NotZero(t, alarms.FilterField(zap.String("code", "keys_unread")).Len())
		p.put(old)
		sleep(firstEvery + time.Millisecond)
		require.True(t, k.ready())
		_, err = k.find(t.Context(), "old", "EdDSA")
		require.NoError(t, err)
		_, err = k.find(t.Context(), "new", "EdDSA")
		require.ErrorIs(t, err, errUnknownKey)
		require.NotErrorIs(t, err, errNoKeys, "the key set was fetched and does not have the key")
	})
}

// Tokens with invented key ids cause at most one fetch in unknownEvery. They delay the use of a new key by no more
// than that.
func TestJunkTokensHideNoNewKey(t *testing.T) {
	t.Parallel()
	old, both := set(t, jwk(t, edKey.Public(), "old", "EdDSA")), set(t, jwk(t, edKey.Public(), "old", "EdDSA"),
		jwk(t, edKey.Public(), "new", "EdDSA"))
	inBubble(t, func(t *testing.T, p *provider, k *urlSet, alarms *observer.ObservedLogs) {
		p.put(old)
		sleep(firstEvery + time.Millisecond)
		p.delay.Store(int64(200 * time.Millisecond))
		before := p.asked.Load()
		var junk sync.WaitGroup
		sending, stop := context.WithCancel(t.Context())
		junk.Go(func() {
			for i := 0; sending.Err() == nil; i++ {
				junk.Go(func() { _, _ = k.find(sending, fmt.Sprint("junk", i), "EdDSA") })
				sleep(20 * time.Millisecond) // 50 a second
			}
		})
		sleep(time.Minute)
		p.put(both)
		rotated := time.Now()
		for {
			_, err := k.find(t.Context(), "new", "EdDSA")
			if err == nil {
				break
			}
			require.Less(t, time.Since(rotated), unknownEvery+time.Second)
			sleep(100 * time.Millisecond)
		}
		stop()
		junk.Wait()
		require.LessOrEqual(t, p.asked.Load()-before, int64(8), "a fetch every 10 s")
		require.Equal(t, 1, alarms.Len(), "the alarm of the start, before the first key set")
	})
}

// A caller's token never raises an alarm, and does not delay the next due fetch, which may raise one. If the provider
// hangs, no caller waits longer than unknownWait.
func TestOnlyDueFetchesRaiseAlarms(t *testing.T) {
	t.Parallel()
	old := set(t, jwk(t, edKey.Public(), "old", "EdDSA"))
	inBubble(t, func(t *testing.T, p *provider, k *urlSet, alarms *observer.ObservedLogs) {
		p.put(old)
		sleep(firstEvery + time.Millisecond)
		alarms.TakeAll()
		p.text.Store(nil)
		for range 29 { // sleep until shortly before the next due fetch
			sleep(unknownEvery)
			_, err := k.find(t.Context(), "new", "EdDSA")
			require.ErrorIs(t, err, errNoKeys, "the newest key set might have the key")
			_, err = k.find(t.Context(), "old", "EdDSA")
			require.NoError(t, err)
		}
		require.Zero(t, alarms.Len())
		sleep(2 * unknownEvery)
		require.Equal(t, 1, alarms.FilterField(zap.String("code", "keys_unread")).Len())
		p.delay.Store(int64(time.Hour))
		began := time.Now()
		_, err := k.find(t.Context(), "new", "EdDSA")
		require.ErrorIs(t, err, errNoKeys)
		require.Equal(t, unknownWait, time.Since(began))
	})
}

// While its provider is down, a server is not ready and answers 503. After that it accepts the first valid token.
func TestServerWaitsForItsFirstKeySet(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	text := set(t, jwk(t, edKey.Public(), "ed", "EdDSA"))
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = w.Write(text)
	}))
	t.Cleanup(keys.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	s := setup(t, options{cfg: func(c *Config) { c.Keys = keys.URL }})
	bearer := as(token{jwt.SigningMethodEdDSA, edKey, "ed"}.sign(t, "u1"))
	grab := func() *reply { return s.call(t, "POST", "/v1/campaigns/granted/grabs", good, bearer) }
	grab().Refused(t, "unavailable", "no set was read")
	ready := s.call(t, "GET", s.ops+"/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, ready.Status)
	require.Contains(t, ready.Text, "waiting for the first key set")
	up.Store(true)
	require.Eventually(t, func() bool { return s.call(t, "GET", s.ops+"/readyz", "").Status == http.StatusOK },
		30*time.Second, 50*time.Millisecond)
	require.Equal(t, http.StatusOK, grab().Status)
}

// A published key set may contain keys that this server can't use. A set with only such keys does not replace
// the previous keys.
func TestPublicKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want int // keys, usable or not
		err  string
	}{
		"a secret beside a key":   {string(set(t, jwk(t, secret, "hs", "HS256"), jwk(t, edKey.Public(), "ed", "EdDSA"))), 2, ""},
		"a key without algorithm": {string(set(t, jwk(t, ecKey().Public(), "any", ""), jwk(t, edKey.Public(), "ed", "EdDSA"))), 2, ""},
		"an unusable key with the kid of another key": {string(set(t, jwk(t, edKey.Public(), "ed", "EdDSA"),
			jwk(t, ecKey().Public(), "ed", ""))), 1, ""},
		"a key of an unknown kind": {`{"keys":[{"kty":"AKP","kid":"x","alg":"ML-DSA-44"}]}`, 0, "no keys that can be used here"},
		"only a secret":            {string(set(t, jwk(t, secret, "hs", "HS256"))), 0, "must not be published"},
		"no keys":                  {`{"keys":[]}`, 0, "no keys that can be used here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &provider{}
			p.put([]byte(c.text))
			found, err := newURLSet("https://id.test/keys", p, zap.NewNop()).read(t.Context())
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Len(t, found, c.want)
			_, err = found.find("ed", "EdDSA")
			require.NoError(t, err)
			for kid, alg := range map[string]string{"hs": "HS256", "any": ""} {
				_, err = found.find(kid, alg)
				require.Error(t, err)
			}
		})
	}
}
