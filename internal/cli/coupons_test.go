package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// coupons writes the specification configs/coupons.yaml to a file, with a window that is open now. changes are pairs of
// an old and a new text.
func coupons(t *testing.T, changes ...string) string {
	t.Helper()
	data, err := os.ReadFile("../../configs/coupons.yaml")
	require.NoError(t, err)
	now := time.Now().UTC().Truncate(time.Second)
	text := string(data)
	changes = append(changes, "2027-01-01T00:00:00Z", now.Add(-time.Minute).Format(time.RFC3339), "2027-12-31T23:59:59Z",
		now.Add(time.Hour).Format(time.RFC3339))
	for i := 0; i < len(changes); i += 2 {
		require.Contains(t, text, changes[i])
		text = strings.Replace(text, changes[i], changes[i+1], 1)
	}
	path := filepath.Join(t.TempDir(), "coupons.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// grabJSON makes a grab and returns its answer.
func (d *deployment) grabJSON(args ...string) (a hongbao.Answer) {
	d.t.Helper()
	require.NoError(d.t, json.Unmarshal([]byte(d.ok(append([]string{"grab", "--json"}, args...)...)), &a))
	return a
}

// tailed runs `hongbao tail` and parses its output.
func (d *deployment) tailed(env ...string) (list []deliveries.Tailed) {
	d.t.Helper()
	r := runProgram(d.t, append(d.env[:len(d.env):len(d.env)], env...), "tail")
	require.Zero(d.t, r.code, r.err)
	for lines := bufio.NewScanner(strings.NewReader(r.out)); lines.Scan(); {
		var l deliveries.Tailed
		require.NoError(d.t, json.Unmarshal(lines.Bytes(), &l))
		list = append(list, l)
	}
	return list
}

// A coupon campaign runs from its creation to its archive: codes are drawn, loaded, granted, published and audited. The
// campaign is closed, refunded, revealed and removed from Redis. A replay from the ledger sends the same codes.
func TestCouponsWithCodes(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	path := coupons(t)
	plan := d.ok("campaign", "plan", path)
	require.Contains(t, plan, "campaign spring-coupons (Spring coupons), coupon: 500 packets\n")
	require.Contains(t, plan, "\nlimit: 3 by user, per campaign\nlimit: 2 by user, per day\n")
	require.Contains(t, d.ok("campaign", "create", path), "campaign spring-coupons created and funded")
	require.Contains(t, d.ok("campaign", "create", path), "existed already")
	require.EqualValues(t, 500, d.show("spring-coupons").Ledger.Codes)
	require.Regexp(t, `(?m)^spring-coupons +created +0/500 +- +ends in \S+ +\S`, d.ok("campaign", "list"))
	d.ok("campaign", "load", "spring-coupons")

	code := regexp.MustCompile(`^SPRING-[0-9]{4}-[A-HJKMNP-TV-Z]{4}$`)
	codes := map[string]string{} // by event
	grab := func(user, request string) hongbao.Receipt {
		a := d.grabJSON("spring-coupons", user, "--request-id", request)
		require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
		require.Regexp(t, code, a.Receipts[0].Code)
		require.Zero(t, a.Receipts[0].Amount)
		codes[fmt.Sprintf("%d-%d", a.Receipts[0].Shard, a.Receipts[0].Seq)] = a.Receipts[0].Code
		return a.Receipts[0]
	}
	first, second := grab("u1", "r1"), grab("u1", "r2")
	require.NotEqual(t, first.Code, second.Code)
	require.Equal(t, first, grab("u1", "r1"), "a repeat gets the same code")
	require.Contains(t, d.ok("grab", "spring-coupons", "u1", "--request-id", "r2"), "code "+second.Code)
	a := d.grabJSON("spring-coupons", "u1", "--request-id", "r3")
	require.Equal(t, hongbao.OutcomeLimitReached, a.Outcome)
	require.Equal(t, hongbao.Limit{By: "user", Per: hongbao.PerDay, Max: 2}, a.Limit.Limit)
	grab("u2", "r1")
	held := d.ok("receipts", "spring-coupons", "u1")
	require.Contains(t, held, first.Code)
	require.Contains(t, held, second.Code)

	require.Contains(t, d.ok("why", "spring-coupons", "u2"), "not recorded yet: no worker runs for sink balance")
	worker := d.start("work")
	require.Contains(t, d.ok("audit", "--wait", "30s"), "agrees")
	d.showsCoupons()
	events := d.tailed()
	require.Len(t, events, 3)
	for _, l := range events {
		require.Equal(t, codes[l.Event], l.Code, l.Event)
	}

	d.endCoupons()
	require.Contains(t, d.ok("audit", "--wait", "30s"), "agrees")
	worker.Kill()
	worker = d.start("work") // CAMPAIGN_GRACE is 0: this worker removes the campaign from Redis
	k := d.store.Home("spring-coupons")
	testkit.Eventually(t, 30*time.Second, func() bool {
		return d.rdb.Exists(t.Context(), k.Keys.Campaign("spring-coupons"), k.Keys.Codes("spring-coupons")).Val() == 0
	}, "the campaign left Redis")
	require.True(t, decided[model.AuditReport](t, d.ok("audit", "--seal", "--json", "--wait", "30s")).Campaigns[0].Sealed)
	require.Contains(t, d.ok("audit", "--wait", "30s"), "spring-coupons (sealed)")
	require.NotContains(t, d.ok("audit", "--wait", "30s", "--campaign", "spring-coupons"), "(sealed)",
		"an audit of one sealed campaign reads its grants")
	gone := d.ok("receipts", "spring-coupons", "u1")
	require.Contains(t, gone, "from ledger")
	require.Contains(t, gone, first.Code)
	require.Contains(t, d.ok("audit", "--wait", "30s"), "agrees")
	require.NotContains(t, worker.Err.String(), first.Code, "codes are never logged")
	worker.Kill()

	require.NoError(t, d.rdb.Del(t.Context(), k.Keys.Events()).Err()) // the trimmer does it sooner or later
	other := testkit.Kafka(t).Topic(t, 2,
		map[string]string{"retention.ms": "-1", "unclean.leader.election.enable": "false"})
	d.ok("replay", "copy", "--to", "topic:"+other)
	again := d.tailed("HONGBAO_KAFKA_TOPIC=" + other)
	require.Len(t, again, 3)
	for _, l := range again {
		require.Equal(t, codes[l.Event], l.Code, "from the ledger, %s", l.Event)
	}
}

// showsCoupons checks that the commands for people show coupons, and neither money nor codes.
func (d *deployment) showsCoupons() {
	t := d.t
	for what, text := range map[string]string{"why": d.ok("why", "spring-coupons", "u2"), "user show": d.ok("user", "show", "u2")} {
		require.NotContains(t, text, "paid", "%s: a coupon is no money", what)
		require.NotRegexp(t, `SPRING-\d`, text, "%s has no codes", what)
	}
	require.Regexp(t, `^u2 won coupon \d+ at .*, recorded .*, announced `, d.ok("why", "spring-coupons", "u2"))
	require.Contains(t, d.ok("why", "spring-coupons", "u2"), "The codes are secret: see `hongbao receipts spring-coupons u2`")
	require.Regexp(t, `(?m)^spring-coupons +\d+ +- +0-\d`, d.ok("user", "show", "u2"))
	require.Regexp(t, `(?m)^spring-coupons +\S+ +3/500 +- `, d.ok("campaign", "list"))
}

// endCoupons closes, refunds and reveals the campaign, in which three coupons are granted. Then it verifies the draw.
func (d *deployment) endCoupons() {
	d.t.Helper()
	d.ok("campaign", "close", "spring-coupons", "--early")
	d.set("CAMPAIGN_GRACE", "0s")
	require.Contains(d.t, d.ok("campaign", "refund", "spring-coupons", "--amount", "0", "--wait", "30s"), "497 packets")
	revealed := filepath.Join(d.t.TempDir(), "revealed.json")
	require.NoError(d.t, os.WriteFile(revealed, []byte(d.ok("campaign", "reveal", "spring-coupons")), 0o600))
	grants := filepath.Join(d.t.TempDir(), "grants.jsonl")
	require.NoError(d.t, os.WriteFile(grants, []byte(d.ok("tail")), 0o600))
	verified := d.ok("campaign", "verify", revealed, "--grants", grants)
	require.Contains(d.t, verified, "campaign spring-coupons verifies")
	require.Contains(d.t, verified, "3 grants")
}

// Sink kafka is stopped while a campaign is granted, settled, refunded and removed from Redis. Later, sink kafka reads
// the codes from the ledger.
func TestCouponsPublishedLate(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	d.set("CAMPAIGN_GRACE", "0s")
	d.ok("campaign", "create", coupons(t))
	d.ok("campaign", "load", "spring-coupons")
	codes := map[string]string{}
	for _, user := range []string{"u1", "u2", "u3"} {
		r := d.grabJSON("spring-coupons", user, "--request-id", "r").Receipts[0]
		codes[fmt.Sprintf("%d-%d", r.Shard, r.Seq)] = r.Code
	}
	worker := d.start("work", "--sink", "balance")
	d.ok("campaign", "close", "spring-coupons", "--early")
	d.ok("campaign", "refund", "spring-coupons", "--amount", "0", "--wait", "30s")
	k := d.store.Home("spring-coupons")
	worker.Kill()
	worker = d.start("work", "--sink", "balance") // CAMPAIGN_GRACE is 0: it removes the campaign from Redis
	testkit.Eventually(t, 30*time.Second,
		func() bool { return d.rdb.Exists(t.Context(), k.Keys.Codes("spring-coupons")).Val() == 0 }, "the campaign left Redis")
	worker.Kill()
	require.Empty(t, d.tailed())
	d.start("work", "--sink", "kafka")
	require.Contains(t, d.ok("audit", "--wait", "30s"), "agrees")
	events := d.tailed()
	require.Len(t, events, 3)
	for _, l := range events {
		require.Equal(t, codes[l.Event], l.Code, l.Event)
	}
}

// Codes are imported from a file, and packet k gets the code of line k. A file with mistakes is refused, and so is
// another file after the campaign was created.
func TestCouponsImported(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	path := coupons(t, `pattern: "SPRING-####-????"`, "file: codes.txt", "packets: 500", "packets: 3")
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "codes.txt"), []byte(text), 0o600))
	}
	d.refused(2, []string{"campaign", "create", path}, "code_file_invalid", "codes.txt")
	write("SECRET1\nSECRET1\n")
	for _, command := range []string{"plan", "create"} {
		r := d.refused(2, []string{"campaign", command, path}, "code_count_mismatch", "line 2 repeats line 1")
		require.NotContains(t, r.err, "SECRET")
	}
	d.refused(1, []string{"campaign", "show", "spring-coupons"}, "is not in the ledger")
	write("SECRET1\nSECRET2\nSECRET3\n")
	d.ok("campaign", "create", path)
	d.ok("campaign", "create", path)
	write("SECRET1\nSECRET3\nSECRET2\n")
	r := d.refused(1, []string{"campaign", "create", path}, "other codes than the file's", "nothing was changed")
	require.NotContains(t, r.err, "SECRET")
	d.ok("campaign", "load", "spring-coupons")
	for i := range 3 {
		a := d.grabJSON("spring-coupons", "u"+fmt.Sprint(i), "--request-id", "r")
		require.Equal(t, fmt.Sprint("SECRET", i+1), a.Receipts[0].Code)
	}
	d.start("work")
	require.Contains(t, d.ok("audit", "--wait", "30s"), "agrees")

	// A load restores what Redis has lost from the ledger.
	k := d.store.Home("spring-coupons")
	require.NoError(t, d.rdb.HDel(t.Context(), k.Keys.Codes("spring-coupons"), "2").Err())
	require.Contains(t, d.refused(3, []string{"audit"}, "found differences").out, "code_differs")
	d.ok("campaign", "load", "spring-coupons")
	require.Contains(t, d.ok("audit"), "agrees")
	require.Equal(t, "open", d.show("spring-coupons").Redis.State)
}

