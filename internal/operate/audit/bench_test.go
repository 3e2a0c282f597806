package audit_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
)

// BenchmarkMillion audits a million grants, in well under a minute. It runs only on request: making the grants takes a
// minute.
func BenchmarkMillion(b *testing.B) {
	if os.Getenv("HONGBAO_BENCH") == "" {
		b.Skip("set HONGBAO_BENCH=1")
	}
	const n = 1_000_000
	st := storetest.Initialized(b, 1)
	rdb, k := st.Redis(), st.Shard(0)
	fields := []string{"state", "open", "from", "0", "to", "9000000000000", "packets", fmt.Sprint(n), "total",
		fmt.Sprint(n),
		"user_campaign", "1", "user_day", "", "user_hour", "", "fact_names", "", "fact_limits", "", "zone", "", "loaded",
		fmt.Sprint(n),
		"granted", "0", "granted_amount", "0", "loaded_amount", fmt.Sprint(n)}
	require.NoError(b, rdb.HSet(b.Context(), k.Keys.Campaign("big"), fields).Err())
	ledger := &memLedger{grants: map[string][]hongbao.Grant{}}
	for at := 0; at < n; at += 5000 {
		var stock []any
		for p := at + 1; p <= at+5000; p++ {
			stock = append(stock, fmt.Sprintf("%d 1", p))
		}
		require.NoError(b, rdb.RPush(b.Context(), k.Keys.Stock("big"), stock...).Err())
	}
	for at := 0; at < n; at += 128 {
		call := &store.GrabCall{MaxBacklog: 1e9}
		for i := at; i < min(at+128, n); i++ {
			call.Grabs = append(call.Grabs, &hongbao.Grab{Campaign: "big", User: fmt.Sprint("user", i)})
		}
		_, err := k.Place("big").Grab(b.Context(), call, nil)
		require.NoError(b, err)
	}
	entries, err := k.Entries(b.Context(), "-", "+")
	require.NoError(b, err)
	for _, e := range entries {
		ledger.grants["big"] = append(ledger.grants["big"], e.Grants...)
	}
	topic := &memTopic{grants: ledger.grants["big"]}
	_, err = k.Group(ledgerGroup).Create(b.Context())
	require.NoError(b, err)
	_, err = k.Group(topicGroup).Create(b.Context())
	require.NoError(b, err)
	cfg := audit.Config{Store: st, Ledger: ledger, LedgerGroup: ledgerGroup, Topic: topic,
		TopicGroup: topicGroup, MaxListed: 10}
	b.ResetTimer()
	b.ReportAllocs()
	for range b.N {
		r, err := audit.Run(b.Context(), cfg, audit.Options{})
		require.NoError(b, err)
		require.EqualValues(b, n, r.Total.Settled)
		require.EqualValues(b, n, r.Total.Granted)
	}
}
