package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// decided decodes what a command printed as JSON.
func decided[T any](t *testing.T, out string) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal([]byte(out), &v), out)
	return v
}

func (d *deployment) auditNow() model.AuditReport {
	d.t.Helper()
	return decided[model.AuditReport](d.t, d.run("audit", "--json").out)
}

// buried turns every grant in the stream of shard 0 into a dead letter of a sink.
func (d *deployment) buried(sink string) {
	d.t.Helper()
	k, ctx := d.store.Shard(0), d.t.Context()
	_, err := k.Group(sink).Create(ctx)
	require.NoError(d.t, err)
	_, err = k.Group(sink).ReadNew(ctx, "digger", 1000, 0)
	require.NoError(d.t, err)
	entries, err := k.Entries(ctx, "-", "+")
	require.NoError(d.t, err)
	for _, e := range entries {
		for i := range e.Grants {
			written, err := k.DeadLetter(ctx, store.Letter{
				Group: sink, Consumer: "digger", EntryID: e.ID, Grant: &e.Grants[i], Last: i == len(e.Grants)-1,
				Class:  hongbao.ClassPermanent,
				Reason: "the account is closed", Attempts: 3,
			})
			require.NoError(d.t, err)
			require.True(d.t, written)
		}
	}
}

type listed struct {
	Letters []model.Letter `json:"letters"`
	Next    string         `json:"next"`
}

// Dead letters are listed, shown, requeued and dropped, with the person and the reason (B51). The audit reports the
// grants of dropped letters as decided.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1000)
	for i := range 4 {
		d.ok("grab", "rain", fmt.Sprintf("u%d", i))
	}
	d.buried(configs.SinkBalance)
	page := decided[listed](t, d.ok("dead", "list", "--json", "--limit", "3"))
	require.Len(t, page.Letters, 3)
	rest := decided[listed](t, d.ok("dead", "list", "--json", "--after", page.Next, "--class", "permanent", "--campaign",
		"rain"))
	require.Len(t, rest.Letters, 1)
	require.Empty(t, rest.Next)
	text := d.ok("dead", "list", "--limit", "1", "--user", "u2")
	require.Contains(t, text, "u2")
	require.Contains(t, text, "the account is closed")
	first := page.Letters[0]
	control := testkit.FreeAddr(t)
	d.serve("--control.listen=" + control)
	v := &visitor{t, "http://" + control, d.key("viewer")}
	trail := v.sees("/trail?campaign=rain&user=u0", "Dead letter "+first.ID+".", "the account is closed")
	require.NotContains(t, trail, "Finished", "nothing was delivered")
	shown := decided[model.Letter](t, d.ok("dead", "show", first.ID))
	require.Equal(t, first, shown)
	require.Equal(t, "u0", shown.Grant.User)
	require.Equal(t, int64(4), d.auditNow().Found[audit.DeadLetter])
	kept, _, err := d.store.LastAudit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{4, 4}, []int64{kept.Differences, kept.DeadLetters}, "audit_differs does not fire")

	who := []string{"--by", "ann", "--why", "the account is open again"}
	require.Contains(t, d.ok(append([]string{"dead", "requeue", "--class", "permanent", "--dry-run"}, who...)...),
		"4 letters would be requeued.\nHongbao tries again to pay these grants. What the ledger has is not paid again.\n"+
			"If you have paid a user in another way, drop that letter: a requeue can pay again.\n"+
			"A letter that its sink refuses again stays.\nRun it with --expect 4 and without --dry-run to decide them")
	for _, pick := range [][]string{{"--class", "permanent"}, {first.ID}} {
		out := d.ok(append(append([]string{"dead", "drop", "--dry-run"}, pick...), who...)...)
		require.Contains(t, out, "Hongbao never pays these grants. Their money stays with the campaign, and its refund returns it to "+
			"the sponsor. That refund needs --missing on the command line.\nThis can't be undone.\n")
	}
	require.Contains(t, d.ok(append([]string{"dead", "requeue", "--class", "permanent", "--after", page.Next, "--dry-run"},
		who...)...), "1 letter would be requeued")
	d.refused(2, append([]string{"dead", "requeue", first.ID, "--after", page.Next}, who...), "--after is for filters or all")
	d.refused(2, append([]string{"dead", "drop", "--class", "permanent", "--after", "x"}, who...), "--after is the next")
	for _, what := range []string{"requeue", "drop"} {
		for _, n := range []string{"3", "5", "0"} {
			d.refused(1, append([]string{"dead", what, "--class", "permanent", "--expect", n}, who...),
				"the filter picks 4 letters, not the "+n+" expected")
		}
		d.refused(1, append([]string{"dead", what, "--class", "permanent", "--after", page.Next, "--expect", "0"}, who...),
			"picks 1 letters, not the 0")
	}
	require.Len(t, decided[listed](t, d.ok("dead", "list", "--json")).Letters, 4, "nothing was done")
	require.Contains(t, d.ok(append([]string{"dead", "requeue", first.ID}, who...)...), "1 of 1 letter was requeued")
	require.Equal(t, int64(3), d.auditNow().Found[audit.DeadLetter], "the audit no longer reports the requeued grant")
	require.Contains(t, d.ok("dead", "drop", rest.Letters[0].ID, "--by", "bob", "--why", "paid by hand"),
		"1 of 1 letter was dropped")
	v.sees("/trail?campaign=rain&user="+rest.Letters[0].Grant.User, "Its dead letter was dropped by bob: paid by hand")
	report := decided[model.LetterReport](t,
		d.ok(append([]string{"dead", "requeue", "--sink", "balance", "--expect", "2", "--rate", "100", "--json"}, who...)...))
	require.Equal(t, int64(2), report.Resolved)
	require.Empty(t, decided[listed](t, d.ok("dead", "list", "--json")).Letters)

	r := d.auditNow()
	require.Equal(t, model.Agrees, r.Verdict, "%v", r.Differences)
	require.Equal(t, int64(3), r.Total.Settled)
	require.Equal(t, int64(1), r.Total.Dropped)
	require.Contains(t, r.Dropped[0].Detail, `dropped by bob: "paid by hand"`)
	d.refused(1, []string{"dead", "show", first.ID}, "no_such_dead_letter", "hongbao dead list")
}

