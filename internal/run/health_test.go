package run

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// CheckHealth succeeds if the process says that it is ready. Otherwise the error says why.
func TestHealth(t *testing.T) {
	t.Parallel()
	var why error
	s := httptest.NewServer(web.OpsHandler(func() error { return why }, nil, false))
	t.Cleanup(s.Close)
	cfg := &configs.Config{}
	cfg.Work.OpsListen = strings.Replace(strings.TrimPrefix(s.URL, "http://"), "127.0.0.1", "0.0.0.0", 1)
	h, err := CheckHealth(t.Context(), cfg, "work")
	require.NoError(t, err)
	require.Equal(t, &Health{Command: "work", Status: "ok"}, h)

	why = errors.New("opening sink kafka")
	_, err = CheckHealth(t.Context(), cfg, "work")
	require.ErrorContains(t, err, "is not ready: opening sink kafka")
	require.True(t, hongbao.IsOutage(err))

	_, err = CheckHealth(t.Context(), cfg, "serve")
	require.ErrorAs(t, err, &app.UsageError{})
	require.ErrorContains(t, err, "serve.ops_listen is empty")
	_, err = CheckHealth(t.Context(), cfg, "audit")
	require.ErrorContains(t, err, "want one of balance, control, serve, work")

	cfg.Work.OpsListen = "127.0.0.1:1" // no other test ever listens there
	_, err = CheckHealth(t.Context(), cfg, "work")
	require.ErrorContains(t, err, "connection refused")
	require.True(t, hongbao.IsOutage(err))
}

// Another program listens at the address: CheckHealth fails.
func TestHealthOfAnotherProgram(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	cfg := &configs.Config{}
	cfg.Serve.OpsListen = strings.TrimPrefix(s.URL, "http://")
	_, err := CheckHealth(t.Context(), cfg, "serve")
	require.ErrorContains(t, err, "another program listens there")
}
