package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// journal reads a page of the journal.
func (d *deployment) journal(args ...string) access.JournalPage {
	d.t.Helper()
	var p access.JournalPage
	require.NoError(d.t, json.Unmarshal([]byte(d.ok(append([]string{"journal", "--json"}, args...)...)), &p))
	return p
}

// reads counts the journal's entries about reads of users' data, without the id of the reader.
func (d *deployment) reads() map[string]int {
	d.t.Helper()
	all := map[string]int{}
	for _, e := range d.journal().Entries {
		if e.Action == access.ReadTrails || e.Action == access.ReadGrants {
			all[fmt.Sprint(e.Who[:4], e.Action, " ", e.Campaign, " ", e.Details)]++
		}
	}
	return all
}

// A process pauses a campaign while the ledger is down, and ends. The journal's entry waits in Redis. When the ledger
// is back, a command that reads the journal or a running server moves the entry to the ledger.
func TestJournalOutlivesAnOutageOfTheLedger(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 5, 50)
	withoutLedger := func(command ...string) {
		d.set("LEDGER_DRIVER", "postgres", "LEDGER_DSN", "postgres://u@127.0.0.1:2/d")
		d.ok(command...)
		d.set("LEDGER_DRIVER", "sqlite", "LEDGER_DSN", d.dsn)
	}
	waiting := func() int64 {
		n, err := d.rdb.LLen(t.Context(), d.store.Journal()).Result()
		require.NoError(t, err)
		return n
	}
	withoutLedger("campaign", "pause", "rain", "--by", "ann", "--why", "test")
	require.Contains(t, d.ok("grab", "rain", "u1"), "paused\n", "it is paused at once")
	require.EqualValues(t, 1, waiting())

	page := d.journal("--campaign", "rain", "--limit", "1")
	require.Zero(t, waiting())
	require.Len(t, page.Entries, 1)
	e := page.Entries[0]
	require.Equal(t, access.PauseCampaign, e.Action)
	require.Equal(t, access.OutcomeDone, e.Outcome)
	require.Equal(t, "rain", e.Campaign)
	require.Regexp(t, `^cli:.+@.+$`, e.Who)
	require.WithinDuration(t, time.Now(), e.Time, time.Minute)
	page = d.journal("--campaign", "rain", "--after", string(page.Next))
	require.Len(t, page.Entries, 2)
	require.Equal(t, []access.Action{access.LoadCampaign, access.CreateCampaign}, []access.Action{page.Entries[0].Action,
		page.Entries[1].Action})

	withoutLedger("campaign", "resume", "rain", "--by", "ann", "--why", "test")
	require.EqualValues(t, 1, waiting())
	keys := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(keys, []byte(keySet("k1")), 0o600))
	server := d.start("serve", "--serve.keys", keys, "--serve.issuer=i", "--serve.audience=a", "--serve.listen=127.0.0.1:0",
		"--serve.ops_listen=127.0.0.1:0", "--serve.drain_delay=0s")
	server.says("serving grabs")
	testkit.Eventually(t, 20*time.Second, func() bool { return waiting() == 0 }, "the server moves it to the ledger")
	server.Signal(syscall.SIGTERM)
	require.Zero(t, server.wait(20*time.Second).code)
	require.Equal(t, access.ResumeCampaign, d.journal("--limit", "1").Entries[0].Action)
}

// The journal has refused actions. It has neither invalid command lines nor dry runs.
func TestJournalHasRefusals(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 5, 50)
	d.refused(1, []string{"campaign", "close", "rain"})
	d.refused(1, []string{"campaign", "load", "nobody"})
	d.refused(2, []string{"campaign", "load", "1 or 1=1"})
	require.Zero(t, d.run("dead", "drop", "--sink", "balance", "--dry-run", "--by", "ann", "--why", "x").code)
	entries := d.journal().Entries
	require.Len(t, entries, 4)
	require.Equal(t, []access.Action{access.LoadCampaign, access.CloseCampaign}, []access.Action{entries[0].Action,
		entries[1].Action})
	for _, e := range entries[:2] {
		require.Equal(t, access.OutcomeRefused, e.Outcome)
		require.NotEmpty(t, e.Details["error"])
	}
}