// A letter is never both requeued and dropped. While a requeue of the sink runs, a drop waits; afterwards the letter is
// gone.
func TestADropWaitsForARequeue(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1000)
	for i := range 4 {
		d.ok("grab", "rain", fmt.Sprintf("u%d", i))
	}
	d.buried(configs.SinkBalance)
	last := decided[listed](t, d.ok("dead", "list", "--json")).Letters[3].ID
	requeue := d.start("dead", "requeue", "--sink", "balance", "--expect", "4", "--rate", "1", "--by", "ann", "--why", "open")
	testkit.Eventually(t, 30*time.Second, func() bool {
		return len(decided[listed](t, d.ok("dead", "list", "--json")).Letters) == 3
	}, "the requeue is under way")
	d.refused(1, []string{"dead", "drop", last, "--by", "bob", "--why", "fraud"}, "no_such_dead_letter")
	require.Contains(t, requeue.wait(time.Minute).out, "4 of 4 letters were requeued")
	r := d.auditNow()
	require.EqualValues(t, 4, r.Total.Settled)
	require.Zero(t, r.Total.Dropped)
}

// An entry that can't be parsed can only be shown and dropped.
func TestDeadEntry(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.ok("dead", "list") // this creates the deployment
	k := d.store.Shard(0)
	_, err := k.Group("balance").Create(t.Context())
	require.NoError(t, err)
	id, err := d.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: k.Keys.Events(), Values: []string{"poison", "1"}}).Result()
	require.NoError(t, err)
	_, err = k.Group("balance").ReadNew(t.Context(), "digger", 10, 0)
	require.NoError(t, err)
	_, err = k.DeadLetter(t.Context(), store.Letter{Group: "balance", Consumer: "digger", EntryID: id,
		Last: true, Reason: "no field v", Attempts: 1})
	require.NoError(t, err)
	letter := decided[listed](t, d.ok("dead", "list", "--json")).Letters[0]
	require.Equal(t, []string{"poison", "1"}, letter.Fields)
	named := d.refused(3, []string{"dead", "requeue", letter.ID, "--by", "ann", "--why", "try"},
		"1 named letter can't be delivered: drop it")
	for _, out := range []string{named.out, d.ok("dead", "requeue", "--sink", "balance", "--expect", "1",
		"--by", "ann", "--why", "try all")} {
		require.Contains(t, out, "0 of 1 letter was requeued")
		require.Contains(t, out, "then drop them")
	}
	d.ok("dead", "drop", letter.ID, "--by", "ann", "--why", "poison")
	require.Contains(t, d.ok("dead", "list"), "LETTER")
	require.Empty(t, decided[listed](t, d.ok("dead", "list", "--json")).Letters)
}

