package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
)

// ledgerBank is a remote that is idempotent and queryable. It rejects the credits of rejected accounts.
type ledgerBank struct {
	*httptest.Server
	mu       sync.Mutex
	booked   map[string]map[string]any // by reference
	posts    int
	rejected map[string]bool
}

func newLedgerBank(t *testing.T) *ledgerBank {
	t.Helper()
	b := &ledgerBank{booked: map[string]map[string]any{}, rejected: map[string]bool{}}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *ledgerBank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	status, answer := http.StatusOK, b.booked[strings.TrimPrefix(r.URL.Path, "/v1/credits/")]
	if r.Method == http.MethodPost {
		var c map[string]any
		_ = json.NewDecoder(r.Body).Decode(&c)
		reference := c["reference"].(string)
		if b.posts++; b.rejected[c["account"].(string)] {
			status, answer = http.StatusUnprocessableEntity, map[string]any{"code": "account_closed"}
		} else {
			if b.booked[reference] == nil {
				b.booked[reference] = c
			}
			status, answer = http.StatusCreated, b.booked[reference]
		}
	} else if answer == nil {
		status, answer = http.StatusNotFound, map[string]any{"code": "credit_not_found"}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

// sent returns the number of requests for credits.
func (b *ledgerBank) sent() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.posts
}

// do changes the bank's books, as its owners could.
func (b *ledgerBank) do(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// follows runs the last command that a report names for its only difference.
func (d *deployment) follows(r model.AuditReport) result {
	d.t.Helper()
	require.Len(d.t, r.Differences, 1, "%+v", r.Differences)
	x := r.Differences[0]
	shard, seq, _ := strings.Cut(x.Event, "-")
	do := strings.NewReplacer("LAST", seq, "FIRST", seq, " N ", " "+shard+" ", "CAMPAIGN", x.Campaign, "NAME", "repair",
		"PACKET", fmt.Sprint(x.Packet)).Replace(r.Remedies[x.Kind].Do)
	named := regexp.MustCompile("`hongbao ([^`]+)`").FindAllStringSubmatch(do, -1)
	args := strings.Fields(named[len(named)-1][1])
	if args[0] == "dead" {
		args = append(args, "--by", "ann", "--why", "ticket 4711")
	}
	return d.run(args...)
}

// The remote loses a credit that the ledger has recorded. The audit's remedy for it books the credit again, once.
func TestCreditThatTheRemoteLost(t *testing.T) {
	t.Parallel()
	d := shortStreams(t)
	d.campaign("rain", 10, 1_000)
	b := newLedgerBank(t)
	d.atBank(b.URL)
	w := d.start("work")
	d.winners(t, "rain", 4)
	d.quiet()
	d.shortenStreams()
	w.stop(syscall.SIGTERM)
	d.agrees(4)
	var lost map[string]any
	reference := d.id() + ":rain:2"
	b.do(func() { lost = b.booked[reference]; delete(b.booked, reference) })
	require.NotNil(t, lost)
	r := d.auditNow()
	require.Equal(t, map[model.DifferenceKind]int64{audit.Lost: 1}, r.Found)
	require.Equal(t, "remote", r.Differences[0].Where)
	posts := b.sent()
	for range 2 {
		ran := d.follows(r)
		require.Zero(t, ran.code, "%s%s", ran.out, ran.err)
		require.Equal(t, lost, b.booked[reference])
		require.Equal(t, posts+1, b.sent(), "no other credit is requested, and none twice")
	}
	d.agrees(4)
}

// A person dropped the letter of a credit that the remote had rejected, and the remote booked it later. The audit's
// remedy for it records the credit, whether or not the event is still in the stream, and requests none.
func TestCreditThatTheRemoteBookedAfterADrop(t *testing.T) {
	t.Parallel()
	for name, trimmed := range map[string]bool{"in the stream": false, "in the receipts": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := shortStreams(t)
			if !trimmed {
				d.set("TRIMMER_RETENTION", "1h")
			}
			d.campaign("rain", 10, 1_000)
			b := newLedgerBank(t)
			b.rejected["u0001"] = true
			d.atBank(b.URL)
			w := d.start("work")
			want := d.winners(t, "rain", 4)
			d.quiet()
			d.ok("dead", "drop", "--sink", "balance", "--class", "permanent", "--expect", "1", "--by", "ann", "--why", "closed")
			if trimmed {
				d.shortenStreams()
			}
			w.stop(syscall.SIGTERM)
			r := d.auditNow()
			require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
			packet := r.Dropped[0].Packet
			confirm := []string{"dead", "confirm", "--booked", "--by", "ann", "--why", "x", "--packet",
				fmt.Sprintf("rain/%d", packet)}
			d.refused(1, confirm, "the remote has no credit", "nothing was recorded")
			require.Zero(t, d.count("SELECT count(*) FROM pending"))

			reference := fmt.Sprintf("%s:rain:%d", d.id(), packet)
			credit := map[string]any{"reference": reference, "account": "u0001", "currency": "CNY", "amount": want["u0001"] + 1}
			b.do(func() { b.booked[reference] = credit })
			d.refused(1, confirm, "a different credit")
			b.do(func() { credit["amount"] = want["u0001"] })
			r = d.auditNow()
			require.Equal(t, map[model.DifferenceKind]int64{audit.RemotePaid: 1}, r.Found)
			posts := b.sent()
			for range 2 {
				ran := d.follows(r)
				require.Zero(t, ran.code, "%s%s", ran.out, ran.err)
				require.Equal(t, want["u0000"]+want["u0001"]+want["u0002"]+want["u0003"], d.show("rain").Ledger.Granted)
			}
			require.Equal(t, posts, b.sent(), "nothing is sent")
			d.agrees(4)
			require.Zero(t, d.count("SELECT count(*) FROM pending"))
			d.refused(1, append(confirm[:len(confirm)-1:len(confirm)-1], "rain/9"), "no receipt")
		})
	}
}
