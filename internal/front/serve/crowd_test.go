package serve

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// A key file with open permissions is refused, and accepted after a chmod, although its text is the same.
func TestKeyFileIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text, open := set(t, jwk(t, secret, "old", "HS256")), ""
		k, err := newFileKeys(func() ([]byte, string, error) { return text, open, nil }, zap.NewNop())
		require.NoError(t, err)
		text, open = set(t, jwk(t, secret, "new", "HS256")), "it is open to others"
		retry.Pause(t.Context(), fileAge)
		_, err = k.find(t.Context(), "new", "HS256")
		require.Error(t, err)
		open = ""
		retry.Pause(t.Context(), fileAge)
		_, err = k.find(t.Context(), "new", "HS256")
		require.NoError(t, err)
	})
}

// A token with an unknown kid triggers a fetch of the key set, even if the caller hangs up. If a fetch returns no
// keys, the previous keys stay valid.
func TestKeysFromURLStay(t *testing.T) {
	t.Parallel()
	var text atomic.Pointer[[]byte]
	put := func(b []byte) { text.Store(&b) }
	put(set(t, jwk(t, edKey.Public(), "old", "EdDSA")))
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(*text.Load())
	}))
	t.Cleanup(keys.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	s := setup(t, options{cfg: func(c *Config) { c.Keys = keys.URL }})
	require.Eventually(t, s.keyURL.ready, 30*time.Second, time.Millisecond)
	put(set(t, jwk(t, edKey.Public(), "new", "EdDSA")))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.verifier.keys.find(gone, "new", "EdDSA")
	require.NoError(t, err)
	require.Zero(t, s.logs.FilterMessageSnippet("the key set can't be read").Len())

	third := setup(t, options{cfg: func(c *Config) { c.Keys = keys.URL }})
	require.Eventually(t, third.keyURL.ready, 30*time.Second, time.Millisecond)
	put([]byte(`{"error":"maintenance"}`))
	_, err = third.verifier.keys.find(t.Context(), "other", "EdDSA")
	require.Error(t, err)
	_, err = third.verifier.keys.find(t.Context(), "new", "EdDSA")
	require.NoError(t, err, "an answer without keys removes no key")
	other := setup(t, options{cfg: func(c *Config) { c.Keys = keys.URL }})
	require.Eventually(t, func() bool { return other.logs.FilterMessageSnippet("the key set can't be read").Len() > 0 },
		30*time.Second, time.Millisecond)
	put(set(t, jwk(t, edKey.Public(), "old", "EdDSA")))
	require.Eventually(t, other.keyURL.ready, 30*time.Second, time.Millisecond)
	_, err = other.verifier.keys.find(t.Context(), "old", "EdDSA")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, other.call(t, "POST", "/v1/campaigns/granted/grabs", good,
		as(token{jwt.SigningMethodEdDSA, edKey, "old"}.sign(t, "u1"))).Status)
}

// slowWindows is a Reader whose Window waits until let is closed.
type slowWindows struct {
	fake
	n   atomic.Int64
	let chan struct{}
}

func (f *slowWindows) Window(context.Context, string) (model.PublicView, error) {
	f.n.Add(1)
	<-f.let
	return model.PublicView{}, errAbsent
}

// At most maxAsking unknown ids are read concurrently; requests for further ids are refused.
func TestWindowsAreAskedForByFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slowWindows{let: make(chan struct{})}
		v := newWindows(f)
		var full atomic.Int64
		for i := range 100 {
			go func() {
				if _, err := v.get(t.Context(), "c"+strconv.Itoa(i)); err == errAsking {
					full.Add(1)
				}
			}()
		}
		synctest.Wait()
		require.EqualValues(t, maxAsking, f.n.Load())
		require.EqualValues(t, 100-maxAsking, full.Load())
		close(f.let)
		synctest.Wait()
	})
}

// Requests for invented ids do not affect an existing campaign: they take neither its cache entry nor the concurrent
// reads that are reserved for known campaigns. While all concurrent reads are in use, the server shows the campaign's
// last state for some seconds.
func TestStrangersHideNoCampaign(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slowWindows{let: make(chan struct{})}
		v := newWindows(f)
		v.remember("rain", seen{window: model.PublicView{Name: "Rain", Now: decided}, at: time.Now()})
		for i := range 2 * maxWindows {
			v.remember("made-up-"+strconv.Itoa(i), seen{err: errAbsent, at: time.Now()})
		}
		retry.Pause(t.Context(), 2*windowAge)
		for i := range 2 * maxAsking {
			go func() { _, _ = v.get(t.Context(), "c"+strconv.Itoa(i)) }()
		}
		synctest.Wait()
		require.EqualValues(t, maxAsking, f.n.Load())
		asked := make(chan error)
		go func() {
			_, err := v.get(t.Context(), "rain")
			asked <- err
		}()
		synctest.Wait()
		require.EqualValues(t, maxAsking+1, f.n.Load(), "known campaigns have their own slots")

		for i := range maxAsking - 1 {
			id := "known-" + strconv.Itoa(i)
			v.remember(id, seen{window: model.PublicView{Name: "Rain", Now: decided}, at: time.Now().Add(-2 * windowAge)})
			go func() { _, _ = v.get(t.Context(), id) }()
		}
		synctest.Wait()
		v.remember("late", seen{window: model.PublicView{Name: "Late", Now: decided}, at: time.Now().Add(-2 * windowAge)})
		w, err := v.get(t.Context(), "late")
		require.NoError(t, err)
		require.Equal(t, decided.Add(2*windowAge), w.Now)
		retry.Pause(t.Context(), lateAge)
		_, err = v.get(t.Context(), "late")
		require.ErrorIs(t, err, errAsking)
		close(f.let)
		require.ErrorIs(t, <-asked, store.ErrNotInRedis)
		synctest.Wait()
	})
}

// Refused requests do not count: a user who keeps sending requests still gets the full rate.
func TestRefusedRequestsCostNothing(t *testing.T) {
	t.Parallel()
	l := newLimits(1, 2)
	at, let := time.Unix(1_700_000_000, 0), 0
	for range 10_000 { // 100 s
		if at = at.Add(10 * time.Millisecond); l.take("u1", 1, at) == 0 {
			let++
		}
	}
	require.InDelta(t, 2+100, let, 1)
}

// The deadline of a request is earlier than the deadline for writing its answer.
func TestRequestsHaveADeadline(t *testing.T) {
	t.Parallel()
	f := &fake{hold: make(chan struct{}), began: make(chan struct{}, 1)}
	s := setup(t, options{fake: f, cfg: func(c *Config) { c.WriteTimeout = 1500 * time.Millisecond }})
	s.call(t, "POST", "/v1/campaigns/granted/grabs", good).Refused(t, "outcome_unknown")
}

// The answer to a grant has the currency even if the campaign can't be read.
func TestAGrantHasItsCurrency(t *testing.T) {
	t.Parallel()
	s := setup(t, options{fake: &fake{err: hongbao.Outagef(hongbao.ClassTransient, "no answer")}})
	for _, outcome := range []string{"granted", "already_granted"} {
		r := s.call(t, "POST", "/v1/campaigns/"+outcome+"/grabs", good)
		require.Equal(t, http.StatusOK, r.Status)
		require.Equal(t, "CNY", r.Body["currency"], outcome)
	}
	require.Zero(t, s.reads, "nothing else is read")
}
