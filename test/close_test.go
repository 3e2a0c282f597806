package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// ending is a deployment with the open campaign "rain" of 50 packets. The test uses it through the built program.
type ending struct {
	*cli
	rdb   redis.UniversalClient
	store *store.Store
	keys  *store.Shard // the shard of campaign rain
}

const (
	endPackets = 50
	endTotal   = 10_000
)

func newEnding(t *testing.T, more ...string) *ending {
	t.Helper()
	return newEndingOn(t, testkit.Redis(t).Client(t), "", 2, append(more, "HONGBAO_REDIS_ADDRS="+testkit.Redis(t).Addr)...)
}

// newEndingOn creates an ending with n shards on rdb. spec is appended to the specification of the campaign.
func newEndingOn(t *testing.T, rdb redis.UniversalClient, spec string, n int, more ...string) *ending {
	t.Helper()
	e := &ending{rdb: rdb, cli: newCLI(t, map[string]string{"DEPLOYMENT_SHARDS": fmt.Sprint(n),
		"DEPLOYMENT_SINKS": "balance"}, more...)}
	var err error
	e.store, err = store.New(store.Config{Redis: rdb, Space: hongbao.Space{Prefix: e.prefix, Shards: n}})
	require.NoError(t, err)
	e.keys = e.store.Home("rain").Shard
	now := time.Now().UTC().Truncate(time.Second)
	file := e.file("rain.yaml", fmt.Sprintf(`id: rain
name: Spring rain
kind: red_packet
currency: CNY
total: %d
packets: %d
split: {mode: random, min: 1, max: %d}
window: {from: %s, to: %s}
time_zone: Asia/Shanghai
sponsor: acme
durability: fast
%s`, endTotal, endPackets, endTotal, now.Add(-time.Minute).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339),
		spec))
	e.ok("init")
	e.ok("campaign", "create", file)
	e.ok("campaign", "load", "rain")
	return e
}

func (e *ending) file(name, text string) string {
	e.t.Helper()
	return writeFile(e.t, name, text)
}