// The ledger has lost grants. After a replay to the ledger they are settled, and the audit agrees.
func TestReplayToLedger(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1000)
	for i := range 5 {
		d.ok("grab", "rain", fmt.Sprintf("u%d", i))
	}
	// Five grants are acked although the ledger does not have them.
	_, err := d.store.Shard(0).Group("balance").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 1, Last: 5}), nil)
	require.NoError(t, err)
	require.Equal(t, int64(5), d.auditNow().Found[audit.Lost])
	require.Contains(t, d.ok("replay", "repair", "--to", "balance", "--dry-run"), "would deliver 5 of 5")
	report := decided[model.ReplayReport](t, d.ok("replay", "repair", "--to", "balance", "--json", "--rate", "1000"))
	require.True(t, report.Finished)
	require.Equal(t, int64(5), report.Delivered)
	r := d.auditNow()
	require.Zero(t, r.Found[audit.Lost])
	require.Equal(t, int64(5), r.Total.Settled)
	require.Contains(t, d.ok("replay", "repair", "--to", "balance"),
		"is finished: 0 grants delivered now, 0 were there, 5 delivered before")
	require.Contains(t, d.ok("replay", "again", "--to", "balance"),
		"is finished: 0 grants delivered now, 5 were there, 0 delivered before")
	d.refused(2, []string{"replay", "letters", "--to", "balance", "--dead", "kafak"}, "--dead is unknown: deployment.sinks has balance")
	d.refused(1, []string{"replay", "repair", "--to", "balance", "--user", "u1"}, "replay_exists_with_other_range",
		"take another name")
	d.refused(1, []string{"replay", "typo", "--to", "balance", "--campaign", "rian"}, `"rian": the campaign is not in the ledger; did you mean rain?`, "hongbao campaign list")
}

// A replay respects the rate limit of its sink: five grants at two per second take at least a second and a half.
func TestReplayKeepsTheSinksRate(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1000)
	for i := range 5 {
		d.ok("grab", "rain", fmt.Sprintf("u%d", i))
	}
	d.ok("sink", "limit", "balance", "--rate", "2", "--by", "ann", "--why", "the bank asked for it")
	report := decided[model.ReplayReport](t, d.ok("replay", "repair", "--to", "balance", "--json"))
	require.Equal(t, int64(5), report.Delivered)
	require.Greater(t, report.Seconds, 1.4)
}

