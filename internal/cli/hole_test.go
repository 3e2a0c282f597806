package cli

import (
	"database/sql"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ops/losses"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// withholds withholds n packets of a campaign, as a restore does, and returns their numbers.
func (d *deployment) withholds(id string, n int64) (numbers []string) {
	d.t.Helper()
	ctx, k := d.t.Context(), d.store.Home(id)
	sum := int64(0)
	for _, text := range d.rdb.LRange(ctx, k.Keys.Stock(id), 0, n-1).Val() {
		var number, amount int64
		_, err := fmt.Sscan(text, &number, &amount)
		require.NoError(d.t, err)
		sum += amount
		numbers = append(numbers, fmt.Sprint(number))
		require.NoError(d.t, d.rdb.RPush(ctx, k.Keys.Withheld(id), text).Err())
	}
	require.NoError(d.t, d.rdb.LTrim(ctx, k.Keys.Stock(id), n, -1).Err())
	require.NoError(d.t, d.rdb.HSet(ctx, k.Keys.Campaign(id), "withheld", fmt.Sprintf("%d %d", n, sum)).Err())
	note := fmt.Sprintf(`{"first_seq":1,"last_seq":%d,"silent":true,"withheld":%d}`, n, n)
	fence := `INSERT INTO fence (shard, epoch, floor, token, fenced_at, opened_at, note) VALUES ($1, 1, 0, '', 1, 1, $2)
		ON CONFLICT (shard, epoch) DO UPDATE SET note = excluded.note`
	if strings.Contains(d.dsn, "://") { // PostgreSQL
		d.exec(fence, k.Index(), note)
		return numbers
	}
	db, err := sql.Open("sqlite", d.ledgerFile())
	require.NoError(d.t, err)
	defer db.Close()
	_, err = db.ExecContext(ctx, fence, k.Index(), note)
	require.NoError(d.t, err)
	return numbers
}

// A person lists withheld packets, grants one to the user to whom it was announced, and releases the others. The grant
// is paid and published. The audit agrees after each step, and the journal has the person's name. Packets without a
// decision go back to the sponsor with the refund.
func TestHole(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{})})
	d.campaign("rain", 10, 1000)
	d.campaign("snow", 10, 1000)
	require.Equal(t, "No packet is withheld.\n", d.ok("hole", "list"))
	require.Equal(t, 4, d.crowdOf("rain", 0, 4))
	numbers := d.withholds("rain", 3)
	w := d.start("work")
	d.quiet()
	holes := decided[struct{ Holes []losses.Holes }](t, d.ok("hole", "list", "--json")).Holes
	require.Len(t, holes, 1)
	require.Equal(t, 3, holes[0].Count)
	require.Equal(t, "rain", holes[0].Campaign)
	require.Contains(t, d.ok("hole", "list", "rain"), "all 3")
	require.Contains(t, d.ok("audit"), "Withheld packets without a decision: 3, see `hongbao hole list`.")
	require.Contains(t, d.ok("audit", "--json"), `"withheld":3`)
	require.Contains(t, d.ok("recover"), "withheld packets without a decision: 3, see `hongbao hole list`")

	by := []string{"--by", "ann", "--why", "the log of the app"}
	grant := append([]string{"hole", "grant", "rain", "--packet", numbers[1], "--user", "told", "--request-id", "r-9"}, by...)
	said := d.ok(grant...)
	require.Contains(t, said, "user told has packet "+numbers[1]+" of campaign rain")
	require.Contains(t, d.ok(grant...), "user told has packet "+numbers[1], "a repeat")
	d.refused(1, append([]string{"hole", "grant", "rain", "--packet", numbers[1], "--user", "other"}, by...), "no restore has withheld it")
	d.refused(1, append([]string{"hole", "grant", "rain", "--packet", numbers[0], "--user", "told"}, by...), "has reached the campaign's limit")
	d.refused(1, append([]string{"hole", "grant", "nowhere", "--packet", "1", "--user", "told"}, by...), "is not in Redis")
	d.refused(2, []string{"hole", "grant", "rain", "--packet", numbers[0], "--user", "u"}, "--by and --why")
	d.refused(2, append([]string{"hole", "grant", "rain", "--packet", "0", "--user", "u"}, by...), "--packet 0")
	d.refused(2, append([]string{"hole", "grant", "rain", "--packet", "1", "--user", "a b"}, by...), "--user")
	d.refused(2, append([]string{"hole", "grant", "rain", "--packet", "1", "--user", "u", "--request-id", "-"}, by...), "--request-id")
	d.quiet()
	require.Contains(t, d.ok("receipts", "rain", "told"), "1 receipt")
	d.ok("audit")

	require.Contains(t, d.ok(append([]string{"hole", "release", "rain"}, by...)...), "2 packets were released")
	require.Contains(t, d.ok(append([]string{"hole", "release", "rain"}, by...)...), "0 packets were released", "a repeat")
	d.refused(2, []string{"hole", "release", "rain"}, "--by and --why")
	require.NotContains(t, d.ok("audit"), "Withheld")
	require.NotContains(t, d.ok("recover"), "without a decision", "all are decided")
	require.Equal(t, 5, d.crowdOf("rain", 10, 10), "the packets left in the stock, and the released packets")
	d.quiet()
	d.ok("audit")
	journal := d.ok("journal", "--campaign", "rain")
	require.Contains(t, journal, "grant_withheld")
	require.Contains(t, journal, "release_withheld")

	d.withholds("snow", 4)
	d.ok("campaign", "close", "snow", "--early")
	d.refused(1, append([]string{"hole", "release", "snow"}, by...), "the campaign is closed")
	require.Contains(t, d.ok("campaign", "refund", "snow", "--amount", "1000"), "10.00")
	d.ok("audit")
	w.stop(syscall.SIGTERM)
	require.Equal(t, "No packet is withheld.\n", d.ok("hole", "list"))
}

