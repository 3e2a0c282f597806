package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
)

func TestConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), Config{Database: postgres.Database{UnsafeAllow: []string{"everything"}}})
	for _, problem := range []string{
		"DSN is empty", "Conns is 0", "ConnectTimeout", "LockTimeout", "timeout of a transaction", "Retries is 0",
		`unsafe-allow "everything"`,
	} {
		require.ErrorContains(t, err, problem)
	}
	_, err = Open(t.Context(), Config{})
	require.ErrorContains(t, err, "the database is missing")
	for _, dsn := range []string{":memory:", "file:x?mode=memory"} {
		_, err = Open(t.Context(), testConfig(sqlite.Database{Path: dsn}))
		require.ErrorContains(t, err, "not a plain path")
	}
	_, err = Open(t.Context(), testConfig(postgres.Database{DSN: "postgres://user:hunter2@host:not-a-port/db"}))
	require.ErrorContains(t, err, "not a connection string")
	require.NotContains(t, err.Error(), "hunter2")
	_, err = NewSettler(SettlerConfig{})
	for _, problem := range []string{"ledger", "plan", "log"} {
		require.ErrorContains(t, err, "the "+problem+" is missing")
	}
}

func TestSeedIsNotPrinted(t *testing.T) {
	t.Parallel()
	c := testCampaign(t, "rain", 1)
	require.NotContains(t, c.String()+c.GoString(), "seed")
}
