package cli

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

var hashLine = regexp.MustCompile(`plan hash ([0-9a-f]{64}) `)

func planHash(t *testing.T, out string) string {
	t.Helper()
	m := hashLine.FindStringSubmatch(out)
	require.Len(t, m, 2, out)
	return m[1]
}

// Creating a campaign twice from the same specification changes nothing. Another specification with the same id is a
// conflict (B18, B19).
func TestCreateTwice(t *testing.T) {
	t.Parallel()
	for _, postgres := range []bool{false, true} {
		t.Run(fmt.Sprint("postgres ", postgres), func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{postgres: postgres})
			path := spec(t, "rain", 10, 1000)
			first := d.ok("campaign", "create", path)
			require.Contains(t, first, "campaign rain created and funded\n")
			second := d.ok("campaign", "create", path)
			require.Contains(t, second, "campaign rain existed already\n")
			require.Equal(t, planHash(t, first), planHash(t, second))
			before := d.show("rain")
			d.refused(1, []string{"campaign", "create", spec(t, "rain", 10, 1001)}, "another specification",
				"nothing was changed", "use another id")
			require.Equal(t, before, d.show("rain"))
			require.EqualValues(t, 1000, before.Ledger.Funded)
			require.Regexp(t, `(?m)^rain +created +0/10 +0.00 CNY +ends in \S+ +Spring rain$`, d.ok("campaign", "list"))
			require.JSONEq(t, d.ok("campaign", "list", "--json"), d.ok("campaign", "list", "--status", "open,created", "--json"))
			require.NotContains(t, d.ok("campaign", "list", "--status", "open"), "rain")
			require.JSONEq(t, `{"campaigns":[]}`, d.ok("campaign", "list", "--status", "open", "--json"))
			d.refused(2, []string{"campaign", "list", "--status", "raining"}, `--status "raining": want created, loading, not_started, open`)
		})
	}
}

// A load prints what it loaded, and draws no progress bar without a terminal. `show` has snake_case keys, like every
// other printed JSON.
func TestLoadAndShowAreReadable(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.ok("campaign", "create", spec(t, "rain", 10, 1000))
	for _, how := range []string{"loaded", "was loaded already"} {
		r := d.run("campaign", "load", "rain")
		require.Zero(t, r.code, r.err)
		require.Regexp(t, `^campaign rain `+how+`: 10 packets, grabs from \S+\+08:00 to \S+\+08:00 \(Asia/Shanghai\)\n$`, r.out)
		require.Empty(t, r.err)
	}
	var shows struct {
		Redis map[string]any `json:"redis"`
	}
	require.NoError(t, json.Unmarshal([]byte(d.ok("campaign", "show", "rain", "--json")), &shows))
	require.Equal(t, []string{"granted", "granted_amount", "left", "left_amount", "loaded", "packets", "plan_hash",
		"shard", "sinks", "state"},
		slices.Sorted(maps.Keys(shows.Redis)))
}

// Redis has lost a campaign of which packets were paid. Loading the campaign again is refused: Redis would grant the
// paid packets to other users, and nobody would pay those users.
func TestLostCampaignIsNotLoadedAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{})})
	d.campaign("rain", 10, 1000)
	require.Contains(t, d.ok("grab", "rain", "u"), "granted\n")
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	k := d.store.Home("rain")
	require.NoError(t, d.rdb.Del(t.Context(), k.Keys.Campaign("rain"), k.Keys.Stock("rain"), k.Keys.LoadedTotals("rain", 1), k.Keys.Receipts("rain")).Err())
	d.refused(1, []string{"campaign", "load", "rain"}, "has paid 1 of its packets", "nothing was loaded",
		"append-only file")
	require.Nil(t, d.show("rain").Redis)
	require.Equal(t, "unknown_campaign\n", d.refused(2, []string{"grab", "rain", "v"}, "`hongbao campaign list`").out)
}

// If several processes create the same campaign at once, only one seed is drawn.
func TestCreateAtOnceDrawsOneSeed(t *testing.T) {
	t.Parallel()
	for _, postgres := range []bool{false, true} {
		t.Run(fmt.Sprint("postgres ", postgres), func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{postgres: postgres})
			path := spec(t, "rain", 10, 1000)
			var all []*program
			for range 6 {
				all = append(all, d.start("campaign", "create", path))
			}
			created, hashes := 0, map[string]bool{}
			for _, p := range all {
				r := p.wait(time.Minute)
				require.Zero(t, r.code, r.err)
				created += strings.Count(r.out, "created and funded")
				hashes[planHash(t, r.out)] = true
			}
			require.Equal(t, 1, created)
			require.Len(t, hashes, 1)
		})
	}
}

