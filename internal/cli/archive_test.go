package cli

import (
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ops/books"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// sealed creates a campaign of 20 packets, of which the given number of users get one each. Then it closes and refunds
// the campaign, waits until it has left Redis, and seals it.
func (d *deployment) sealed(id string, users int) {
	d.t.Helper()
	d.campaign(id, 20, 2000)
	require.Equal(d.t, users, d.crowdOf(id, 0, users))
	d.ended(id)
}

// ended closes, refunds, purges and seals a campaign.
func (d *deployment) ended(id string) {
	d.t.Helper()
	w := d.start("work")
	d.quiet()
	left := decided[campaigns.Ending](d.t, d.ok("campaign", "close", id, "--early", "--json")).Amount
	d.set("CAMPAIGN_GRACE", "0s")
	d.ok("campaign", "refund", id, "--wait", "30s", "--amount", strconv.FormatInt(int64(left), 10))
	w.stop(syscall.SIGTERM)
	w = d.start("work") // CAMPAIGN_GRACE is 0: this worker removes the campaign from Redis
	testkit.Eventually(d.t, 30*time.Second, func() bool {
		return d.rdb.Exists(d.t.Context(), d.store.Home(id).Keys.Campaign(id)).Val() == 0
	}, "the campaign left Redis")
	w.Kill()
	require.Contains(d.t, d.ok("audit", "--seal", "--wait", "30s"), id+" (sealed)")
}

// archived returns the only campaign of the command's answer.
func (d *deployment) archived(args ...string) books.Removed {
	d.t.Helper()
	out := decided[struct{ Archived []books.Removed }](d.t, d.ok(append([]string{"archive", "--json"}, args...)...))
	require.Len(d.t, out.Archived, 1)
	return out.Archived[0]
}

// The grants of a sealed campaign are written to a file, and a later step deletes them from the ledger. Audits agree as
// before, and `hongbao receipts` says where the grants are.
func TestArchive(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	dir := t.TempDir()
	d.campaign("snow", 10, 1000)
	d.refused(2, []string{"archive", "snow", "--dir", dir}, "snow", "not sealed", "hongbao audit --seal")
	d.sealed("rain", 6)
	before := d.ok("receipts", "rain", "u000000")
	require.Contains(t, before, "from ledger")
	d.refused(2, []string{"archive", "rain", "--dir", filepath.Join(dir, "none")}, "folder")

	d.refused(2, []string{"archive", "rain", "--dir", dir, "--delete"}, "no file has its grants yet", "nothing is deleted")
	require.Zero(t, d.archived("rain", "--dir", dir).Deleted)
	require.EqualValues(t, 6, d.count("SELECT COUNT(*) FROM grants WHERE campaign = 'rain'"))
	require.Contains(t, d.ok("receipts", "rain", "u000000"), "from ledger", "the ledger still has the grants")
	d.refused(2, []string{"archive", "rain", "--dir", t.TempDir(), "--delete"}, "can't be read", "nothing is deleted")
	d.exec("CREATE TABLE held AS SELECT * FROM grants WHERE campaign = 'rain'")
	r := d.archived("rain", "--dir", dir, "--delete")
	d.loads(filepath.Join(dir, "rain.archive.csv"))
	require.EqualValues(t, 6, r.Grants)
	require.EqualValues(t, 6, r.Deleted)
	text, err := os.ReadFile(filepath.Join(dir, "rain.archive.csv"))
	require.NoError(t, err)
	sum := sha256.Sum256(text)
	require.Equal(t, hex.EncodeToString(sum[:]), r.SHA256)
	lines, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	require.NoError(t, err)
	require.Len(t, lines, 7)
	require.Equal(t, "packet user amount currency shard seq epoch request_id granted_at code",
		strings.Join(lines[0], " "))
	manifest, err := os.ReadFile(filepath.Join(dir, "rain.manifest.json"))
	require.NoError(t, err)
	var archived books.Archived
	require.NoError(t, json.Unmarshal(manifest, &archived))
	require.Equal(t, r.Archived, archived)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2)

	require.Zero(t, d.archived("rain", "--dir", dir).Deleted, "again")
	require.Zero(t, d.archived("rain", "--dir", dir, "--delete").Deleted, "again")
	require.Contains(t, d.ok("audit", "--wait", "30s"), "agrees")
	require.Contains(t, d.ok("audit", "--wait", "30s", "--campaign", "rain"), "agrees")
	d.refused(1, []string{"receipts", "rain", "u000000"}, "archived", "rain.archive.csv", r.SHA256)
	require.Contains(t, d.ok("journal"), "archive_campaign")
	control := testkit.FreeAddr(t)
	d.serve("--control.listen=" + control)
	page := (&visitor{t, "http://" + control, d.key("viewer")}).sees("/campaigns/rain", `id="granted">6</strong>`,
		"are in the archive rain.archive.csv")
	require.NotContains(t, page, "Nothing is paid yet")
	code, body := d.serve().call(http.MethodGet, "/v1/campaigns/rain/grabs/me", "k1", "u000000", "")
	require.Equal(t, http.StatusGone, code, "%s", body)
	require.Contains(t, string(body), `"code":"archived"`)
	require.EqualValues(t, 6, d.count("SELECT grants FROM campaign WHERE id = 'rain'"))
	require.Zero(t, d.count("SELECT COUNT(*) FROM grants WHERE campaign = 'rain'"))
}

