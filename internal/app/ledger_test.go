package app

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/configs/configstest"
)

// The ledger is down. Callers share one attempt to connect, and a caller whose context has ended does not wait.
func TestSharedLedgerIsTriedOnce(t *testing.T) {
	t.Parallel()
	a := &App{Config: configstest.Config(t, "HONGBAO_LEDGER_DRIVER=postgres", "HONGBAO_LEDGER_DSN=postgres://u@127.0.0.1:2/d"),
		log: zap.NewNop()}
	a.ledger = a.newLedger()
	first := a.ledger.Ready(t.Context())
	require.Error(t, first)
	require.Same(t, first, a.ledger.Ready(t.Context()), "the first error is returned again")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, a.ledger.Ready(gone))
}
