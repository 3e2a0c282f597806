package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// blindBank is a remote that does not deduplicate requests and can't be queried. It books every request. If sick is
// set, it closes the connection without an answer, and books the credit only if sick returns true.
type blindBank struct {
	*httptest.Server
	mu     sync.Mutex
	booked map[string]int
	posts  int
	sick   func(account string) (books bool)
}

func newBlindBank(t *testing.T) *blindBank {
	t.Helper()
	b := &blindBank{booked: map[string]int{}}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *blindBank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c map[string]any
	if json.NewDecoder(r.Body).Decode(&c) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.posts++
	if b.sick == nil || b.sick(c["account"].(string)) {
		b.booked[c["reference"].(string)]++
	}
	if b.sick != nil {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(c)
}

func (b *blindBank) recovers() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sick = nil
}

func (b *blindBank) has() (credits, most, posts int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.booked {
		credits, most = credits+n, max(most, n)
	}
	return credits, most, b.posts
}

// The remote can't say whether it booked a credit, so the credit in doubt waits for a person. If the person confirms
// that it is booked, nothing is sent. If the person confirms that it is not booked, it is sent again, once.
func TestConfirmCreditsInDoubt(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	b := newBlindBank(t)
	b.sick = func(account string) bool { return account < "u0002" }
	d.set("SETTLEMENT_KIND", "remote", "REMOTE_URL", b.URL, "REMOTE_RETENTION", "0s", "REMOTE_QUERYABLE", "false",
		"REMOTE_CLAIM_TIME", "2s",
		"REMOTE_TIMEOUT", "1s", "REMOTE_HEADER_TIMEOUT", "900ms")
	want := d.winners(t, "rain", 4)
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	var booked, not []string
	for _, l := range decided[listed](t,
		d.ok("dead", "list", "--sink", "balance", "--class", "conflict", "--json")).Letters {
		if l.Grant.User < "u0002" {
			booked = append(booked, l.ID)
		} else {
			not = append(not, l.ID)
		}
	}
	require.Len(t, booked, 2)
	require.Len(t, not, 2)
	b.recovers()
	d.refused(3, append([]string{"dead", "requeue", "--by", "ann", "--why", "try"}, append(booked, not...)...),
		"refused 4 letters again")
	_, _, posts := b.has()
	require.Equal(t, 4, posts, "nothing is sent again without a decision")

	confirm := func(flag string, ids []string, more ...string) []string {
		return append(append([]string{"dead", "confirm", flag, "--by", "ann", "--why", "ticket 4711"}, more...), ids...)
	}
	dry := d.ok(confirm("--booked", booked, "--dry-run")...)
	require.Contains(t, dry, "credit "+d.id()+":rain:")
	require.Contains(t, dry, "to account u0000")
	require.Contains(t, dry, "Dry run: nothing was written. 2 letters would be requeued")
	require.Zero(t, d.show("rain").Ledger.Granted)
	said := decided[deliveries.Confirmed](t, d.ok(confirm("--booked", booked, "--json")...))
	require.EqualValues(t, 2, said.Resolved)
	require.Len(t, said.Credits, 2)
	require.Equal(t, want["u0000"]+want["u0001"], d.show("rain").Ledger.Granted)
	d.refused(1, confirm("--booked", booked[:1]), "no_such_dead_letter")
	d.refused(1, confirm("--booked", booked), "none of the dead letters exists any more")
	require.Contains(t, d.ok("dead", "list"), "Class conflict: do not drop a credit in doubt.")
	d.refused(1, confirm("--not-booked", not, "--asked", "2026-02-17T21:30:00Z"), "too early", "An inquiry counts if it was made after",
		"Nothing was sent")
	require.Regexp(t, "confirm_credits.*failed", d.ok("journal"))
	var asked, output string
	testkit.Eventually(t, 20*time.Second, func() bool {
		asked = time.Now().UTC().Format(time.RFC3339Nano)
		r := d.run(confirm("--not-booked", append(not, booked...), "--asked", asked)...)
		output = r.out
		return r.code == 0
	}, "no request can be under way any more")
	require.Contains(t, output, booked[0]+": there is no such letter")
	credits, most, posts := b.has()
	require.Equal(t, []int{4, 1, 6}, []int{credits, most, posts})
	require.Equal(t, want["u0000"]+want["u0001"]+want["u0002"]+want["u0003"], d.show("rain").Ledger.Granted)
	report := d.auditNow()
	require.Equal(t, model.Agrees, report.Verdict, "%v", report.Found)
	require.Zero(t, report.Total.OpenClaims)
	log, err := d.rdb.XRange(t.Context(), d.store.Shard(0).Keys.ResolvedLetters("balance"), "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, log, 4)
	require.Equal(t, "booked at the remote: ticket 4711", log[0].Values["why"])
	require.Equal(t, "not booked at the remote, asked at "+asked+": ticket 4711", log[3].Values["why"])
	require.Equal(t, "ann", log[3].Values["by"])
}

// The dead letters of credits in doubt were dropped. The refund names these credits and is refused until a person
// confirms each of them by its packet.
func TestConfirmPackets(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	b := newBlindBank(t)
	b.sick = func(account string) bool { return account < "u0001" }
	d.set("SETTLEMENT_KIND", "remote", "REMOTE_URL", b.URL, "REMOTE_RETENTION", "0s", "REMOTE_QUERYABLE", "false",
		"REMOTE_CLAIM_TIME", "2s",
		"REMOTE_TIMEOUT", "1s", "REMOTE_HEADER_TIMEOUT", "900ms")
	want := d.winners(t, "rain", 2)
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	b.recovers()
	d.ok("dead", "drop", "--sink", "balance", "--class", "conflict", "--expect", "2", "--by", "ann", "--why", "too late")
	d.ok("campaign", "close", "rain", "--early")
	w = d.start("work") // the worker finishes the close
	d.quiet()
	w.stop(syscall.SIGTERM)
	refund := func(missing string, amount int64) []string {
		return []string{"campaign", "refund", "rain", "--missing", missing, "--amount", strconv.FormatInt(amount, 10),
			"--wait", "0s"}
	}
	d.refused(4, refund("2", 1_000), "2 credits may be booked at the remote")
	word := func(args ...string) []string {
		return append([]string{"dead", "confirm", "--by", "ann", "--why", "ticket 4711"}, args...)
	}
	d.refused(2, word("--booked", "--packet", "rain"), "want CAMPAIGN/PACKET")
	d.refused(1, word("--booked", "--packet", "rain/9"), "the credit of packet 9 of campaign rain is not in doubt")
	one, two := "rain/1", "rain/2"
	if b.booked[d.id()+":rain:1"] == 0 {
		one, two = two, one
	}
	testkit.Eventually(t, 20*time.Second, func() bool {
		return !strings.Contains(d.run(word("--booked", "--packet", one, "--dry-run")...).err, "may still be working on it")
	}, "its owner's time is over")
	require.Zero(t, d.show("rain").Ledger.Granted)
	require.Contains(t, d.ok(word("--booked", "--packet", one)...), "to account u0000")
	d.refused(1, word("--not-booked", "--asked", "2026-02-17T21:30:00Z", "--packet", two), "may have been asked for until")
	shown := d.ok(word("--booked", "--packet", two, "--dry-run")...)
	_, from, found := strings.Cut(strings.TrimSpace(shown), "for --not-booked: ask after ")
	require.True(t, found, shown)
	after, err := time.Parse(time.RFC3339Nano, from)
	require.NoError(t, err)
	early := after.Add(-50 * time.Millisecond).Format(time.RFC3339Nano)
	d.refused(1, word("--not-booked", "--asked", early, "--packet", two), "may have been asked for until ")
	asked := after.Add(50 * time.Millisecond).Format(time.RFC3339Nano)
	testkit.Eventually(t, time.Minute, func() bool { return time.Since(after) > 50*time.Millisecond }, "the time is over")
	require.Contains(t, d.ok(word("--not-booked", "--asked", asked, "--packet", two)...), "to account u0001")
	require.Equal(t, want["u0000"], d.show("rain").Ledger.Granted)
	credits, most, posts := b.has()
	require.Equal(t, []int{1, 1, 2}, []int{credits, most, posts}, "nothing was sent")
	d.ok(refund("1", 1_000-int64(want["u0000"]))...)
}

// `hongbao dead confirm` refuses a letter or a packet that is not in doubt, and invalid arguments.
func TestConfirmRefuses(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	d.winners(t, "rain", 1)
	d.buried("balance")
	letter := decided[listed](t, d.ok("dead", "list", "--json")).Letters[0]
	line := func(args ...string) []string {
		return append([]string{"dead", "confirm", "--by", "ann", "--why", "ticket"}, args...)
	}
	for _, c := range []struct {
		says string
		args []string
	}{
		{"by their ids", line("--booked")},
		{"either --booked or --not-booked", line(letter.ID)},
		{"either --booked or --not-booked", line("--booked", "--not-booked", letter.ID)},
		{"--by and --why", []string{"dead", "confirm", "--booked", letter.ID}},
		{"--asked is required with --not-booked", line("--not-booked", letter.ID)},
		{"--asked is required with --not-booked", line("--booked", "--asked", "2026-02-17T21:30:00Z", letter.ID)},
		{"--asked", line("--not-booked", "--asked", "yesterday", letter.ID)},
		{"in the future", line("--not-booked", "--asked", "2126-02-17T21:30:00Z", letter.ID)},
		{"--patience", line("--booked", "--patience=-1s", letter.ID)},
		{"is of sink kafka", line("--booked", "kafka/0/1-1")},
		{"as `hongbao dead list` prints it", line("--booked", "balance/0")},
		{"settlement.kind is ledger", line("--booked", letter.ID)},
		{"no person has to confirm", line("--booked", letter.ID, "--settlement.kind=remote", "--remote.url=http://127.0.0.1:1",
			"--remote.retention=24h", "--remote.queryable",
			"--remote.claim_time=2s", "--remote.timeout=1s")},
	} {
		d.refused(2, c.args, c.says)
	}
	require.Equal(t, []model.Letter{letter}, decided[listed](t, d.ok("dead", "list", "--json")).Letters,
		"it is as it was")
}
