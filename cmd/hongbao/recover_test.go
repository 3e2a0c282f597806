package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/recovery"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// recover ends with 3 where something was lost, and with 0 where nothing was, or where a person has accepted it.
func TestRecoverNamesTheLoss(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{})})
	d.campaign("rain", 10, 1000)
	require.Equal(t, 4, d.crowdOf("rain", 0, 4))
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	require.Contains(t, d.ok("recover"), "shard 0 is open\n")

	require.NoError(t, d.rdb.FlushAll(t.Context()).Err())
	require.Contains(t, d.refused(3, []string{"recover"}, "1 shards have lost something and stay frozen").out,
		"shard 0 is FROZEN")
	r := d.refused(3, []string{"recover", "--json"})
	oneDocument(t, "recover", r.out)
	lost := decided[struct{ Shards []recovery.Verdict }](t, r.out).Shards[0]
	require.EqualValues(t, -1, lost.Redis)
	require.EqualValues(t, 4, lost.Ledger)
	require.Equal(t, "rain", lost.Campaigns[0].Campaign)

	d.refused(2, []string{"recover", "--accept-loss"}, "--by and --why")
	accepted := d.ok("recover", "--accept-loss", "--by", "ann", "--why", "somebody flushed it")
	require.Contains(t, accepted, "shard 0 is opened")
	require.Contains(t, accepted, "campaign rain stays frozen")
	require.Contains(t, d.ok("recover"), "shard 0 is open\n")
}
