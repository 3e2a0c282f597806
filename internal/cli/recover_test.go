package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/losses"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// `hongbao recover` exits with 3 if something was lost, and with 0 if nothing was lost or a person has accepted the
// loss.
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
	require.Contains(t, d.refused(3, []string{"recover"}, "1 shard has lost data and stays frozen").out,
		"shard 0 is FROZEN")
	r := d.refused(3, []string{"recover", "--json"})
	oneDocument(t, "recover", r.out)
	lost := decided[struct{ Shards []recovery.ShardReport }](t, r.out).Shards[0]
	require.EqualValues(t, -1, lost.Redis)
	require.EqualValues(t, 4, lost.Ledger)
	require.Equal(t, "rain", lost.Campaigns[0].Campaign)

	by := []string{"recover", "--accept-loss", "--by", "ann", "--why", "a person flushed it"}
	d.refused(2, by[:2], "--by and --why")
	d.refused(2, by, "--shard and --expect")
	d.refused(2, append(by, "--shard", "0"), "--shard and --expect")
	d.refused(2, []string{"recover", "--shard", "0"}, "needs --accept-loss")
	d.refused(2, []string{"recover", "--without", "redis"}, "only kafka and ledger can be left out")
	d.refused(1, append(by, "--shard", "0", "--expect", "0123456789ab"), "nothing was done")
	d.refused(2, append(by, "--shard", "1", "--expect", "0123456789ab"), "has shards 0 to 0")
	require.Equal(t, []int64{4, 10}, []int64{effects(t, d)[0].Paid, effects(t, d)[0].Packets})
	accepted := d.acceptLoss("a person flushed it")
	require.Contains(t, accepted, "shard 0 is opened")
	require.Contains(t, accepted, "campaign rain stays frozen")
	require.Contains(t, d.ok("recover"), "shard 0 is open\n")
	d.refused(2, append(by, "--shard", "0", "--expect", "0123456789ab"), "the shard is open")
}

// effects returns the effects on the campaigns of shard 0 that `hongbao recover` reports.
func effects(t *testing.T, d *deployment) []losses.Effect {
	t.Helper()
	return decided[struct{ Shards []losses.ShardLoss }](t, d.run("recover", "--json").out).Shards[0].Effects
}

var acceptance = regexp.MustCompile(`--accept-loss (--shard \d+) (--expect [0-9a-f]{12}) `)

// acceptLoss runs the command that `hongbao recover` prints for each shard with a loss.
func (d *deployment) acceptLoss(why string) (said string) {
	d.t.Helper()
	all := acceptance.FindAllStringSubmatch(d.run("recover").out, -1)
	require.NotEmpty(d.t, all)
	for _, m := range all {
		args := slices.Concat([]string{"recover", "--accept-loss", "--by", "ann", "--why", why}, strings.Fields(m[1]+" "+m[2]))
		said += d.ok(args...)
	}
	return said
}

// Two shards have lost data. One command opens one shard, and the other shard stays frozen: a person may be about to
// reattach its disk.
func TestRecoverOneShardAtATime(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{}), shards: 2})
	for _, id := range []string{d.at(0, "rain"), d.at(1, "rain")} {
		d.campaign(id, 10, 1000)
		require.Equal(t, 2, d.crowdOf(id, 0, 2))
	}
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	require.NoError(t, d.rdb.FlushAll(t.Context()).Err())
	shown := d.refused(3, []string{"recover"}, "2 shards have lost data").out
	all := acceptance.FindAllStringSubmatch(shown, -1)
	require.Len(t, all, 2)
	require.NotEqual(t, all[0][2], all[1][2])
	by := []string{"recover", "--accept-loss", "--by", "ann", "--why", "no file is left"}
	d.refused(1, slices.Concat(by, strings.Fields(all[0][1]+" "+all[1][2])), "nothing was done")
	require.Contains(t, d.ok(slices.Concat(by, strings.Fields(all[1][1]+" "+all[1][2]))...), "shard 0 is FROZEN")
	after := d.refused(3, []string{"recover"}).out
	require.Contains(t, after, "shard 0 is FROZEN")
	require.Contains(t, after, "shard 1 is open\n")
}