// `hongbao quarantine show` prints both versions of a packet. A person pays a grant from the reserve, once, or voids
// it. Then the audit agrees (F37, B40).
func TestQuarantineIsResolved(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1000)
	d.ok("grab", "rain", "u1")
	d.ok("grab", "rain", "u2")
	d.ok("replay", "settle", "--to", "balance")
	k := d.store.Shard(0)
	entries, err := k.Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	for i, e := range entries { // grant the same packets to other users
		g := e.Grants[0]
		g.User = fmt.Sprintf("other%d", i)
		values := testkit.Entry("grant", "rain", 3+i, 1, e.Time.UnixMilli(), store.GrantLine(&g))
		require.NoError(t, d.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: k.Keys.Events(), Values: values}).Err())
	}
	require.NoError(t, d.rdb.HSet(t.Context(), k.Keys.Meta(), "seq", 4).Err())
	d.ok("replay", "settle-again", "--to", "balance")

	waiting := decided[payments.QuarantinePage](t, d.ok("quarantine", "list", "--json")).Grants
	require.Len(t, waiting, 2)
	require.Equal(t, ledger.DifferentUser, waiting[0].Reason)
	require.Contains(t, d.ok("quarantine", "list"), "waits")
	one := decided[payments.Quarantined](t, d.ok("quarantine", "show", fmt.Sprint(waiting[0].ID)))
	require.Equal(t, "other0", one.Came.User)
	require.Equal(t, "u1", one.Ledger.User)

	pay := []string{"quarantine", "resolve", fmt.Sprint(one.ID), "--pay", "--by", "ann", "--why", "Redis dealt it twice"}
	for range 2 {
		got := decided[payments.Quarantined](t, d.ok(pay...))
		require.Equal(t, "paid from the reserve: Redis dealt it twice", got.Resolution)
	}
	d.ok("quarantine", "resolve", fmt.Sprint(waiting[1].ID), "--void", "--by", "bob", "--why", "forged")
	d.refused(1, append(pay[:2:2], fmt.Sprint(one.ID), "--void", "--by", "bob", "--why", "no"), "decided_otherwise_before",
		"ann")
	d.refused(1, []string{"quarantine", "resolve", "99", "--void", "--by", "bob", "--why", "no"},
		"hongbao quarantine list")
	d.refused(1, []string{"quarantine", "show", "99"}, "hongbao quarantine list --all")
	require.JSONEq(t, `{"grants":[],"next":null}`, d.ok("quarantine", "list", "--json"))
	require.Equal(t, 2, strings.Count(d.ok("quarantine", "list", "--all"), "exists_with_different_user"))

	cfg := ledger.DefaultConfig()
	cfg.Database = sqlite.Database{Path: d.dsn}
	l, err := ledger.Open(t.Context(), cfg)
	require.NoError(t, err)
	paid, _, err := l.Balance(t.Context(), tables.UserAccount("other0", "CNY"))
	require.NoError(t, err)
	require.Equal(t, one.Came.Amount, paid, "once")
	reserve, _, err := l.Balance(t.Context(), tables.ReserveAccount("CNY"))
	require.NoError(t, err)
	require.Equal(t, -paid, reserve)
	wrong, err := books.Of(l.Tables()).CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, wrong)
	require.NoError(t, l.Close())
	require.Zero(t, d.auditNow().Found[audit.InQuarantine], "a decided grant is not a difference")
}

