package app

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/configs/configstest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// opened returns an App that skips the checks of OpenRedis, so its Redis need not be initialized.
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
	return opened(t, configstest.OnServers(t, driver, dsn, allow, env...))
}