// A campaign is on two shards. A packet that is withheld on one of them is granted only while users can get no packet
// on the other one, and only by complete receipts of both: a request never gets two packets, and no user exceeds the
// limit.
func TestHoleOverShards(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{}), shards: 2})
	d.campaign("rain", 20, 1000, "sponsor:", "shards: 2\nlimits: [{by: user, per: campaign, max: 2}]\nsponsor:")
	ctx, places := t.Context(), d.store.Places("rain", 2)
	number := d.withholds("rain", 3)[0]
	// The repeat of user walked found the first shard empty.
	storetest.Grab(t, places[1].Shard, "rain", "walked/r-1", "full/r-2", "full/r-3")
	grant := func(user, request string) []string {
		return []string{"hole", "grant", "rain", "--packet", number, "--user", user, "--request-id", request, "--by", "ann",
			"--why", "the log of the app"}
	}
	d.refused(1, grant("walked", "r-1"), "the request id already has another packet")
	d.refused(1, grant("u1", "r-9"), "pause the campaign")
	d.ok("campaign", "pause", "rain", "--by", "ann", "--why", "packets are withheld")
	d.refused(1, grant("walked", "r-1"), "the request id already has another packet")
	d.refused(1, grant("full", "r-9"), "has reached the campaign's limit")
	meta := places[1].Keys.Meta()
	require.NoError(t, d.rdb.HSet(ctx, meta, "frozen", "1").Err())
	d.refused(exitOutage, grant("u1", "r-9"), "nothing was changed", fmt.Sprintf("shard %d", places[1].Index()))
	require.NoError(t, d.rdb.HDel(ctx, meta, "frozen").Err())
	require.Contains(t, d.ok(grant("u1", "r-9")...), "user u1 has packet "+number)
	d.ok("campaign", "resume", "rain", "--by", "ann", "--why", "the packets are granted")
	require.Contains(t, d.ok(grant("u1", "r-9")...), "user u1 has packet "+number, "a repeat, also of an open campaign")
}