// A load is killed many times. The last load completes it: the stock has every packet once, and the campaign opens.
func TestLoadSurvivesKills(t *testing.T) {
	t.Parallel()
	const packets, total = 1_000_000, 50_000_000
	d := setup(t, options{})
	d.set("CAMPAIGN_LOAD_CHUNK", "500")
	d.ok("campaign", "create", spec(t, "rain", packets, total))
	k := d.store.Home("rain")
	loaded := func() int64 {
		n, err := d.rdb.LLen(t.Context(), k.Keys.Stock("rain")).Result()
		require.NoError(t, err)
		return n
	}
	kills := 0
	for kills < 12 {
		from := loaded()
		p := d.start("campaign", "load", "rain")
		testkit.Eventually(t, 30*time.Second, func() bool { return loaded() > from+40_000 }, "the load has begun")
		p.Kill()
		if loaded() < packets {
			kills++
			require.Contains(t, d.ok("grab", "rain", "early"),
				"not_started\nits window has begun, but it is still being loaded\n")
		} else {
			break
		}
	}
	require.GreaterOrEqual(t, kills, 4, "the number of loads that were killed before they ended")
	d.ok("campaign", "load", "rain")
	d.checkStock("rain", packets, total)
	require.Equal(t, store.StateOpen, d.show("rain").Redis.State)
	require.Contains(t, d.ok("grab", "rain", "u"), "granted\n")

	before := d.content()
	d.ok("campaign", "load", "rain")
	require.Equal(t, before, d.content(), "a load of an open campaign changes nothing")
}

// checkStock checks that the stock has each packet once, and that the amounts add up to the total.
func (d *deployment) checkStock(id string, packets int64, total int64) {
	d.t.Helper()
	list, err := d.rdb.LRange(d.t.Context(), d.store.Home(id).Keys.Stock(id), 0, -1).Result()
	require.NoError(d.t, err)
	require.Len(d.t, list, int(packets))
	seen, sum := make([]bool, packets+1), int64(0)
	for _, item := range list {
		number, amount, ok := strings.Cut(item, " ")
		n, err1 := strconv.ParseInt(number, 10, 64)
		a, err2 := strconv.ParseInt(amount, 10, 64)
		if !ok || err1 != nil || err2 != nil || n < 1 || n > packets || seen[n] {
			d.t.Fatalf("stock has %q, which is malformed or a duplicate", item)
		}
		seen[n] = true
		sum += a
	}
	require.Equal(d.t, total, sum)
}

// Half of a campaign's packets are granted. Several processes that load it again at once change nothing.
func TestLoadOfAHalfGrantedCampaignChangesNothing(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.ok("campaign", "create", spec(t, "rain", 6, 600))
	loads := func() {
		var all []*program
		for range 3 {
			all = append(all, d.start("campaign", "load", "rain"))
		}
		for _, p := range all {
			r := p.wait(time.Minute)
			require.Zero(t, r.code, r.err)
		}
	}
	loads()
	d.checkStock("rain", 6, 600)
	for i := range 3 {
		require.Contains(t, d.ok("grab", "rain", fmt.Sprint("u", i)), "granted\n")
	}
	before := d.content()
	loads()
	require.Equal(t, before, d.content())
	d.ok("campaign", "pause", "rain", "--by", "ann", "--why", "test")
	loads()
	require.Equal(t, store.StatePaused, d.show("rain").Redis.State, "a load does not resume a paused campaign")
	s := d.show("rain")
	require.EqualValues(t, 3, s.Redis.Granted)
	require.EqualValues(t, 3, s.Redis.Left)
}

// A campaign that was never loaded can be cancelled, once. A campaign whose load has begun can't be cancelled, even if
// the ledger was restored from a backup and lacks the record of the load.
func TestCancelCampaign(t *testing.T) {
	t.Parallel()
	for _, postgres := range []bool{false, true} {
		t.Run(fmt.Sprint("postgres ", postgres), func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{postgres: postgres})
			d.ok("campaign", "create", spec(t, "mistake", 10, 1000))
			d.refused(1, []string{"campaign", "close", "mistake", "--early"}, "hongbao campaign cancel mistake")
			first := d.ok("campaign", "cancel", "mistake")
			require.Contains(t, first, "campaign mistake was refunded")
			require.Contains(t, first, "10 packets, 10.00 CNY, to sponsor")
			require.Equal(t, first, d.ok("campaign", "cancel", "mistake"))
			require.Regexp(t, `(?m)^mistake +refunded +0/10 +0.00 CNY +`, d.ok("campaign", "list"))
			d.refused(1, []string{"campaign", "load", "mistake"}, "refunded or cancelled", "another id")
			d.refused(1, []string{"campaign", "cancel", "nothing"}, "nothing")

			d.campaign("rain", 10, 1000)
			for range 2 {
				d.refused(1, []string{"campaign", "cancel", "rain"}, "loading has begun", "hongbao campaign close rain --early")
			}
			require.Contains(t, d.ok("grab", "rain", "u"), "granted\n")
			if !postgres {
				db, err := sql.Open("sqlite", d.ledgerFile())
				require.NoError(t, err)
				_, err = db.ExecContext(t.Context(), `UPDATE campaign SET loading_at = 0`)
				require.NoError(t, errors.Join(err, db.Close()))
				d.refused(1, []string{"campaign", "cancel", "rain"}, "loading has begun")
			}
			w := d.start("work")
			d.quiet()
			w.stop(syscall.SIGTERM)
			require.Contains(t, d.ok("audit"), "Redis, ledger and topic: agrees.")
			require.Contains(t, d.ok("journal"), "cancel_campaign")
			d.ok("campaign", "reveal", "mistake")
		})
	}
}

