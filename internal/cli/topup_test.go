package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// order returns the arguments of a top-up of campaign rain.
func order(packets, total, expect int64, id string) []string {
	return []string{"campaign", "top-up", "rain", "--packets", fmt.Sprint(packets), "--total", fmt.Sprint(total),
		"--expect", fmt.Sprint(expect), "--id", id, "--by", "ann", "--why", "the crowd is large"}
}

// A campaign is sold out, and the sponsor adds packets, which the crowd then grabs. No user gets more than the limit.
// The campaign is then closed, refunded and revealed. The test runs on one shard and on three.
func TestTopUpOfASoldOutCampaign(t *testing.T) {
	t.Parallel()
	for _, places := range []int{1, 3} {
		t.Run(fmt.Sprint("shards ", places), func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{kafka: true, shards: places, postgres: places > 1})
			var spread []string
			if places > 1 {
				spread = []string{"durability: fast\n", fmt.Sprintf("durability: fast\nshards: %d\n", places)}
			}
			d.campaign("rain", 100, 10_000, spread...)
			w := d.start("work")
			require.Equal(t, 100, d.crowdOf("rain", 0, 150))
			d.quiet()
			first := d.show("rain")
			require.Zero(t, first.Redis.Left)

			r := d.refused(2, order(60, 6_000, 0, "")[:7], "nothing was changed", "--expect 10000")
			require.Contains(t, r.out, "it would get generation 2: packets 101 to 160, 60.00 CNY")
			d.refused(2, order(60, 6_000, 10_000, "more")[:9], "--id, --by and --why")
			d.refused(1, order(60, 6_000, 9_999, "more"), "it is 10000 minor units now, and the order expects 9999")
			require.Equal(t, first, d.show("rain"), "an order with a wrong --expect changes nothing")

			output := d.ok(order(60, 6_000, 10_000, "more")...)
			require.Contains(t, output, "generation 2: packets 101 to 160, 60.00 CNY; it is funded with 160.00 CNY")
			require.Equal(t, output, d.ok(order(60, 6_000, 10_000, "more")...), "the same order again")
			d.refused(1, order(61, 6_000, 10_000, "more"), "belongs to another top-up")
			require.Equal(t, 60, d.crowdOf("rain", 0, 400), "users who have a packet get no new one")
			require.Zero(t, d.crowdOf("rain", 0, 400))
			last, got := d.start(order(40, 400, 16_000, "last")...), 0
			testkit.Eventually(t, 30*time.Second, func() bool {
				got += d.crowdOf("rain", 400, 30)
				return got >= 30
			}, "users who grab during the top-up get packets")
			require.Equal(t, 30, got)
			require.Zero(t, last.wait(30*time.Second).code)
			d.quiet()
			d.agrees(190)
			d.ends(t, 190, output)
			w.stop(syscall.SIGTERM)
		})
	}
}

// ends closes, refunds and reveals campaign rain, and verifies its draws. granted is the number of granted packets.
func (d *deployment) ends(t *testing.T, granted int, output string) {
	t.Helper()
	require.Contains(t, d.ok("campaign", "close", "rain", "--early"), fmt.Sprintf("granted %d packets", granted))
	d.refused(1, order(1, 100, 16_400, "late"), "it is closed")
	s := d.show("rain")
	require.EqualValues(t, 200, s.Ledger.Packets)
	left := int64(s.Redis.LeftAmount)
	d.ok("campaign", "refund", "rain", "--amount", fmt.Sprint(left), "--wait", "30s")
	d.agrees(granted)
	require.EqualValues(t, left, d.show("rain").Ledger.Refunded)

	file := filepath.Join(t.TempDir(), "rain.json")
	text := d.ok("campaign", "reveal", "rain")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	grants := filepath.Join(t.TempDir(), "grants.jsonl")
	require.NoError(t, os.WriteFile(grants, []byte(d.ok("tail", "--campaign", "rain")), 0o600))
	disclosed, err := campaign.ReadDisclosure(strings.NewReader(text))
	require.NoError(t, err)
	hashes := disclosed.Hashes()
	require.Equal(t, []string{s.Hash, s.TopUps[0].Hash, s.TopUps[1].Hash}, hashes)
	canonical := []string{disclosed.Canonical, disclosed.TopUps[0].Canonical, disclosed.TopUps[1].Canonical}
	require.Equal(t, []string{s.Canonical, s.TopUps[0].Canonical, s.TopUps[1].Canonical}, canonical, "shown before the reveal")
	for i, seed := range []string{disclosed.Seed, disclosed.TopUps[0].Seed, disclosed.TopUps[1].Seed} {
		bytes, err := hex.DecodeString(seed)
		require.NoError(t, err)
		sum := sha256.Sum256(fmt.Appendf(nil, "hongbao.%s.v1\n%s\n%s", []string{"commit", "topup", "topup"}[i], canonical[i], bytes))
		require.Equal(t, hashes[i], hex.EncodeToString(sum[:]), "the formulas of docs/campaigns.md and docs/topup.md")
	}
	require.Contains(t, output, hashes[1])
	out := d.ok("campaign", "verify", file, "--hash", hashes[0], "--hash", hashes[2], "--grants", grants)
	require.Contains(t, out, "generation 3 verifies")
	require.Contains(t, out, fmt.Sprintf("%d grants", granted))
	require.NotContains(t, out, "compare the last hash")
	r := d.run("campaign", "verify", file, "--hash", strings.Repeat("0", 64))
	require.Equal(t, exitFound, r.code)
}

