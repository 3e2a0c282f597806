package app

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// config returns the configuration of an environment.
func config(t *testing.T, env ...string) *configs.Config {
	t.Helper()
	cfg, err := configs.Load("", env, nil)
	require.NoError(t, err)
	return cfg
}

// opened returns an App that skips the checks of openRedis, so its Redis need not be initialized.
func opened(t *testing.T, cfg *configs.Config) *App {
	t.Helper()
	a, err := New(cfg, zap.NewNop(), Hooks{})
	require.NoError(t, err)
	a.AcceptRedis()
	t.Cleanup(func() {
		var err error
		a.Shut(&err)
		require.NoError(t, err)
	})
	return a
}

// onServers returns an App with its own Redis and its own database.
func onServers(t *testing.T, driver, dsn string, allow string, env ...string) *App {
	t.Helper()
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	cfg := config(t, append(env, "HONGBAO_DEPLOYMENT_ID=test", "HONGBAO_REDIS_ADDRS="+server.Addr,
		"HONGBAO_LEDGER_DRIVER="+driver, "HONGBAO_LEDGER_DSN="+dsn, "HONGBAO_UNSAFE_ALLOW="+allow)...)
	_, err := ledger.Migrate(t.Context(), cfg.LedgerConfig())
	require.NoError(t, err)
	a := opened(t, cfg)
	l, err := ledger.Open(t.Context(), cfg.LedgerConfig())
	require.NoError(t, err)
	_, err = l.Initialize(t.Context(), a.DeploymentRow())
	require.NoError(t, errors.Join(err, l.Close()))
	return a
}