// work starts a worker. The returned function stops it.
func (e *ending) work() (stop func()) {
	e.t.Helper()
	cmd := e.command("work")
	require.NoError(e.t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	e.t.Cleanup(func() { _ = cmd.Process.Kill() }) // the worker may have ended
	return func() {
		e.t.Helper()
		require.NoError(e.t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(e.t, <-done, "%v", cmd.Stderr)
	}
}

// left returns the amount that was left at the close, according to the close entry.
func (e *ending) left() int64 {
	e.t.Helper()
	c, err := e.keys.Place("rain").CloseOf(e.t.Context())
	require.NoError(e.t, err)
	return int64(c.Close.LeftAmount)
}

// balances returns the balances of the pool and the sponsor, and the number of refunds, from the ledger's file.
func (e *ending) balances() (pool, sponsor int64, refunds int) {
	e.t.Helper()
	l, err := ledger.Open(e.t.Context(), sqlite(e.ledger))
	require.NoError(e.t, err)
	defer func() { require.NoError(e.t, l.Close()) }()
	p, _, err := l.Balance(e.t.Context(), tables.PoolAccount("rain"))
	require.NoError(e.t, err)
	s, _, err := l.Balance(e.t.Context(), tables.SponsorAccount("acme", "CNY"))
	require.NoError(e.t, err)
	_, found, err := l.RefundOf(e.t.Context(), "rain")
	require.NoError(e.t, err)
	if found {
		refunds = 1
	}
	return int64(p), int64(s), refunds
}

// A campaign runs from the first grab to the last receipt. It is closed while no worker runs, refunded once, revealed,
// verified, audited and removed from Redis. Then receipts come from the ledger.
func TestCloseToReceipts(t *testing.T) {
	t.Parallel()
	broker := testkit.Kafka(t)
	topic := broker.Topic(t, 2, map[string]string{"retention.ms": "-1", "unclean.leader.election.enable": "false"})
	e := newEnding(t, "HONGBAO_DEPLOYMENT_SINKS=balance,kafka", "HONGBAO_KAFKA_BROKERS="+broker.Addr,
		"HONGBAO_KAFKA_TOPIC="+topic,
		"HONGBAO_KAFKA_PARTITIONS=2", "HONGBAO_PUBLISHER_REQUEST_TIMEOUT=1500ms", "HONGBAO_PUBLISHER_ATTEMPT_TIME=2s",
		"HONGBAO_PUBLISHER_MAX_CLAIM_AGE=2500ms")
	for i := range 7 {
		e.exits(0, []string{"grab", "rain", user(i)}, "granted")
	}
	receipt := e.ok("receipts", "rain", user(3), "--json")
	require.Contains(t, receipt, `"source":"redis"`)

	e.exits(1, []string{"campaign", "refund", "rain", "--amount", "1"}, "not closed", "hongbao campaign close rain") // B36
	e.exits(1, []string{"campaign", "close", "rain"}, "its window is open until")
	e.exits(1, []string{"campaign", "close", "rian", "--early"}, "not in the ledger") // B35, B51
	e.exits(1, []string{"campaign", "reveal", "rain"}, "not refunded")
	closed := e.exits(0, []string{"campaign", "close", "rain", "--early"}, "granted 7 packets", "left 43 packets",
		"settling")
	require.Equal(t, closed, e.ok("campaign", "close", "rain"), "a second close prints the same")
	e.exits(0, []string{"grab", "rain", user(8)}, "ended")

	left := e.left()
	amount := fmt.Sprint(left)
	e.exits(2, []string{"campaign", "refund", "rain"}, "--amount "+amount)
	e.exits(4, []string{"campaign", "refund", "rain", "--amount", amount}, "settling")                             // B36
	e.exits(4, []string{"campaign", "refund", "rain", "--amount", amount, "--wait", "300ms"}, "settling", "ALARM") // F59
	pool, sponsor, refunds := e.balances()
	require.Equal(t, []int64{endTotal, -endTotal, 0}, []int64{pool, sponsor, int64(refunds)})

	stop := e.work()
	e.exits(1, []string{"campaign", "refund", "rain", "--amount", fmt.Sprint(left - 1), "--wait", "30s"},
		"the amount is "+amount)
	first := e.exits(0, []string{"campaign", "refund", "rain", "--amount", amount, "--wait", "30s"}, "was refunded",
		"to sponsor acme")
	require.Equal(t, first, e.ok("campaign", "refund", "rain", "--amount", amount))
	require.Contains(t, e.ok("campaign", "refund", "rain"), first, "without an amount the command prints the refund")
	pool, sponsor, refunds = e.balances()
	require.Equal(t, []int64{0, left - endTotal, 1}, []int64{pool, sponsor, int64(refunds)})
	e.exits(0, []string{"audit", "--wait", "30s"}, "agrees")

	e.verified()

	stop()
	e.exits(1, []string{"campaign", "load", "rain"}, "was refunded")
	e.env = append(e.env, "HONGBAO_CAMPAIGN_GRACE=0s")
	stop = e.work()
	testkit.Eventually(t, 20*time.Second, func() bool {
		n, err := e.rdb.Exists(t.Context(), e.keys.Keys.Campaign("rain"), e.keys.Keys.Receipts("rain"), e.keys.Keys.Stock("rain")).Result()
		return err == nil && n == 0
	}, "the campaign has left Redis")
	stop()
	require.Equal(t, strings.Replace(receipt, "redis", "ledger", 1), e.ok("receipts", "rain", user(3), "--json"))
	e.exits(0, []string{"receipts", "rain", user(9)}, "0 receipts", "from ledger")
	e.exits(0, []string{"campaign", "close", "rain"}, "was refunded")
	require.Equal(t, first, e.ok("campaign", "refund", "rain", "--amount", amount))
	e.exits(1, []string{"campaign", "load", "rain"}, "was refunded")
	do(t, e.rdb.XTrimMaxLen(t.Context(), e.keys.Keys.Events(), 0))
	e.exits(0, []string{"audit", "--wait", "10s"}, "agrees")
}

// verified reveals the campaign, in which seven packets were granted. It verifies the draw from public data only,
// because `hongbao campaign verify` has no configuration here.
func (e *ending) verified() {
	e.t.Helper()
	revealed := e.ok("campaign", "reveal", "rain")
	require.Equal(e.t, revealed, e.ok("campaign", "reveal", "rain"))
	var d struct {
		Hash string `json:"plan_hash"`
		Seed string `json:"seed"`
	}
	require.NoError(e.t, json.Unmarshal([]byte(revealed), &d))
	file, grants := e.file("rain.json", revealed), e.file("grants.jsonl", e.ok("tail", "--campaign", "rain"))
	public := &cli{t: e.t, path: e.path}
	public.exits(0, []string{"campaign", "verify", file, "--hash", d.Hash, "--grants", grants}, "verifies", "7 grants")
	public.exits(3, []string{"campaign", "verify", file, "--hash", strings.Repeat("0", 64)}, "does not verify")
	forged := e.file("forged.json", strings.Replace(revealed, d.Seed, strings.Repeat("1", 64), 1))
	public.exits(3, []string{"campaign", "verify", forged}, "does not verify")
	public.exits(2, []string{"campaign", "verify", grants}, "not what `hongbao campaign reveal` wrote")
	lines, err := os.ReadFile(grants)
	require.NoError(e.t, err)
	require.Equal(e.t, 7, bytes.Count(lines, []byte("\n")))
	altered := e.file("altered.jsonl", strings.Replace(string(lines), `"amount":`, `"amount":1`, 1))
	public.exits(3, []string{"campaign", "verify", file, "--grants", altered}, "line 1", "planned is")

}

func do(t *testing.T, cmd redis.Cmder) {
	t.Helper()
	require.NoError(t, cmd.Err())
}

// Ten processes refund a campaign at once and are killed at different times, in several rounds (F57, F58). There is
// only one refund.
func TestRefundsAreKilled(t *testing.T) {
	t.Parallel()
	e := newEnding(t)
	for i := range 5 {
		e.exits(0, []string{"grab", "rain", user(i)}, "granted")
	}
	e.ok("campaign", "close", "rain", "--early")
	amount := fmt.Sprint(e.left())
	stop := e.work()
	for round := range 4 {
		var group errgroup.Group
		for i := range 10 {
			cmd := e.command("campaign", "refund", "rain", "--amount", amount, "--wait", "20s")
			require.NoError(t, cmd.Start())
			// Each kill comes between the connection to the servers and the posting of the refund.
			kill := time.AfterFunc(time.Duration(5+10*i+7*round)*time.Millisecond, func() { _ = cmd.Process.Kill() })
			group.Go(func() error {
				defer kill.Stop()
				_ = cmd.Wait() // killed, or done
				return nil
			})
		}
		require.NoError(t, group.Wait())
	}
	var group errgroup.Group
	for range 10 {
		group.Go(func() error {
			cmd := e.command("campaign", "refund", "rain", "--amount", amount, "--wait", "20s")
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("%w: %v", err, cmd.Stderr)
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	stop()
	pool, sponsor, refunds := e.balances()
	require.Equal(t, []int64{0, e.left() - endTotal, 1}, []int64{pool, sponsor, int64(refunds)})
	e.exits(0, []string{"audit", "--wait", "10s"}, "agrees")
}