// Processes that create and load a campaign are killed many times. In the end every packet has one code, which is the
// same in the ledger and in Redis.
func TestCouponsSurviveKills(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.set("CAMPAIGN_LOAD_CHUNK", "200")
	path := coupons(t, "packets: 500", "packets: 100000", "????", "????????")
	kills := 0
	until := func(done func() bool, command ...string) {
		t.Helper()
		for wait := 5 * time.Millisecond; !done(); wait += wait/4 + 5*time.Millisecond {
			p := d.start(command...)
			select {
			case <-p.Done:
			case <-time.After(100*time.Millisecond + wait):
				kills++
			}
			p.Kill()
		}
	}
	d.refused(1, []string{"campaign", "load", "spring-coupons"}, "is not in the ledger")
	until(func() bool { return d.run("campaign", "show", "spring-coupons").code == 0 }, "campaign", "create", path)
	until(func() bool { return d.show("spring-coupons").Ledger.Codes == 100_000 }, "campaign", "create", path)
	until(func() bool {
		r := d.show("spring-coupons").Redis
		return r != nil && r.State == "open"
	}, "campaign", "load", "spring-coupons")
	require.GreaterOrEqual(t, kills, 3)
	t.Logf("%d kills", kills)
	require.Contains(t, d.ok("audit"), "agrees")
	require.EqualValues(t, 100_000, d.rdb.HLen(t.Context(), d.store.Home("spring-coupons").Keys.Codes("spring-coupons")).Val())
}
