// Package configstest makes configurations for tests.
package configstest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Config returns the configuration of an environment.
func Config(t *testing.T, env ...string) *configs.Config {
	t.Helper()
	cfg, err := configs.Load("", env, nil)
	require.NoError(t, err)
	return cfg
}

// OnServers returns the configuration of a deployment with a Redis and a database of its own. Its ledger is initialized.
func OnServers(t *testing.T, driver, dsn, allow string, env ...string) *configs.Config {
	t.Helper()
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	cfg := Config(t, append(env, "HONGBAO_DEPLOYMENT_ID=test", "HONGBAO_REDIS_ADDRS="+server.Addr,
		"HONGBAO_LEDGER_DRIVER="+driver, "HONGBAO_LEDGER_DSN="+dsn, "HONGBAO_UNSAFE_ALLOW="+allow)...)
	Initialize(t, cfg)
	return cfg
}

// Initialize creates the tables of the configured ledger, and initializes it for the deployment.
func Initialize(t *testing.T, cfg *configs.Config) {
	t.Helper()
	_, err := ledger.Migrate(t.Context(), cfg.LedgerConfig())
	require.NoError(t, err)
	l, err := ledger.Open(t.Context(), cfg.LedgerConfig())
	require.NoError(t, err)
	_, err = l.Initialize(t.Context(), cfg.DeploymentRow())
	require.NoError(t, errors.Join(err, l.Close()))
}