// answer is the JSON of `hongbao grab --json`.
func (d *deployment) answer(args ...string) hongbao.Answer {
	d.t.Helper()
	var a hongbao.Answer
	require.NoError(d.t, json.Unmarshal([]byte(d.ok(append([]string{"grab", "--json"}, args...)...)), &a))
	return a
}

// The JSON answers of grabs and receipts have the documented keys, in snake_case.
func TestGrabJSONKeys(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("keys", 2, 100, "sponsor:", "limits: [{by: device, per: day, max: 1}]\nsponsor:")
	grab := []string{"grab", "--json", "keys", "--fact", "device=d1"}
	const receipt = `{"packet":\d+,"amount":\d+,"shard":\d+,"seq":1,"time":"[^"]+","request_id":"r1"}`
	require.Regexp(t, `^{"outcome":"granted","receipts":\[`+receipt+`\],"time":"[^"]+","currency":"CNY","request_id":"r1"}\n$`, d.ok(append(grab, "u1", "--request-id", "r1")...))
	require.Regexp(t, `^{"outcome":"limit_reached","limit":{"limit":{"by":"device","per":"day","max":1},"resets":"[^"]+"},"time":"[^"]+","request_id":"r2"}\n$`,
		d.ok(append(grab, "u2", "--request-id", "r2")...))
	var receipts struct{ Receipts []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(d.ok("receipts", "keys", "u1", "--json")), &receipts))
	require.Len(t, receipts.Receipts, 1)
	require.ElementsMatch(t, []string{"packet", "amount", "shard", "seq", "time", "request_id"},
		slices.Collect(maps.Keys(receipts.Receipts[0])))
}

// Every outcome of a grab, also a refusal, ends with exit code 0.
func TestGrabOutcomes(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 2, 100)
	first := d.answer("rain", "u1", "--request-id", "r1")
	require.Equal(t, hongbao.OutcomeGranted, first.Outcome)
	require.Len(t, first.Receipts, 1)
	same := d.answer("rain", "u1", "--request-id", "r1")
	require.Equal(t, hongbao.OutcomeGranted, same.Outcome, "B25: the same request id, the same answer")
	require.Equal(t, first.Receipts, same.Receipts)
	again := d.answer("rain", "u1", "--request-id", "r2")
	require.Equal(t, hongbao.OutcomeAlreadyGranted, again.Outcome, "B24")
	require.Equal(t, first.Receipts, again.Receipts)
	require.Contains(t, d.ok("grab", "rain", "u2"), "granted\npacket ")
	require.Equal(t, "sold_out\n", d.ok("grab", "rain", "u3"), "B26")
	require.Equal(t, "unknown_campaign\n", d.refused(2, []string{"grab", "drizzle", "u3"}, "check the id").out)

	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	d.campaign("later", 2, 100, "from: 20", "from: "+later+", to: "+time.Now().Add(2*time.Hour).UTC().Format(time.RFC3339)+
		"} #")
	require.Equal(t, "not_started\nit starts at "+later+"\n", d.ok("grab", "later", "u1"), "B22")
	soon := time.Now().Add(10 * time.Second).UTC().Format(time.RFC3339)
	d.campaign("short", 2, 100, "to: 20", "to: "+soon+"} #")
	users := 0
	testkit.Eventually(t, time.Minute, func() bool {
		users++ // a new user each time: a winner would get the old receipt
		return d.answer("short", fmt.Sprint("late", users)).Outcome == hongbao.OutcomeEnded
	}, "B23: it ends")

	d.campaign("limits", 10, 1000, "sponsor:",
		"limits: [{by: user, per: campaign, max: 2}, {by: device, per: day, max: 1}]\nsponsor:")
	d.refused(1, []string{"grab", "limits", "u1", "--fact", "device=d1"}, "request id")
	require.Equal(t, hongbao.OutcomeGranted, d.answer("limits", "u1", "--request-id", "a", "--fact", "device=d1").Outcome)
	limited := d.answer("limits", "u1", "--request-id", "b", "--fact", "device=d1")
	require.Equal(t, hongbao.OutcomeLimitReached, limited.Outcome)
	require.NotNil(t, limited.Limit)
	require.Equal(t, hongbao.Limit{By: "device", Per: hongbao.PerDay, Max: 1}, limited.Limit.Limit)
	require.True(t, limited.Limit.Resets.After(time.Now()))
	require.Regexp(t, `^limit_reached\nlimit of 1 by device per day; it resets at \S+\n$`,
		d.ok("grab", "limits", "u1", "--request-id", "b", "--fact", "device=d1"))
	require.Equal(t, hongbao.OutcomeGranted, d.answer("limits", "u1", "--request-id", "c", "--fact", "device=d2").Outcome)
	full := d.answer("limits", "u1", "--request-id", "d", "--fact", "device=d3")
	require.Equal(t, hongbao.OutcomeLimitReached, full.Outcome)
	require.Equal(t, hongbao.ByUser, full.Limit.Limit.By)
	d.refused(1, []string{"grab", "limits", "u5", "--request-id", "e"}, "device")
}