// The process of a top-up is killed before it has dealt the packets to Redis. A worker, a load or a close deals them.
func TestTopUpIsFinishedByOthers(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	require.Equal(t, 10, d.crowdOf("rain", 0, 20))
	killed := d.start(order(5, 500, 1_000, "more")...)
	testkit.Eventually(t, 30*time.Second, func() bool { return len(d.topUps()) == 1 }, "it is in the ledger")
	killed.Kill()
	w := d.start("work")
	testkit.Eventually(t, 30*time.Second, func() bool { return !d.topUps()[0].Dealt.IsZero() }, "a worker will deal it")
	require.Equal(t, 5, d.crowdOf("rain", 0, 30))
	d.quiet()
	w.stop(syscall.SIGTERM)

	d.orders("second", 1_500)
	d.agrees(15) // Redis does not have the second top-up yet
	d.ok("campaign", "load", "rain")
	require.Equal(t, 5, d.crowdOf("rain", 0, 40))
	d.orders("third", 2_000)
	require.Contains(t, d.ok("campaign", "close", "rain", "--early"), "left 5 packets, 5.00 CNY")
	w = d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	d.agrees(20)
}

// Redis loses the packets of a top-up, and the ledger counts them as dealt. A load deals them again, and so does a
// close.
func TestTopUpThatRedisLost(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	before := d.deleteFromRedis("rain")
	require.Len(t, before, 3)
	d.ok("campaign", "load", "rain")
	require.Contains(t, d.ok(order(5, 500, 1_000, "second")...), "\ndealt ")
	require.Contains(t, d.ok(order(7, 700, 1_500, "third")...), "\ndealt ")
	d.deleteFromRedis("rain")
	d.ok("campaign", "load", "rain")
	shown := d.show("rain")
	require.EqualValues(t, 22, shown.Redis.Loaded)
	require.EqualValues(t, 2_200, shown.Redis.LeftAmount)

	d.deleteFromRedis("rain")
	for key, was := range before {
		require.NoError(t, d.rdb.Restore(t.Context(), key, 0, was).Err())
	}
	require.EqualValues(t, 10, d.show("rain").Redis.Loaded)
	require.Contains(t, d.ok("campaign", "close", "rain", "--early"), "left 22 packets, 22.00 CNY")
}

// Redis loses a campaign on one of three shards, and a top-up of the campaign is not dealt. The other shards are closed
// without the top-up, and all money goes back to the sponsor.
func TestTopUpOfALostCampaign(t *testing.T) {
	t.Parallel()
	d := setup(t, options{shards: 3})
	d.campaign("rain", 10, 1_000, "durability: fast\n", "durability: fast\nshards: 3\n")
	d.orders("more", 1_000)
	lost := d.store.Places("rain", 3)[1]
	require.NoError(t, d.rdb.HSet(t.Context(), lost.Keys.Campaign("rain"), "state", "frozen").Err())
	act := []string{"campaign", "refund-lost", "rain", "--amount", "1500", "--by", "ann", "--why", "no file is left"}
	d.refused(4, act, "2 intact shards are not closed", "`hongbao campaign close rain --early`")
	for _, o := range [][]string{order(5, 500, 1_000, "more"), order(5, 500, 1_500, "again")} {
		d.refused(1, o, "`hongbao campaign refund-lost rain`")
	}
	d.refused(1, []string{"campaign", "close", "rain", "--early"}, "1 of its 3 shards",
		"`hongbao campaign refund-lost rain`")
	for j, p := range d.show("rain").Redis.Places {
		require.Equal(t, []string{"closed", "frozen", "closed"}[j], p.State)
	}
	d.ok(append(act, "--expect", digestIn(d.run(act[:3]...).out))...)
	require.EqualValues(t, 1_500, d.show("rain").Ledger.Refunded)
	d.ok(act...)
}

