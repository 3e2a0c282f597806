package campaigns

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The synchronous standby of the ledger is dead. What its primary has and the standby lacks does not get into Redis:
// users would win packets of a campaign that a promotion loses.
func TestNothingIsDealtThatTheStandbyLacks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	primary := testkit.NewPostgres(t, testkit.PostgresOptions{})
	standby := primary.NewStandby(t, testkit.PostgresOptions{})
	name, err := primary.CreateDatabase(t.Context())
	require.NoError(t, err)
	a := apptest.OnServers(t, "postgres", primary.DSN(name), "fsync,full_page_writes", "HONGBAO_LEDGER_TIMEOUT=1s",
		"HONGBAO_LEDGER_LOCK_TIMEOUT=500ms", "HONGBAO_DEPLOYMENT_SINKS=balance")
	_, err = a.Init(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), primary.DSN(name))
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	count := func(query string) (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&n))
		return n
	}
	now := time.Now().Truncate(time.Second)
	for _, id := range []string{"loaded", "created"} {
		_, err := Of(a).Create(t.Context(), campaign.Complete(hongbao.Campaign{ID: id, Name: id, Kind: hongbao.KindRedPacket,
			Sponsor: "acme", Currency: "CNY", Packets: 4, Total: 400, Split: hongbao.Split{Mode: hongbao.SplitEven},
			From: now, To: now.Add(time.Hour), TimeZone: "UTC"}), nil)
		require.NoError(t, err)
	}
	_, err = Of(a).Load(t.Context(), "loaded")
	require.NoError(t, err)

	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()",
		"CREATE TABLE waits (id bigint)"} {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	testkit.Eventually(t, 20*time.Second, func() bool {
		return count(`SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 1
	}, "commits wait for the standby")
	require.NoError(t, standby.Kill())
	for range 2 {
		_, err = Of(a).Load(t.Context(), "created")
		require.True(t, hongbao.IsOutage(err), "%v", err)
	}
	require.Equal(t, 1, count(`SELECT COUNT(*) FROM campaign WHERE id = 'created' AND loading_at > 0`), "it is visible")
	_, found, err := a.Store().Campaign("created").Status(t.Context())
	require.NoError(t, err)
	require.False(t, found, "Redis has a campaign that the standby lacks")

	_, err = Of(a).OrderTopUp(t.Context(), ledger.TopUp{Campaign: "loaded", ID: "more", Packets: 2, Total: 200, Expect: 400,
		Decision: stream.Decision{By: "ann", Why: "test"}})
	require.True(t, hongbao.IsOutage(err), "%v", err)
	require.Equal(t, 1, count(`SELECT COUNT(*) FROM generation`), "it is visible")
	require.True(t, hongbao.IsOutage(Of(a).DealTopUps(t.Context(), "loaded")))
	status, _, err := a.Store().Campaign("loaded").Status(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, status.Packets, "Redis has packets that the standby lacks")
}
