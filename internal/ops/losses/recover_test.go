package losses

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/configs/configstest"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
)

// The digest of a loss changes whenever the loss changes. It does not change when other shards pay, when a worker tries
// to restore the shard, or when a campaign is created.
func TestDigestOfALoss(t *testing.T) {
	t.Parallel()
	digest := func(change func(*ShardLoss)) string {
		t.Helper()
		s := &ShardLoss{ShardReport: &recovery.ShardReport{Shard: 1, Redis: 5, Ledger: 9, Seen: 9,
			Campaigns: []recovery.Doubt{{Campaign: "rain", Why: "Redis has lost it"}}},
			Effects: []Effect{{Campaign: "rain", Paid: 4}}, Unpaid: []payments.Unpaid{{Campaign: "rain", Grants: 2}}}
		change(s)
		d, err := payments.DigestOf(s.loss())
		require.NoError(t, err)
		require.Len(t, d, 12)
		return d
	}
	shown := digest(func(*ShardLoss) {})
	for name, change := range map[string]func(*ShardLoss){
		"another shard pays": func(s *ShardLoss) { s.Effects[0].Paid++ },
		"a worker tries":     func(s *ShardLoss) { s.Epoch++ },
		"a campaign comes":   func(s *ShardLoss) { s.Unloaded = []string{"snow"} },
	} {
		require.Equal(t, shown, digest(change), name)
	}
	for name, change := range map[string]func(*ShardLoss){
		"another shard":       func(s *ShardLoss) { s.Shard++ },
		"more was seen":       func(s *ShardLoss) { s.Seen++ },
		"a late witness":      func(s *ShardLoss) { s.Late = 3 },
		"another campaign":    func(s *ShardLoss) { s.Campaigns[0].Campaign = "snow" },
		"another announced":   func(s *ShardLoss) { s.Unpaid[0].Grants++ },
		"more is not known":   func(s *ShardLoss) { s.Unknown++ },
		"another opening":     func(s *ShardLoss) { s.Opening++ },
		"the ledger is ahead": func(s *ShardLoss) { s.Ledger++ },
	} {
		require.NotEqual(t, shown, digest(change), name)
	}
}

// Redis is down. The error does not blame Kafka, and appears once.
func TestRecoverWithoutRedis(t *testing.T) {
	t.Parallel()
	a := apptest.Opened(t, configstest.Config(t, "HONGBAO_REDIS_ADDRS=127.0.0.1:1", "HONGBAO_DEPLOYMENT_SINKS=balance,kafka"))
	for _, accept := range []*Acceptance{nil, {}} {
		_, err := Of(a).Recover(t.Context(), RecoverOptions{WithoutLedger: true, Accept: accept})
		require.True(t, hongbao.IsOutage(err), "%v", err)
		require.NotContains(t, err.Error(), "\n")
		require.NotContains(t, err.Error(), "without kafka")
	}
}
