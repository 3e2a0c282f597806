package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// atBank configures the deployment to settle at a balance server.
func (d *deployment) atBank(url string) {
	d.set("SETTLEMENT_KIND", "remote", "REMOTE_URL", url, "REMOTE_TOKEN", balanceToken, "REMOTE_RETENTION", "24h",
		"REMOTE_QUERYABLE", "true", "REMOTE_CLAIM_TIME", "2s", "REMOTE_TIMEOUT", "1s",
		"REMOTE_HEADER_TIMEOUT", "900ms", "REMOTE_PAUSE", "10ms", "REMOTE_BREAKER_OPEN", "50ms", "CONSUMER_BATCH_GRANTS",
		"20", "REMOTE_CONCURRENCY", "4")
}

// booked returns the number and the sum of the users' credits at the balance server. No user has two.
func booked(t *testing.T, addr string, want map[string]hongbao.Amount) (n int, sum hongbao.Amount) {
	t.Helper()
	for user := range want {
		_, a := call(t, "GET", "http://"+addr+"/v1/accounts/"+user, "")
		for _, b := range a["balances"].([]any) {
			balance := b.(map[string]any)
			require.EqualValues(t, 1, balance["credits"], user)
			n, sum = n+1, sum+hongbao.Amount(balance["balance"].(float64))
		}
	}
	return n, sum
}

// A campaign is paid at a balance server, closed, refunded and revealed. Verification, receipts and audit agree.
func TestEndOfACampaignPaidAtTheBalanceServer(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true, shards: 2})
	const packets, granted = 300, 200
	d.campaign("rain", packets, 30_000)
	addr := testkit.FreeAddr(t)
	d.atBank("http://" + addr)
	startBalance(t, addr, filepath.Join(t.TempDir(), "balance.db"))
	want := d.winners(t, "rain", granted)
	var paid hongbao.Amount
	for _, a := range want {
		paid += a
	}
	d.ok("campaign", "close", "rain", "--early")
	left := money.Text(30_000-paid, "CNY")
	amount := fmt.Sprint(int64(30_000 - paid))
	d.refused(4, []string{"campaign", "refund", "rain", "--amount", amount}, "settling")
	w := d.start("work")
	require.Contains(t, d.ok("campaign", "refund", "rain", "--amount", amount, "--wait", "60s"),
		"100 packets, "+left+", to sponsor acme")
	n, sum := booked(t, addr, want)
	require.Equal(t, granted, n)
	require.Equal(t, paid, sum)
	shown := d.show("rain")
	require.Equal(t, paid, shown.Ledger.Granted)
	require.Equal(t, 30_000-paid, shown.Ledger.Refunded)

	dir := t.TempDir()
	disclosure, grants := filepath.Join(dir, "rain.json"), filepath.Join(dir, "grants.jsonl")
	require.NoError(t, os.WriteFile(disclosure, []byte(d.ok("campaign", "reveal", "rain")), 0o600))
	report := decided[model.AuditReport](t, d.ok("audit", "--json", "--wait", "30s"))
	require.Equal(t, model.Agrees, report.Verdict)
	require.Empty(t, report.LeftOut, "Redis, ledger, topic and remote were compared")
	require.EqualValues(t, granted, report.Total.Settled)
	require.EqualValues(t, granted, report.Total.Published)
	require.NoError(t, os.WriteFile(grants, []byte(d.ok("tail", "--campaign", "rain")), 0o600))
	require.Contains(t, d.ok("campaign", "verify", disclosure, "--grants", grants), "200 grants, "+money.Text(paid, "CNY"))
	replayed := d.refused(3, []string{"replay", "late", "--to", "balance", "--campaign", "rain"}, "not finished")
	require.Contains(t, replayed.out, "was refunded: no more of its credits are sent")
	before := d.ok("receipts", "rain", "u0007")
	w.Signal(syscall.SIGTERM)
	require.Zero(t, w.wait(30*time.Second).code)

	retiring := d.start("work", "--campaign.grace=0s") // removes the campaign from Redis; the ledger answers afterwards
	testkit.Eventually(t, 60*time.Second, func() bool {
		there, err := d.rdb.Exists(t.Context(), d.store.Home("rain").Keys.Campaign("rain")).Result()
		return err == nil && there == 0
	}, "the campaign has left Redis")
	retiring.Kill()
	after := d.ok("receipts", "rain", "u0007")
	require.Contains(t, after, "from ledger")
	for _, receipt := range []string{before, after} {
		require.Contains(t, receipt, money.Text(want["u0007"], "CNY"))
	}
	require.Equal(t, model.Agrees, decided[model.AuditReport](t, d.ok("audit", "--json")).Verdict)
}

// teller is a proxy in front of a balance server. If armed, it cuts off the ledger after the server has booked a credit
// and before it forwards the answer.
type teller struct {
	*httptest.Server
	ledger *proxy.Proxy
	armed  atomic.Bool
	fired  atomic.Int64
}

func newTeller(t *testing.T, bank string, ledger *proxy.Proxy) *teller {
	t.Helper()
	to, err := url.Parse("http://" + bank)
	require.NoError(t, err)
	l := &teller{ledger: ledger}
	l.Server = httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(*http.Response) error {
			if l.armed.CompareAndSwap(true, false) {
				l.ledger.Refuse(true)
				l.ledger.CutAll()
				l.fired.Add(1)
			}
			return nil
		}})
	t.Cleanup(l.Close)
	return l
}

