package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// shortenStreams waits until workers have deleted the entries of the streams. Redis keeps the last block of each.
func (d *deployment) shortenStreams() {
	d.t.Helper()
	testkit.EventuallyOK(d.t, 30*time.Second, func() error {
		for i := range d.store.Len() {
			if n := d.rdb.XLen(d.t.Context(), d.store.Shard(i).Keys.Events()).Val(); n > 1 {
				return fmt.Errorf("%d entries on shard %d", n, i)
			}
		}
		return nil
	}, "the streams are trimmed")
}

// shortStreams returns a deployment on PostgreSQL whose workers delete an entry as soon as all sinks have finished it.
func shortStreams(t *testing.T) *deployment {
	t.Helper()
	d := setup(t, options{postgres: true, shards: 2, redis: testkit.NewRedis(t, testkit.RedisOptions{
		Args: map[string]string{"stream-node-max-entries": "1"}})})
	d.set("TRIMMER_RETENTION", "0s")
	return d
}

// A backup is taken in the middle of a rain. Later the ledger is restored from it on another server, when the streams no
// longer have the wins whose payment it lacks. The procedure of docs/disaster.md pays each of them once.
func TestRestoredLedgerPaysWhatItLacks(t *testing.T) {
	t.Parallel()
	d := shortStreams(t)
	d.campaign("rain", 1_000, 100_000)
	w := d.start("work")
	rain := make(chan error, 1)
	go func() {
		_, err := d.grabs("rain", 0, 600)
		rain <- err
	}()
	testkit.Eventually(t, 30*time.Second, func() bool { return d.count("SELECT count(*) FROM grants") > 100 }, "it rains")
	backup := testkit.DumpPostgres(t, d.dsn)
	require.NoError(t, <-rain)
	require.Equal(t, 200, d.crowdOf("rain", 600, 200))
	d.quiet()
	d.shortenStreams()
	w.stop(syscall.SIGTERM)
	require.Equal(t, 50, d.crowdOf("rain", 800, 50), "these wins wait in the streams")

	d.set("LEDGER_DSN", testkit.RestorePostgres(t, backup))
	lost := d.auditNow().Found[audit.Lost]
	require.GreaterOrEqual(t, lost, int64(200), "the backup lacks payments")
	args := []string{"replay", "after-restore", "--to", "balance", "--missing", "--json"}
	dry := decided[model.ReplayReport](t, d.ok(append(args, "--dry-run")...))
	require.Equal(t, lost+50, dry.Matched)
	report := decided[model.ReplayReport](t, d.ok(args...))
	require.Equal(t, lost+50, report.Delivered)
	require.Greater(t, report.FromReceipts, lost/2, "the streams have only the last of them")
	w = d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	d.agrees(850)
	require.Zero(t, decided[model.ReplayReport](t, d.ok(args...)).Delivered)
}

// The ledger is restored from a backup without the newest payments at a remote. The replay records these payments. It
// repeats the idempotency keys; if the remote does not know keys, the replay looks the credits up, and sends none.
func TestRestoredLedgerRecordsWhatTheRemotePaid(t *testing.T) {
	t.Parallel()
	for retention, sends := range map[string]bool{"24h": true, "0s": false} {
		t.Run("retention "+retention, func(t *testing.T) {
			t.Parallel()
			d := shortStreams(t)
			d.campaign("rain", 300, 30_000)
			bank := testkit.FreeAddr(t)
			startBalance(t, bank, filepath.Join(t.TempDir(), "balance.db"))
			var sent atomic.Int64
			d.atBank(counted(t, bank, &sent))
			d.set("REMOTE_RETENTION", retention)
			w := d.start("work")
			backup := testkit.DumpPostgres(t, d.dsn)
			want := d.winners(t, "rain", 100)
			d.quiet()
			d.shortenStreams()
			w.stop(syscall.SIGTERM)

			d.set("LEDGER_DSN", testkit.RestorePostgres(t, backup))
			require.EqualValues(t, 100, d.auditNow().Found[audit.Lost])
			sent.Store(0)
			report := decided[model.ReplayReport](t, d.ok("replay", "after-restore", "--to", "balance", "--missing", "--json"))
			require.EqualValues(t, 100, report.Delivered)
			require.Equal(t, sends, sent.Load() > 0)
			d.agrees(100)
			n, _ := booked(t, bank, want)
			require.Equal(t, 100, n)
		})
	}
}

// The backup is older than one of the campaigns. The audit reports this campaign, and the replay pays the other wins.
// Once a person has disowned the campaign, the same replay is finished.
func TestRestoredLedgerLacksACampaign(t *testing.T) {
	t.Parallel()
	d := shortStreams(t)
	d.campaign("rain", 100, 10_000)
	w := d.start("work")
	backup := testkit.DumpPostgres(t, d.dsn)
	d.campaign("snow", 100, 10_000)
	require.Equal(t, 40, d.crowdOf("rain", 0, 20)+d.crowdOf("snow", 0, 20))
	d.quiet()
	d.shortenStreams()
	w.stop(syscall.SIGTERM)

	d.set("LEDGER_DSN", testkit.RestorePostgres(t, backup))
	found := d.auditNow().Found
	require.EqualValues(t, 1, found[audit.CampaignMissing])
	require.EqualValues(t, 40, found[audit.Lost])
	args := []string{"replay", "after-restore", "--to", "balance", "--missing", "--patience", "0s"}
	require.Contains(t, d.refused(exitFound, args, "not finished").out, "20 grants delivered now")
	d.ok("quarantine", "campaign", "snow", "--by", "ann", "--why", "the backup is older")
	require.Contains(t, d.ok(args...), "is finished: 20 grants delivered now")
	found = d.auditNow().Found
	require.Zero(t, found[audit.Lost])
	require.EqualValues(t, 20, found[audit.InQuarantine])
	require.Contains(t, d.ok("audit", "--campaign", "rain"), "agrees")
}

