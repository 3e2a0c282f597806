package console

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
)

// breaker implements Faults and records the calls.
type breaker struct{ did []string }

func (b *breaker) Buttons() []model.Fault {
	return []model.Fault{{Name: "kill-worker", Label: "Kill a worker", What: "SIGKILL <now>"},
		{Name: "cut-kafka", Label: "Cut off Kafka", What: "closes"}}
}

func (b *breaker) Cause(_ context.Context, fault string) error {
	if fault != "kill-worker" {
		return fmt.Errorf("fault %s: %w", fault, model.ErrNotFound)
	}
	b.did = append(b.did, fault)
	return nil
}

func (b *breaker) Log() []model.FaultNote {
	return []model.FaultNote{{At: time.Unix(1_800_000_000, 0), Sentence: "Worker 3 takes 942 grants."}}
}

func TestFaultsAreForADevelopmentServerOnly(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	require.Equal(t, http.StatusNotFound, f.ask(t, "treasurer", "/faults", nil).Code)
	require.Equal(t, http.StatusNotFound, f.ask(t, "treasurer", "/faults/kill-worker", url.Values{}).Code)
	require.Equal(t, http.StatusNotFound, f.ask(t, "treasurer", "/events?page=/faults", nil).Code)
	for _, path := range pagePaths {
		require.NotContains(t, f.ask(t, "treasurer", path, nil).Body.String(), "/faults", path)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, role := range openers {
		b := &breaker{}
		f := setup(t, func(_ *configs.Console, d *Deps) { d.Faults = b })
		w := f.ask(t, string(role), "/faults", nil)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, policy, w.Header().Get("Content-Security-Policy"))
		page := w.Body.String()
		require.Contains(t, page, "Worker 3 takes 942 grants.")
		require.Contains(t, page, "kafka: waiting grants")
		require.NotContains(t, page, "<now>")
		may := (&access.Caller{Role: role}).May(access.PauseSink) == nil
		require.Equal(t, may, strings.Contains(page, `action="/faults/kill-worker"`), role)
		require.Contains(t, f.ask(t, string(role), "/", nil).Body.String(), `href="/faults"`)
		w = f.ask(t, string(role), "/faults/kill-worker", url.Values{})
		if !may {
			require.Equal(t, http.StatusForbidden, w.Code)
			require.Empty(t, b.did)
			continue
		}
		require.Equal(t, http.StatusSeeOther, w.Code)
		require.Equal(t, "/faults", w.Header().Get("Location"))
		require.Equal(t, []string{"kill-worker"}, b.did)
		require.Equal(t, http.StatusNotFound, f.ask(t, string(role), "/faults/nothing", url.Values{}).Code)
	}
}

func TestFaultsAreProtected(t *testing.T) {
	t.Parallel()
	b := &breaker{}
	f := setup(t, func(_ *configs.Console, d *Deps) { d.Faults = b })
	require.Equal(t, http.StatusUnauthorized, f.ask(t, "", "/faults/kill-worker", url.Values{}).Code)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://console.example/faults/kill-worker", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.AddCookie(&http.Cookie{Name: f.cookieName(f.tls), Value: sessionOf + "treasurer"})
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	require.Equal(t, http.StatusForbidden, w.Code)
	shown := setup(t, func(c *configs.Console, d *Deps) { c.ReadOnly, d.Faults = true, b })
	require.Equal(t, http.StatusForbidden, shown.ask(t, "treasurer", "/faults/kill-worker", url.Values{}).Code)
	require.NotContains(t, shown.ask(t, "treasurer", "/faults", nil).Body.String(), "f-kill-worker")
	require.Empty(t, b.did)
}