// The ledger fails after the remote has booked a credit. In every second wave the worker is killed as well. Nothing is
// booked twice, and the bookings are recorded when the ledger is back.
func TestLedgerAwayWhileTheBalanceServerAnswers(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true, shards: 2})
	const packets, waves = 400, 6
	d.campaign("rain", packets, 20_000)
	direct := *d
	dsn, err := url.Parse(d.dsn)
	require.NoError(t, err)
	proxy := testkit.NewProxy(t, dsn.Host)
	dsn.Host = proxy.Addr
	d.set("LEDGER_DSN", dsn.String())
	addr := testkit.FreeAddr(t)
	startBalance(t, addr, filepath.Join(t.TempDir(), "balance.db"))
	l := newTeller(t, addr, proxy)
	d.atBank(l.URL)
	// When a worker dies, each of its pending entries loses an attempt. The same entries may be pending in each wave.
	d.set("CONSUMER_MAX_ATTEMPTS", "100")
	direct.env = append(append([]string{}, d.env...), "HONGBAO_LEDGER_DSN="+d.dsn)
	want := d.winners(t, "rain", packets)

	w := d.start("work")
	for wave := range waves {
		l.armed.Store(true)
		testkit.Eventually(t, 60*time.Second, func() bool { return l.fired.Load() == int64(wave+1) }, "the ledger is down")
		if wave%2 == 0 {
			w.Kill()
		} else {
			w.says("not recorded in the ledger")
		}
		_, sum := booked(t, addr, want)
		require.Greater(t, sum, direct.show("rain").Ledger.Granted, "a credit is booked and not recorded")
		if wave%2 != 0 {
			w.Kill()
		}
		proxy.Refuse(false)
		w = d.start("work")
	}
	testkit.Eventually(t, 90*time.Second,
		func() bool { return direct.show("rain").Ledger.Granted == 20_000 && d.nothingPending(t) }, "all are recorded")
	w.Signal(syscall.SIGTERM)
	require.Zero(t, w.wait(30*time.Second).code)
	n, sum := booked(t, addr, want)
	require.Equal(t, packets, n)
	require.EqualValues(t, 20_000, sum)
	report := decided[model.AuditReport](t, direct.ok("audit", "--json", "--wait", "20s"))
	require.Equal(t, model.Agrees, report.Verdict)
	require.Equal(t, int64(packets), report.Total.Settled)
}

// The balance server loses its data. Within remote.retention a replay sends the credits again under the same keys.
// Afterwards a replay refuses each event.
func TestReplayToTheBalanceServer(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 20, 1_000)
	addr := testkit.FreeAddr(t)
	d.atBank("http://" + addr)
	bank := startBalance(t, addr, filepath.Join(t.TempDir(), "balance.db"))
	want := d.winners(t, "rain", 20)
	w := d.start("work")
	testkit.Eventually(t, 30*time.Second,
		func() bool { return d.show("rain").Ledger.Granted == 1_000 && d.nothingPending(t) }, "all are settled")
	w.Kill()
	bank.Kill()
	startBalance(t, addr, filepath.Join(t.TempDir(), "empty.db"))
	require.Equal(t, map[model.DifferenceKind]int64{audit.Lost: 20}, d.auditNow().Found)

	late := *d
	late.env = append(append([]string{}, d.env...), "HONGBAO_REMOTE_RETENTION=30ms", "HONGBAO_REMOTE_MARGIN=20ms",
		"HONGBAO_REMOTE_CLAIM_TIME=10ms",
		"HONGBAO_REMOTE_TIMEOUT=9ms", "HONGBAO_REMOTE_QUERYABLE=false")
	late.refused(3, []string{"replay", "late", "--to", "balance", "--campaign", "rain"}, "not finished")
	n, _ := booked(t, addr, want)
	require.Zero(t, n, "a repeat could pay twice")
	for range 2 {
		d.ok("replay", "repair", "--to", "balance", "--campaign", "rain")
		n, sum := booked(t, addr, want)
		require.Equal(t, 20, n)
		require.EqualValues(t, 1_000, sum)
		require.Equal(t, model.Agrees, d.auditNow().Verdict)
	}
}

// A replay has settled a grant that becomes a dead letter. The requeue removes the letter without a request to the
// remote.
func TestRequeueAtTheBalanceServerOfWhatIsRecorded(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	addr := testkit.FreeAddr(t)
	d.atBank("http://" + addr)
	bank := startBalance(t, addr, filepath.Join(t.TempDir(), "balance.db"))
	want := d.winners(t, "rain", 4)
	d.ok("replay", "first", "--to", "balance", "--campaign", "rain", "--user", "u0001")
	n, sum := booked(t, addr, want)
	require.Equal(t, 1, n)
	require.Equal(t, want["u0001"], sum)
	require.Equal(t, sum, d.show("rain").Ledger.Granted)
	d.buried("balance")
	bank.Kill()
	startBalance(t, addr, filepath.Join(t.TempDir(), "empty.db")) // a server that has no keys
	d.ok("dead", "requeue", "--class", "permanent", "--expect", "4", "--by", "ann", "--why", "the account is open again")
	n, sum = booked(t, addr, want)
	require.Equal(t, 3, n, "a paid credit is not sent again")
	var all hongbao.Amount
	for _, a := range want {
		all += a
	}
	require.Equal(t, all-want["u0001"], sum)
	require.Equal(t, all, d.show("rain").Ledger.Granted)
	require.Equal(t, map[model.DifferenceKind]int64{audit.Lost: 1}, d.auditNow().Found, "what the server lost")
}