// Redis has lost a campaign that is partly paid, so it can't be loaded again. A top-up of it is refused, and an earlier
// top-up does not wait for a load.
func TestTopUpOfAForgottenCampaign(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	require.Equal(t, 4, d.crowdOf("rain", 0, 4))
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	d.orders("more", 1_000)
	d.deleteFromRedis("rain")
	const end = "`hongbao campaign refund-lost rain`"
	d.refused(1, order(5, 500, 1_000, "more"), end)
	d.refused(1, order(5, 500, 1_500, "again"), end)
	require.EqualValues(t, 1_500, d.show("rain").Ledger.Funded)
}

// For Redis the window is over, for the clock of the command it is not. A close without --early is refused, and the
// packets of a later top-up stay in the campaign.
func TestTopUpBesideACloseByAnotherClock(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	key := d.store.Home("rain").Keys.Campaign("rain")
	require.NoError(t, d.rdb.HSet(t.Context(), key, "to", time.Now().UnixMilli()).Err())
	d.refused(1, []string{"campaign", "close", "rain"}, "its window is open until", "--early")
	require.Equal(t, "open", d.show("rain").Redis.State)
	d.ok(order(5, 500, 1_000, "more")...)
	closed := d.ok("campaign", "close", "rain", "--early")
	require.Contains(t, closed, "left 15 packets, 15.00 CNY")
	require.Equal(t, closed, d.ok("campaign", "close", "rain"))
}

// deleteFromRedis deletes the keys of a campaign from its home shard, and returns their values.
func (d *deployment) deleteFromRedis(id string) map[string]string {
	d.t.Helper()
	keys, err := d.rdb.Keys(d.t.Context(), d.store.Home(id).Keys.Campaign(id)+"*").Result()
	require.NoError(d.t, err)
	was := map[string]string{}
	for _, key := range keys {
		was[key], err = d.rdb.Dump(d.t.Context(), key).Result()
		require.NoError(d.t, err)
		require.NoError(d.t, d.rdb.Del(d.t.Context(), key).Err())
	}
	return was
}

// A campaign is topped up before its load. The load deals the added packets, too.
func TestTopUpBeforeTheLoad(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.ok("campaign", "create", spec(t, "rain", 10, 1_000))
	require.Contains(t, d.ok(order(5, 500, 1_000, "none")...), "next: hongbao campaign load rain")
	d.ok("campaign", "load", "rain")
	require.Contains(t, d.ok(order(5, 500, 1_000, "none")...), "\ndealt ")
	r := d.refused(2, order(5, 500, 0, "")[:7], "--expect 1500")
	require.Contains(t, r.out, "it would get generation 3", "without --id the order counts as a new one")
	require.Equal(t, 15, d.crowdOf("rain", 0, 20))
}

func (d *deployment) topUps() []model.TopUp { return d.show("rain").TopUps }

// orders records a top-up of five packets in the ledger without dealing them.
func (d *deployment) orders(id string, expect hongbao.Amount) {
	d.t.Helper()
	cfg, err := configs.Load("", d.env, nil)
	require.NoError(d.t, err)
	require.NoError(d.t, app.With(d.t.Context(), cfg, app.Needs{Redis: true, Ledger: true}, func(a *app.App) error {
		_, err := campaigns.Of(a).OrderTopUp(d.t.Context(), ledger.TopUp{Campaign: "rain", ID: id, Packets: 5, Total: 500,
			Expect: expect, Decision: stream.Decision{By: "ann", Why: "killed behind it"}})
		return err
	}))
}
