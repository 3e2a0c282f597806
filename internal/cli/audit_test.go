package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// exec runs SQL on the ledger as an administrator does by hand.
func (d *deployment) exec(sql string, args ...any) int64 {
	d.t.Helper()
	c, err := pgx.Connect(d.t.Context(), d.dsn)
	require.NoError(d.t, err)
	tag, err := c.Exec(d.t.Context(), sql, args...)
	require.NoError(d.t, err)
	require.NoError(d.t, c.Close(d.t.Context()))
	return tag.RowsAffected()
}

// settled creates a deployment with a campaign, and waits until every sink has the given number of its grants.
func settled(t *testing.T, grants int) *deployment {
	t.Helper()
	d := setup(t, options{postgres: true, kafka: true, shards: 2})
	d.campaign("rain", int64(grants), 1000)
	w := d.start("work")
	require.Equal(t, grants, d.crowdOf("rain", 0, grants))
	w.says(`"working"`)
	d.quiet()
	w.stop(syscall.SIGTERM)
	return d
}

// records returns the records of the topic, read with kafka-go.
func (d *deployment) records() []kafka.Message {
	d.t.Helper()
	var all []kafka.Message
	for partition := range 2 {
		conn, err := kafka.DialLeader(d.t.Context(), "tcp", d.addr, d.topic, partition)
		require.NoError(d.t, err)
		last, err := conn.ReadLastOffset()
		require.NoError(d.t, err)
		require.NoError(d.t, conn.Close())
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{d.addr}, Topic: d.topic, Partition: partition,
			MaxWait: 100 * time.Millisecond})
		for at := int64(0); at < last; {
			m, err := r.ReadMessage(d.t.Context())
			require.NoError(d.t, err)
			at = m.Offset + 1
			if !slices.ContainsFunc(m.Headers, func(h kafka.Header) bool { return string(h.Value) == cloudevent.TypeFence }) {
				all = append(all, m)
			}
		}
		require.NoError(d.t, r.Close())
	}
	return all
}

// write appends messages to a partition of the topic.
func (d *deployment) write(partition int, messages ...kafka.Message) {
	d.t.Helper()
	conn, err := kafka.DialLeader(d.t.Context(), "tcp", d.addr, d.topic, partition)
	require.NoError(d.t, err)
	_, err = conn.WriteMessages(messages...)
	require.NoError(d.t, err)
	require.NoError(d.t, conn.Close())
}

func TestAuditAgreesAndDiffers(t *testing.T) {
	t.Parallel()
	d := settled(t, 20)
	r := d.agrees(20)
	require.True(t, r.Quiet)
	require.Len(t, r.Campaigns, 1)
	require.Len(t, r.Shards, 2)
	require.Empty(t, r.Found)
	require.EqualValues(t, 1000, r.Total.Funded)
	require.Contains(t, d.ok("audit"), "agrees")
	require.Contains(t, d.ok("audit", "--campaign", "rain"), "agrees")
	require.EqualValues(t, 1, d.exec("DELETE FROM grants WHERE campaign = 'rain' AND packet = 7"))
	lost := d.audit(3)
	require.EqualValues(t, 1, lost.Found[audit.Lost], "%v", lost.Found)
	require.Positive(t, lost.Found[audit.LedgerUnbalanced], "%v", lost.Found)
	last := lost.Differences[len(lost.Differences)-1]
	require.Equal(t, audit.Lost, last.Kind)
	require.EqualValues(t, 7, last.Packet)
	text := d.refused(3, []string{"audit"}, "the audit found differences")
	require.Contains(t, text.out, "lost")
	require.Contains(t, text.out, "packet 7")
	require.NotContains(t, text.out, "hongbao replay", "a replay would credit the user again")
}