// A missing or contradictory argument is refused before the command does anything (B51). There is no --all.
func TestDecisionsAreAskedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"replay"}, "one NAME"},
		{[]string{"replay", "a b", "--to", "kafka"}, "NAME has up to 57"},
		{[]string{"replay", "x"}, "--to is a sink, such as balance or kafka, or topic:OTHER"},
		{[]string{"replay", "x", "--to", "topic:"}, "--to is a sink, such as balance or kafka, or topic:OTHER"},
		{[]string{"replay", "x", "--to", "topic:copy", "--missing"}, "missing works with balance and kafka only"},
		{[]string{"replay", "x", "--to", "kafka", "--missing", "--dead", "kafka"}, "give missing or dead, not both"},
		{[]string{"replay", "x", "--to", "kafka", "--dead", "kafka"}, "hongbao dead requeue"},
		{[]string{"replay", "x", "--to", "kafka", "--seq", "5-4"}, "--seq"},
		{[]string{"replay", "x", "--to", "kafka", "--seq", "5"}, "--seq"},
		{[]string{"replay", "x", "--to", "kafka", "--from-time", "yesterday"}, "--from-time"},
		{[]string{"replay", "x", "--to", "kafka", "--campaign", "../x"}, "campaign"},
		{[]string{"replay", "x", "--to", "kafka", "--rate", "-1"}, "--rate is from 0"},
		{[]string{"replay", "x", "--to", "kafka", "--patience", "-1s"}, "--patience is 0s or more"},
		{[]string{"dead", "nonsense"}, "no command"},
		{[]string{"dead", "list", "--class", "bad"}, "--class"},
		{[]string{"dead", "list", "--campaign", "*"}, "campaign"},
		{[]string{"dead", "list", "--sink", "pigeon"}, "deployment.sinks"},
		{[]string{"dead", "list", "--limit", "0"}, "--limit"},
		{[]string{"dead", "show", "7"}, "hongbao dead list"},
		{[]string{"dead", "requeue", "kafka/0/1-1"}, "--by and --why"},
		{[]string{"dead", "requeue", "--by", "a", "--why", "b"}, "name the letters"},
		{[]string{"dead", "drop", "--by", "a", "--why", "b"}, "name the letters"},
		{[]string{"dead", "drop", "--all", "--by", "a", "--why", "b"}, "--expect is required"},
		{[]string{"dead", "drop", "--all", "--sink", "kafka", "--by", "a", "--why", "b"}, "name the letters"},
		{[]string{"dead", "drop", "kafka/0/1-1", "--sink", "kafka", "--by", "a", "--why", "b"}, "name the letters"},
		{[]string{"dead", "drop", "kafka/0/1-1", "--reason", "closed", "--by", "a", "--why", "b"}, "name the letters"},
		{[]string{"dead", "drop", "1-1", "--by", "a", "--why", "b"}, "hongbao dead list"},
		{[]string{"dead", "drop", "--campaign", "", "--by", "a", "--why", "b"}, "--campaign is empty"},
		{[]string{"dead", "drop", "--sink", "", "--by", "a", "--why", "b"}, "--sink is empty"},
		{[]string{"dead", "drop", "--sink", "kafka", "--campaign", "", "--by", "a", "--why", "b"}, "--campaign is empty"},
		{[]string{"dead", "requeue", "--reason", "", "--by", "a", "--why", "b"}, "--reason is empty"},
		{[]string{"dead", "requeue", "--user", "", "--by", "a", "--why", "b"}, "--user is empty"},
		{[]string{"dead", "drop", "--class", "permanent", "--by", "a", "--why", "b"}, "--expect"},
		{[]string{"dead", "requeue", "--sink", "kafka", "--by", "a", "--why", "b"}, "--expect"},
		{[]string{"dead", "requeue", "--sink", "kafka", "--expect", "-1", "--by", "a", "--why", "b"}, "--expect is 0 or more"},
		{[]string{"dead", "drop", "kafka/0/1-1", "--expect", "1", "--by", "a", "--why", "b"}, "--expect is for filters or all"},
		{[]string{"replay", "x", "--to", "kafka", "--campaign", ""}, "--campaign is empty"},
		{[]string{"replay", "x", "--to", "kafka", "--seq", ""}, "--seq is empty"},
		{[]string{"key", "create", "--role", "operator", "--campaign", ""}, "--campaign is empty"},
		{[]string{"key", "create", "--role", "operator", "--campaign", "rain,"}, "--campaign is empty"},
		{[]string{"claim", "settle", "kafka/0/w.1", "--by", "a", "--why", "b"}, "want published or unpublished"},
		{[]string{"claim", "settle", "kafka/0/w.1", "--as", "published"}, "--by and --why"},
		{[]string{"sink", "limit", "balance", "--by", "a", "--why", "b"}, "give either"},
		{[]string{"sink", "limit", "balance", "--rate", "5", "--by-knob", "--by", "a", "--why", "b"}, "give either"},
		{[]string{"sink", "pause", "balance", "--campaign", "A", "--by", "a", "--why", "b"}, "--campaign is 1 to 64"},
		{[]string{"quarantine", "show", "x"}, "hongbao quarantine list"},
		{[]string{"quarantine", "list", "--limit", "0"}, "--limit"},
		{[]string{"quarantine", "resolve", "7", "--by", "a", "--why", "b"}, "--pay or --void"},
		{[]string{"quarantine", "resolve", "7", "--pay", "--void", "--by", "a", "--why", "b"}, "--pay or --void"},
		{[]string{"quarantine", "resolve", "7", "--pay", "--by", "a"}, "--by and --why"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			r := runProgram(t, []string{"HONGBAO_REDIS_ADDRS=127.0.0.1:1", "HONGBAO_KAFKA_BROKERS=127.0.0.1:1"}, c.args...)
			require.Equal(t, 2, r.code, "%s%s", r.out, r.err)
			require.Contains(t, r.err, c.says)
			require.Empty(t, r.out)
		})
	}
}
