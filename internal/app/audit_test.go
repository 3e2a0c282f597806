package app

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Redis is full, so it does not store which audit runs. The server audits nevertheless.
func TestAuditAtAServerWhileRedisIsFull(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := onServers(t, "sqlite", filepath.Join(t.TempDir(), "l.db"), "", "HONGBAO_DEPLOYMENT_SINKS="+configs.SinkBalance)
	require.NoError(t, a.store.Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	require.NoError(t, a.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.Error(t, a.store.SetAuditing(t.Context(), store.RunningAudit{}), "Redis is full")
	report, err := a.AuditAlone(t.Context(), &AuditOrder{})
	require.NoError(t, err)
	require.Equal(t, audit.Agrees, report.Verdict)
}