// `hongbao audit last` prints the result of the last audit of all campaigns, on the stores and with --server. Its JSON is
// the answer of the API.
func TestLastAudit(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	at, base, key := d.server("viewer")
	v := &visitor{t, base, key}
	for _, args := range [][]string{{"audit", "last"}, {"audit", "last", "--json"}} {
		r := at.requireSame(d, args...)
		require.Equal(t, exitFailed, r.code, r.err)
		require.Empty(t, r.out)
		require.Contains(t, r.err, "there has been no audit of all campaigns yet: run `hongbao audit`, or press Audit now in the console")
		require.Contains(t, d.run(args...).err, "there has been no audit of all campaigns yet: run `hongbao audit`, or press Audit now in the console")
	}
	d.campaign("rain", 10, 1000)
	same := func(code int, report *model.AuditReport, differences int64) {
		t.Helper()
		r := at.requireSame(d, "audit", "last")
		require.Equal(t, code, r.code, r.err)
		require.Equal(t, fmt.Sprintf("Redis, ledger and topic: %s. Last audit: %s, differences: %d.\n", report.Verdict,
			report.Started.UTC().Format(time.RFC3339), differences), r.out)
		r = at.requireSame(d, "audit", "last", "--json")
		require.Equal(t, code, r.code, r.err)
		status, text := v.ask(http.MethodGet, "/v1/audit")
		require.Equal(t, http.StatusOK, status)
		require.JSONEq(t, text, r.out)
	}
	agreed := d.audit(0)
	same(0, &agreed, 0)
	require.NoError(t, d.rdb.RPop(t.Context(), d.store.Home("rain").Keys.Stock("rain")).Err())
	d.refused(exitFound, []string{"audit", "--campaign", "rain"})
	same(0, &agreed, 0) // an audit of some campaigns stores no verdict
	differed := d.audit(exitFound)
	found := int64(0)
	for _, n := range differed.Found {
		found += n
	}
	same(exitFound, &differed, found)
	require.Contains(t, at.run("audit", "last").err, "the last audit found differences: run `hongbao audit`, or press Audit now in the console, to see them")
}

// ofRun matches the time and the duration of an audit.
var ofRun = regexp.MustCompile(`Audit of .* s\.|"(started|seconds)":[^,]*,`)

// `hongbao audit` prints the same report on the stores and with --server, with the same exit codes. A treasurer's key
// seals. A viewer may not audit.
func TestAuditAtAServer(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	d.campaign("rain", 10, 1000)
	d.ok("grab", "rain", "u1")
	at, base, _ := d.server("treasurer")
	same := func(code int, args ...string) string {
		t.Helper()
		local, remote := d.run(args...), at.run(args...)
		require.Equal(t, []int{code, code}, []int{local.code, remote.code}, "%v: %s%s", args, local.err, remote.err)
		require.Equal(t, ofRun.ReplaceAllString(local.out, ""), ofRun.ReplaceAllString(remote.out, ""), args)
		require.Equal(t, local.err, remote.err)
		return remote.out
	}
	for _, args := range [][]string{{}, {"--json"}, {"--campaign", "rain", "--full"}} {
		same(exitFound, append([]string{"audit"}, args...)...) // a grant waits, and no worker runs
	}
	d.sealed("snow", 3)
	for _, sql := range []string{"DELETE FROM topic_base", "DELETE FROM seal", "UPDATE account SET base = 0"} {
		d.exec(sql)
	}
	require.NotContains(t, same(0, "audit", "--wait", "30s"), "(sealed)")
	r := at.run("audit", "--seal", "--json")
	require.Zero(t, r.code, r.err)
	require.True(t, decided[model.AuditReport](t, r.out).Campaigns[1].Sealed)
	require.Contains(t, same(0, "audit"), "snow (sealed)")
	require.NoError(t, d.rdb.RPop(t.Context(), d.store.Home("rain").Keys.Stock("rain")).Err())
	require.Contains(t, same(exitFound, "audit"), "packet_missing: 1.")
	for role, flags := range map[string][]string{"viewer": nil, "operator": {"--seal"}} {
		r := runProgram(t, []string{"HONGBAO_SERVER=" + base, "HONGBAO_KEY_FILE=" + keyFile(t, d.key(role), 0o600)},
			append([]string{"audit"}, flags...)...)
		require.Equal(t, exitFailed, r.code, r.err)
		require.Contains(t, r.err, "forbidden")
	}
}

