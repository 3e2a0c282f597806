package settlement_test

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/settlement"
	"github.com/hongbao-project/hongbao/settlement/mysql"
	"github.com/hongbao-project/hongbao/settlement/postgres"
	"github.com/hongbao-project/hongbao/settlement/sqlite"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// A program pays into a ledger on each database.
func TestEachDatabase(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]func(t *testing.T) settlement.Database{
		"PostgreSQL": func(t *testing.T) settlement.Database {
			return postgres.New(postgres.Config{DSN: testkit.Postgres(t), UnsafeAllow: []string{"fsync", "full_page_writes"}})
		},
		"MariaDB": func(t *testing.T) settlement.Database {
			return mysql.New(mysql.Config{DSN: testkit.MariaDB(t), UnsafeAllow: []string{"innodb_doublewrite"}})
		},
		"SQLite": func(t *testing.T) settlement.Database {
			return sqlite.New(filepath.Join(t.TempDir(), "ledger.db"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, config := t.Context(), settlement.Config{Database: database(t)}
			_, err := settlement.Migrate(ctx, config)
			require.NoError(t, err)
			ledger, err := settlement.Open(ctx, config)
			require.NoError(t, err)
			defer ledger.Close()
			spec := hongbao.Campaign{ID: "rain", Kind: hongbao.KindRedPacket, Currency: "CNY", Total: 1000, Packets: 10,
				Sponsor: "acme"}
			canonical, err := json.Marshal(spec)
			require.NoError(t, err)
			require.NoError(t, ledger.CreateCampaign(ctx, settlement.Campaign{Spec: spec, Canonical: canonical, Hash: "hash",
				Seed: [32]byte{1}}))
			handler, err := settlement.New(settlement.HandlerConfig{Ledger: ledger, Plan: evenPlan(100), Log: zap.NewNop()})
			require.NoError(t, err)
			for range 2 {
				require.Empty(t, handler.Handle(ctx, testkit.Batch([]hongbao.Grant{{Seq: 1, Epoch: 1, Campaign: "rain", Packet: 7,
					Amount: 100, User: "ann", Time: time.Now()}})))
			}
			balance, err := ledger.Balance(ctx, "ann", "CNY")
			require.NoError(t, err)
			require.EqualValues(t, 100, balance)
		})
	}
}

// Open names everything that is wrong with a configuration.
func TestOpenNamesEveryProblem(t *testing.T) {
	t.Parallel()
	for problem, config := range map[string]settlement.Config{
		"the database is missing": {},
		"the DSN is empty":        {Database: postgres.New(postgres.Config{})},
		"not a connection string": {Database: mysql.New(mysql.Config{DSN: "ledger"})},
		"not a plain path":        {Database: sqlite.New(":memory:")},
		`unsafe-allow "sync"`:     {Database: mysql.New(mysql.Config{UnsafeAllow: []string{"sync"}})},
	} {
		config.Retries = 1000
		_, err := settlement.Open(t.Context(), config)
		require.ErrorContains(t, err, problem)
		require.ErrorContains(t, err, "Retries is 1000")
	}
}