// A grab that is still undecided prints how to retry it, and does not end with the exit code of a failure.
func TestUndecidedGrabSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 100)
	d.set("PRODUCER_MAX_BACKLOG", "1", "PRODUCER_UNDECIDED_TIMEOUT", "0s")
	require.Contains(t, d.ok("grab", "rain", "u1"), "granted\n")
	require.Equal(t, "busy\n", d.refused(4, []string{"grab", "rain", "u2", "--request-id", "r2"},
		"nothing is decided yet; grab again with --request-id r2\n").out)
	require.Regexp(t, `busy: nothing is decided yet; grab again with --request-id \S+\n$`, d.refused(4, []string{"grab", "rain", "u2"}).err)
}

// Redis has lost a campaign of which packets were granted. Loading the campaign again is refused.
func TestLoadRefusesWhatWasGranted(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.ok("campaign", "create", spec(t, "rain", 10, 1000))
	d.ok("campaign", "load", "rain")
	w := d.start("work")
	require.Contains(t, d.ok("grab", "rain", "u1"), "granted\n")
	testkit.Eventually(t, 20*time.Second, func() bool { return d.show("rain").Ledger.Granted > 0 }, "it is settled")
	w.stop(syscall.SIGTERM)
	k := d.store.Home("rain")
	require.NoError(t, d.rdb.Del(t.Context(), k.Keys.Campaign("rain"), k.Keys.Stock("rain"), k.Keys.LoadedTotals("rain", 1), k.Keys.Receipts("rain")).Err())
	before := d.content()
	d.refused(1, []string{"campaign", "load", "rain"}, "the ledger has paid 1 of its packets")
	require.Equal(t, before, d.content())
}

// With --open-for a file needs no window. A repeat keeps the first window, and says so; it ends as if nothing was wrong.
func TestOpenFor(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	path := spec(t, "rain", 10, 1000)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text = regexp.MustCompile(`(?m)^window: .*\n`).ReplaceAll(text, nil)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	d.refused(2, []string{"campaign", "create", path}, "window.from: required")
	require.Contains(t, d.ok("campaign", "plan", path, "--open-for", "10m"), "\nlimit: 1 by user, per campaign\n", "the default")
	first := d.ok("campaign", "create", path, "--open-for", "10m")
	window := d.show("rain").Spec
	require.Equal(t, 10*time.Minute, window.To.Sub(window.From))
	require.WithinDuration(t, time.Now(), window.From, time.Minute)
	testkit.Eventually(t, 5*time.Second, func() bool { return time.Since(window.From) > 2*time.Second }, "the next window differs")
	again := d.ok("campaign", "create", path, "--open-for", "10m")
	require.Contains(t, again, "campaign rain existed already\nits window stays: ")
	require.Equal(t, planHash(t, first), planHash(t, again))
	require.Equal(t, window, d.show("rain").Spec)
	require.NoError(t, os.WriteFile(path, append(text, "shards: 1\nlimits: [{by: user, per: campaign, max: 2}]\n"...), 0o600))
	d.refused(1, []string{"campaign", "create", path, "--open-for", "10m"}, "another specification", "nothing was changed")
}

// The window is printed in the campaign's time zone, whose name stands behind it.
func TestPlanIsInItsTimeZone(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	require.Regexp(t, `open from \S+\+08:00 to \S+\+08:00 \(Asia/Shanghai\)`, d.ok("campaign", "plan", spec(t, "rain", 10, 1000)))
}