// An administrator has deleted the row of a grant from the ledger. A replay to the ledger would credit the user again,
// so it is refused. A dry run and a replay to Kafka move no money, so they are allowed.
func TestReplayOfALedgerWrittenByHand(t *testing.T) {
	t.Parallel()
	d := settled(t, 20)
	require.EqualValues(t, 1, d.exec("DELETE FROM grants WHERE campaign = 'rain' AND packet = 7"))
	for _, args := range [][]string{{"repair"}, {"repair-rain", "--campaign", "rain"}} {
		d.refused(1, append([]string{"replay", "--to", "balance"}, args...), "the ledger does not agree with itself",
			"campaign rain: ", "hongbao audit")
	}
	require.Contains(t, d.ok("replay", "look", "--to", "balance", "--dry-run"), "would deliver")
	d.ok("replay", "announce", "--to", "kafka")
	require.EqualValues(t, 1, d.exec("SELECT 1 FROM account WHERE kind = 'user' HAVING SUM(balance) = 1000"),
		"the balances of users are unchanged")
}

// The ledger of `hongbao balance` has other credits besides the grants. The audit reports a balance that differs from
// the sum of its credits.
func TestAuditNamesABalanceThatIsNotItsCredits(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	addr := testkit.FreeAddr(t)
	startBalance(t, addr, d.dsn, d.env...)
	status, answer := call(t, "POST", "http://"+addr+"/v1/credits", `{"reference":"r1","account":"u1","currency":"CNY","amount":7}`)
	require.Equal(t, 201, status, "%v", answer)
	require.Contains(t, d.ok("audit"), "agrees")
	require.EqualValues(t, 1, d.exec("UPDATE credit_account SET balance = balance + 1 WHERE id = 'u1'"))
	text := d.refused(3, []string{"audit"}, "the audit found differences")
	require.Contains(t, text.out, "ledger_unbalanced")
	require.Contains(t, text.out, "account u1, CNY: sum of the credits = balance: want 7, got 8")
}

// The audit reports a copy of a grant in the topic as a duplicate. It only counts a record that is not a grant (B45).
func TestAuditNamesACopyInTheTopic(t *testing.T) {
	t.Parallel()
	d := settled(t, 10)
	all := d.records()
	require.Len(t, all, 10)
	m := all[3]
	d.write(m.Partition, kafka.Message{Value: []byte("foreign")})
	require.Empty(t, d.audit(0).Found, "a foreign record is not a difference")
	d.write(m.Partition, kafka.Message{Key: m.Key, Value: m.Value, Headers: m.Headers, Time: time.Now()})
	r := d.audit(3)
	require.Equal(t, map[model.DifferenceKind]int64{audit.DuplicateInTopic: 1}, r.Found)
	require.EqualValues(t, 1, r.Total.Duplicates)
	require.EqualValues(t, 1, r.Total.Foreign)
	var body struct {
		Packet int64 `json:"packet"`
	}
	require.NoError(t, json.Unmarshal(m.Value, &body))
	require.Equal(t, body.Packet, r.Differences[0].Packet)
	broken := append([]kafka.Header(nil), m.Headers...)
	d.write(m.Partition, kafka.Message{Key: m.Key, Value: m.Value[:5], Headers: broken, Time: time.Now()})
	require.EqualValues(t, 1, d.audit(3).Found[audit.MalformedRecord])
}

// parse reads the output of `hongbao tail`, and fails if an event occurs twice.
func parse(t *testing.T, out string) map[string]deliveries.Tailed {
	t.Helper()
	all := map[string]deliveries.Tailed{}
	for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); {
		var l deliveries.Tailed
		require.NoError(t, json.Unmarshal(s.Bytes(), &l), s.Text())
		require.NotContains(t, all, l.Event)
		all[l.Event] = l
	}
	return all
}