// even are changes to a specification: all packets have the same amount.
var even = []string{"{mode: random, min: 1, max: 2000}", "{mode: even}"}

// The backup is older than a top-up. A repeated order would draw its packets with other amounts, so it is refused: the
// wins stay in quarantine. If all packets have the same amount, the order draws the same packets, and pays the wins.
func TestRestoredLedgerLacksATopUp(t *testing.T) {
	t.Parallel()
	for name, changes := range map[string][]string{"random": nil, "even": even} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := shortStreams(t)
			d.campaign("rain", 20, 2_000, changes...)
			w := d.start("work")
			require.Equal(t, 20, d.crowdOf("rain", 0, 20))
			d.quiet()
			backup := testkit.DumpPostgres(t, d.dsn)
			d.ok(order(20, 2_000, 2_000, "more")...)
			require.Equal(t, 15, d.crowdOf("rain", 20, 15))
			d.quiet()
			w.stop(syscall.SIGTERM)

			d.set("LEDGER_DSN", testkit.RestorePostgres(t, backup))
			const lost = "Redis has 40 packets of it, and the ledger 20"
			d.refused(exitFailed, order(21, 2_100, 2_000, "more"), lost)
			d.refused(exitFailed, order(20, 2_020, 2_000, "more"), lost)
			d.refused(exitFailed, order(20, 2_010, 2_000, "more"), lost)
			pay := []string{"replay", "after-restore", "--to", "balance", "--missing"}
			if changes == nil {
				d.refused(exitFailed, order(20, 2_000, 2_000, "more")[:7], lost)
				d.refused(exitFailed, order(20, 2_000, 2_000, "more"), lost)
				require.EqualValues(t, 2_000, d.show("rain").Ledger.Funded)
				d.ok(pay...)
				require.EqualValues(t, 15, d.auditNow().Found[audit.InQuarantine])
				return
			}
			require.Contains(t, d.ok(pay...), "15 grants delivered now", "to quarantine: the packets are not planned")
			d.ok(order(20, 2_000, 2_000, "again")...)
			pay[1] = "after-order"
			require.Contains(t, d.ok(pay...), "15 grants delivered now")
			require.Equal(t, map[model.DifferenceKind]int64{audit.InQuarantine: 15}, d.auditNow().Found)
		})
	}
}

// A person disowns a campaign by mistake: another copy of the ledger has it, or its packets have all the same amount, so
// that it can be created again. The replay then pays each win once, and no decision in quarantine pays it again.
func TestADisownedCampaignIsPaid(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"copy", "create"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			d := shortStreams(t)
			w := d.start("work")
			older := testkit.DumpPostgres(t, d.dsn)
			file := spec(t, "snow", 20, 2_000, even...)
			d.ok("campaign", "create", file)
			d.ok("campaign", "load", "snow")
			w.stop(syscall.SIGTERM)
			d.set("LEDGER_DSN", testkit.RestorePostgres(t, older))
			d.ok("quarantine", "campaign", "snow", "--by", "ann", "--why", "a mistake")
			w = d.start("work")
			require.Equal(t, 10, d.crowdOf("snow", 0, 10))
			d.quiet()
			w.stop(syscall.SIGTERM)
			require.EqualValues(t, 10, d.auditNow().Found[audit.InQuarantine])
			resolve := []string{"quarantine", "resolve", "1", "--pay", "--by", "ann", "--why", "snow won it"}
			d.refused(exitFailed, resolve, "the ledger does not have campaign snow", "`hongbao replay NAME --to balance --missing`",
				"pay the user yourself")

			d.ok("campaign", "resume", "snow", "--by", "ann", "--why", "a mistake")
			pay := []string{"replay", "after-restore", "--to", "balance", "--missing"}
			if how == "copy" {
				d.set("LEDGER_DSN", d.dsn)
			} else {
				d.ok("campaign", "create", file)
				d.refused(exitFailed, resolve, "it can still be settled", "--missing` first")
			}
			require.Contains(t, d.ok(pay...), "10 grants delivered now")
			require.Contains(t, d.ok(pay...), "0 grants delivered now")
			if how == "create" {
				d.refused(exitFailed, resolve, "the ledger has settled this grant meanwhile; decide that it is void")
				for id := range 10 {
					d.ok("quarantine", "resolve", fmt.Sprint(id+1), "--void", "--by", "ann", "--why", "the replay paid it")
				}
			}
			w = d.start("work")
			require.Equal(t, 5, d.crowdOf("snow", 10, 5))
			d.quiet()
			d.agrees(15)
			d.ok("campaign", "close", "snow", "--early")
			d.ok("campaign", "refund", "snow", "--amount", "500", "--wait", "30s")
			w.stop(syscall.SIGTERM)
		})
	}
}

// counted starts a proxy in front of a balance server that counts the requests to credit, and returns its URL.
func counted(t *testing.T, bank string, sent *atomic.Int64) string {
	t.Helper()
	to, err := url.Parse("http://" + bank)
	require.NoError(t, err)
	s := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		if r.In.Method == http.MethodPost {
			sent.Add(1)
		}
		r.SetURL(to)
	}})
	t.Cleanup(s.Close)
	return s.URL
}