// Redis loses grants that are in the topic and not paid. A person must see this sum before the loss can be accepted,
// and again before the money can go back to the sponsor.
func TestRecoverNamesWhatWasAnnounced(t *testing.T) {
	t.Parallel()
	d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{}), kafka: true})
	d.campaign("rain", 10, 1000)
	w := d.start("work")
	require.Equal(t, 2, d.crowdOf("rain", 0, 2))
	d.quiet()
	paid := int64(d.show("rain").Ledger.Granted)
	d.ok("sink", "pause", "balance", "--by", "ann", "--why", "a slow database")
	require.Equal(t, 5, d.crowdOf("rain", 2, 5))
	testkit.Eventually(t, 30*time.Second, func() bool { return strings.Count(d.run("tail").out, "\n") == 7 },
		"all are announced")
	w.stop(syscall.SIGTERM)
	require.NoError(t, d.rdb.FlushAll(t.Context()).Err())

	r := d.refused(3, []string{"recover"}, "lost data and stay")
	require.Regexp(t, `campaign rain: 5 grants, \d+\.\d\d CNY, are in the topic and not in the ledger`, r.out)
	loss := decided[struct{ Shards []losses.ShardLoss }](t, d.run("recover", "--json").out).Shards[0]
	require.Len(t, loss.Unpaid, 1)
	owed := loss.Unpaid[0]
	require.Equal(t, []int64{5, 5, 0}, []int64{owed.Grants, int64(len(owed.List)), loss.Unknown})
	d.acceptLoss("no file is left")
	d.ok("sink", "resume", "balance", "--by", "ann", "--why", "over")

	shown := d.run("campaign", "refund-lost", "rain").out
	require.Contains(t, shown, "among them 5 packets, ")
	ending := decided[campaigns.LostEnding](t, d.run("campaign", "refund-lost", "rain", "--json").out)
	require.Equal(t, owed, *ending.Unpaid)
	require.EqualValues(t, 1000-paid, ending.LeftAmount)
	act := []string{"campaign", "refund-lost", "rain", "--amount", fmt.Sprint(1000 - paid), "--by", "ann", "--why", "agreed"}
	d.refused(2, act, "--expect is missing")
	require.Zero(t, d.show("rain").Ledger.Refunded)
	require.NotContains(t, d.ok(append(act, "--expect", digestIn(shown))...), "among them")
	require.EqualValues(t, 1000-paid, d.show("rain").Ledger.Refunded)
}

// While Kafka is down, a person can open a shard without reading the topic.
func TestRecoverWithoutKafka(t *testing.T) {
	t.Parallel()
	d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{}), kafka: true})
	d.campaign("rain", 10, 1000)
	w := d.start("work")
	require.Equal(t, 2, d.crowdOf("rain", 0, 2))
	d.quiet()
	w.stop(syscall.SIGTERM)
	require.NoError(t, d.rdb.FlushAll(t.Context()).Err())
	d.set("KAFKA_BROKERS", "127.0.0.1:1")
	shown := d.refused(5, []string{"recover"}, "this report is incomplete", "`hongbao recover --without kafka` leaves it out").out
	require.Contains(t, shown, "shard 0 is FROZEN: Redis has lost the shard, the ledger knows event 2, the topic was not asked")
	require.Contains(t, shown, "campaign rain stays frozen: Redis has lost it. The ledger has paid 2 of 10 packets")
	require.Contains(t, shown, "unknown: grants that only the topic has")
	require.NotContains(t, shown, "--accept-loss", "a person accepts no loss while Kafka may come back")
	shown = d.refused(3, []string{"recover", "--without", "kafka"}, "lost data and stay").out
	require.Contains(t, shown, "the topic was not asked")
	m := acceptance.FindStringSubmatch(shown)
	require.NotNil(t, m, shown)
	said := d.ok(slices.Concat([]string{"recover", "--without", "kafka", "--accept-loss", "--by", "ann", "--why", "Kafka burns"},
		strings.Fields(m[1]+" "+m[2]))...)
	require.Contains(t, said, "shard 0 is opened")
	require.Contains(t, d.ok("recover", "--without", "kafka"), "shard 0 is open\n")
}

// The ledger is down, and a person opens a shard that has lost nothing. Grabs continue. `hongbao status` and
// `hongbao doctor` say what waits. The grants are paid when the ledger is back.
func TestRecoverWithoutLedger(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t, testkit.RedisOptions{Dir: t.TempDir(), Args: map[string]string{"appendfsync": "always"}})
	d := setup(t, options{redis: server})
	d.campaign("rain", 10, 1000)
	require.Equal(t, 2, d.crowdOf("rain", 0, 2))
	d.set("LEDGER_DSN", "/nowhere/ledger.db")
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart())
	require.NotZero(t, d.run("recover").code)
	shown := d.refused(3, []string{"recover", "--without", "ledger"}, "frozen while the ledger is down").out
	require.Contains(t, shown, "the ledger was not asked")
	m := acceptance.FindStringSubmatch(shown)
	require.NotNil(t, m, shown)
	by := []string{"recover", "--without", "ledger", "--accept-loss", "--by", "ann", "--why", "the database burns"}
	require.Contains(t, d.ok(slices.Concat(by, strings.Fields(m[1]+" "+m[2]))...), "shard 0 is opened")
	require.Contains(t, d.ok("recover", "--without", "ledger"), "ann opened it without the ledger")
	require.Equal(t, 2, d.crowdOf("rain", 2, 2))
	require.Contains(t, d.run("status").out, "was opened without the ledger")
	require.Contains(t, d.run("doctor").out, "was opened without the ledger")

	d.set("LEDGER_DSN", d.dsn)
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	require.Contains(t, d.ok("audit"), "agree")
	require.Contains(t, d.ok("recover"), "ann accepted that shard 0 continues")
	require.NotContains(t, d.run("status").out, "without the ledger")
	require.Contains(t, d.ok("journal", "--json"), `"accept_loss"`, "its entry waited in Redis for the ledger")
}