// A mistyped id is no lost campaign: the audit says that there is no such campaign, and compares nothing.
func TestAuditOfNoCampaign(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.ok("campaign", "create", spec(t, "rain", 10, 1000))
	require.Contains(t, d.ok("audit", "--campaign", "rain"), "agrees", "it is not loaded yet")
	for _, command := range [][]string{{"audit", "--campaign", "rain,rian"}, {"campaign", "show", "rian"}, {"why", "rian", "u1"},
		{"receipts", "rian", "u1"}} {
		require.Empty(t, d.refused(1, command, `campaign "rian": the campaign is not in the ledger; did you mean rain?`).out)
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true, shards: 2})
	require.Empty(t, d.ok("tail"))
	follow := d.start("tail", "--follow")
	d.campaign("rain", 30, 3000)
	d.campaign("drizzle", 20, 2000)
	w := d.start("work")
	require.Equal(t, 30, d.crowdOf("rain", 0, 30))
	require.Equal(t, 20, d.crowdOf("drizzle", 0, 20))
	w.says(`"working"`)
	d.quiet()
	all := parse(t, d.ok("tail"))
	require.Len(t, all, 50)
	sum, users := int64(0), map[string]bool{}
	for _, l := range all {
		sum += int64(l.Amount)
		users[l.Campaign+" "+l.User] = true
		require.WithinDuration(t, time.Now(), l.Time, time.Minute)
		require.Positive(t, l.Packet)
		require.Equal(t, "CNY", l.Currency)
	}
	require.EqualValues(t, 5000, sum)
	require.Len(t, users, 50)
	require.Len(t, parse(t, d.ok("tail", "--campaign", "rain")), 30)
	require.Len(t, parse(t, d.ok("tail", "--campaign", "rain,drizzle")), 50)
	for _, args := range [][]string{{}, {"-n", "3"}} {
		r := d.run(append([]string{"tail", "--campaign", "rian"}, args...)...)
		require.Zero(t, r.code)
		require.Empty(t, r.out)
		require.Contains(t, r.err, "hongbao tail: there is no grant of campaign rian here; did you mean rain? (`hongbao campaign list` shows the campaigns)\n", r.err)
	}
	require.NotContains(t, d.run("tail", "--campaign", "rian", "-n", "0").err, "rian", "nothing was read")

	testkit.Eventually(t, 20*time.Second, func() bool { return strings.Count(follow.Out.String(), "\n") >= 50 },
		"follow prints what comes")
	d.campaign("late", 10, 100)
	require.Equal(t, 10, d.crowdOf("late", 0, 10))
	testkit.Eventually(t, 20*time.Second, func() bool { return strings.Count(follow.Out.String(), "\n") >= 60 },
		"follow continues")
	w.stop(syscall.SIGTERM)
	follow.Signal(syscall.SIGINT)
	r := follow.wait(20 * time.Second)
	require.Zero(t, r.code, r.err)
	followed := parse(t, r.out)
	require.Len(t, followed, 60)
	for event, l := range all {
		require.Equal(t, l, followed[event])
	}
	require.NotContains(t, r.err, `"error"`, fmt.Sprint("no error is logged: ", r.err))
}

// `hongbao tail` continues to follow the topic after a restart of the broker.
func TestTailFollowsOverARestartOfTheBroker(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	broker := testkit.NewKafka(t, testkit.KafkaOptions{})
	d := setup(t, options{kafka: true, broker: broker})
	d.campaign("rain", 40, 4000)
	w := d.start("work")
	follow := d.start("tail", "--follow")
	w.says(`"working"`)
	require.Equal(t, 20, d.crowdOf("rain", 0, 20))
	testkit.Eventually(t, 20*time.Second, func() bool { return strings.Count(follow.Out.String(), "\n") >= 20 },
		"follow prints what comes")
	require.NoError(t, broker.Kill())
	require.Equal(t, 20, d.crowdOf("rain", 20, 20))
	w.says("sink is down")
	testkit.Eventually(t, 40*time.Second, func() bool { return strings.Contains(follow.Err.String(), "the topic can't be read: ") },
		"follow says that it waits")
	require.NoError(t, broker.Restart())
	testkit.Eventually(t, 40*time.Second, func() bool { return strings.Count(follow.Out.String(), "\n") >= 40 },
		"follow continues")
	require.Regexp(t, `(?m)^hongbao tail: the topic can't be read: .*; tail waits and continues by itself\n`+
		`hongbao tail: the topic can be read again\n$`, follow.Err.String())
	follow.Signal(syscall.SIGTERM)
	r := follow.wait(20 * time.Second)
	require.Zero(t, r.code, r.err)
	require.Len(t, parse(t, r.out), 40)
}