// loads loads a file as docs/archive.md describes, and compares it with the grants in table held.
func (d *deployment) loads(path string) {
	d.t.Helper()
	page, err := os.ReadFile("../../docs/archive.md")
	require.NoError(d.t, err)
	_, sql, _ := strings.Cut(string(page), "```sql\n")
	sql, _, _ = strings.Cut(sql, "```")
	d.exec(sql)
	c, err := pgx.Connect(d.t.Context(), d.dsn)
	require.NoError(d.t, err)
	defer c.Close(d.t.Context())
	file, err := os.Open(path)
	require.NoError(d.t, err)
	defer file.Close()
	_, err = c.PgConn().CopyFrom(d.t.Context(), file, "COPY archived FROM STDIN WITH (FORMAT csv, HEADER true)")
	require.NoError(d.t, err)
	require.Zero(d.t, d.count(`SELECT COUNT(*) FROM (SELECT packet, user_id, amount, shard, seq, epoch, request_id,
		granted_at FROM held EXCEPT ALL SELECT packet, "user", amount, shard, seq, epoch, COALESCE(request_id, ''),
		CAST(extract(epoch FROM granted_at) * 1000 AS bigint) FROM archived) AS missing`))
	require.Equal(d.t, d.count("SELECT COUNT(*) FROM held"), d.count("SELECT COUNT(*) FROM archived WHERE currency = 'CNY'"))
}

// A campaign that was closed with withheld packets is refunded, removed from Redis, sealed and archived like any other
// campaign.
func TestArchiveAfterWithheldPackets(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true, redis: testkit.NewRedis(t, testkit.RedisOptions{})})
	d.campaign("rain", 20, 2000)
	require.Equal(t, 6, d.crowdOf("rain", 0, 6))
	d.withholds("rain", 3)
	key := d.store.Home("rain").Keys.Withheld("rain")
	require.EqualValues(t, 3, d.rdb.LLen(t.Context(), key).Val())
	d.ended("rain")
	require.Zero(t, d.rdb.Exists(t.Context(), key).Val(), "the withheld packets left Redis, too")
	dir := t.TempDir()
	d.archived("rain", "--dir", dir)
	r := d.archived("rain", "--dir", dir, "--delete")
	require.Equal(t, []int64{6, 6}, []int64{r.Grants, r.Deleted})
	require.Contains(t, d.ok("audit", "--wait", "30s"), "agrees")
	require.Equal(t, "No packet is withheld.\n", d.ok("hole", "list"))
}

// After a kill at any step, the same command continues. If a file differs from the recorded one, nothing is deleted.
func TestArchiveKilled(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	dir := t.TempDir()
	d.sealed("rain", 6)
	path := filepath.Join(dir, "rain.archive.csv")
	require.NoError(t, os.WriteFile(path, []byte("half of it"), 0o600)) // an earlier run was killed while it wrote

	// The ledger has lost a row. The existing file may have the only copy of that row, so it is not overwritten.
	d.exec("CREATE TABLE held AS SELECT * FROM grants WHERE user_id = 'u000003'")
	d.exec("DELETE FROM grants WHERE user_id = 'u000003'")
	d.refused(1, []string{"archive", "rain", "--dir", dir}, "5 grants", "its totals say 6", "no file is written")
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "half of it", string(kept))
	d.exec("INSERT INTO grants SELECT * FROM held")
	d.archived("rain", "--dir", dir)
	r := d.archived("rain", "--dir", dir, "--delete")
	require.EqualValues(t, 6, r.Deleted)

	// The command was killed after it had recorded the file, and before it deleted anything.
	d.exec("INSERT INTO grants SELECT 'rain', 1, 'u0', 1, 0, 1, 1, '', 1, 1")
	d.exec("UPDATE archive SET deleted_at = 0")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(text, "7,u9,1,CNY,0,9,1,,2026-01-01T00:00:00.000Z,\n"...), 0o600))
	d.refused(1, []string{"archive", "rain", "--dir", dir, "--delete"}, "7 grants", "nothing is deleted")
	d.refused(1, []string{"archive", "rain", "--dir", dir}, "7 grants", "nothing is deleted")
	d.refused(2, []string{"archive", "rain", "--dir", t.TempDir(), "--delete"}, "can't be read", "nothing is deleted")
	require.EqualValues(t, 1, d.count("SELECT COUNT(*) FROM grants WHERE campaign = 'rain'"))
	require.NoError(t, os.WriteFile(path, text, 0o600))
	require.EqualValues(t, 1, d.archived("rain", "--dir", dir, "--delete").Deleted)
	require.Zero(t, d.count("SELECT COUNT(*) FROM archive WHERE deleted_at = 0"))
}
