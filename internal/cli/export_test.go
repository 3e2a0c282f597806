package cli

import (
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/books"
)

// booked sets the time of all bookings in the ledger, and returns the day of that time in the campaigns' time zone.
func (d *deployment) booked(at time.Time) string {
	d.exec(fmt.Sprintf("UPDATE transfer SET created_at = %d", at.UnixMilli()))
	return at.In(d.zone()).Format(time.DateOnly)
}

// zone returns the time zone of the campaigns. It is eight hours ahead of UTC, so the day differs from the UTC day for
// eight hours.
func (d *deployment) zone() *time.Location {
	d.t.Helper()
	zone, err := time.LoadLocation("Asia/Shanghai")
	require.NoError(d.t, err)
	return zone
}

// exported runs the export of one campaign, and returns the answer and the lines of the file.
func (d *deployment) exported(args ...string) (books.Exported, [][]string) {
	d.t.Helper()
	files := decided[struct{ Files []books.Exported }](d.t, d.ok(append([]string{"export", "--json"}, args...)...)).Files
	require.Len(d.t, files, 1)
	text, err := os.ReadFile(files[0].File)
	require.NoError(d.t, err)
	sum := sha256.Sum256(text)
	require.Equal(d.t, hex.EncodeToString(sum[:]), files[0].SHA256)
	lines, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	require.NoError(d.t, err)
	require.EqualValues(d.t, len(lines)-1, files[0].Lines)
	return files[0], lines
}

// The file of a day has each grant with the reference that a balance system knows. Its sums equal those of the ledger.
// A repeated export writes the same file.
func TestExport(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	d.campaign("rain", 10, 100_05)
	d.campaign("drizzle", 10, 100)
	require.Equal(t, 6, d.crowdOf("rain", 0, 6))
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	day, dir := d.booked(time.Now().Add(-48*time.Hour)), t.TempDir()

	file, lines := d.exported("--day", day, "--campaign", "rain", "--dir", dir)
	require.Equal(t, "Asia/Shanghai", file.TimeZone)
	require.Equal(t, filepath.Join(dir, "rain-"+day+".csv"), file.File)
	require.True(t, file.Finished)
	require.Equal(t, []string{"booked_at", "type", "reference", "account_safe", "currency", "amount", "campaign", "packet",
		"granted_at", "transfer"}, lines[0])
	require.Equal(t, []string{"funding", "funding:rain", "acme", "CNY", "100.05", "rain", "", "", "funding:rain"}, lines[1][1:])
	paid, last := 0, 0
	for _, line := range lines[2:] {
		at, err := time.Parse("2006-01-02T15:04:05.000Z07:00", line[0])
		require.NoError(t, err)
		require.Contains(t, line[0], "+08:00")
		require.Equal(t, day, at.In(d.zone()).Format(time.DateOnly))
		packet, err := strconv.Atoi(line[7])
		require.NoError(t, err)
		require.Greater(t, packet, last, "in the order of the packets")
		last = packet
		require.Equal(t, []string{"grant", d.prefix + ":rain:" + line[7]}, line[1:3])
		receipts := decided[model.Receipts](t, d.ok("receipts", "rain", line[3], "--json")).Receipts
		require.Len(t, receipts, 1)
		require.EqualValues(t, packet, receipts[0].Packet)
		minor, err := strconv.Atoi(strings.Replace(line[5], ".", "", 1))
		require.NoError(t, err)
		require.EqualValues(t, receipts[0].Amount, minor)
		paid += minor
	}
	require.Len(t, lines, 8)
	require.EqualValues(t, paid, file.Granted)
	require.EqualValues(t, 6, file.Grants)
	require.EqualValues(t, 100_05, file.Funded)
	require.EqualValues(t, 100_05-paid, file.Closing)
	require.Equal(t, d.show("rain").Ledger.Granted, file.Granted, "as `hongbao campaign show` has it")

	again, _ := d.exported("--day", day, "--campaign", "rain", "--dir", dir)
	require.Equal(t, file, again)
	all := decided[struct{ Files []books.Exported }](t, d.ok("export", "--json", "--day", day, "--dir", dir)).Files
	require.Len(t, all, 2)
	require.Equal(t, file, all[1], "after drizzle, which was funded on that day")
	require.Contains(t, d.ok("export", "--day", "2020-01-01", "--dir", dir), "no campaign moved money")
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	hidden, err := filepath.Glob(filepath.Join(dir, ".*"))
	require.NoError(t, err)
	require.Len(t, append(names, hidden...), 2, "no file is left over")
}

// An export of a day that is not over is refused; with --unfinished it writes a file with another name. Nothing is
// written if the folder does not exist, or if the ledger contradicts itself.
func TestExportRefuses(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	d.campaign("rain", 10, 100_05)
	dir, today := t.TempDir(), d.booked(time.Now())
	args := []string{"export", "--day", today, "--dir", dir}
	r := d.run(args...)
	require.Equal(t, exitUndecided, r.code, r.err)
	require.Contains(t, r.err, "--unfinished")
	file, lines := d.exported("--day", today, "--dir", dir, "--unfinished")
	require.False(t, file.Finished)
	require.Equal(t, filepath.Join(dir, "rain-"+today+".unfinished.csv"), file.File)
	require.Len(t, lines, 2)
	require.NoError(t, os.Remove(file.File))

	day := d.booked(time.Now().Add(-48 * time.Hour))
	r = d.run("export", "--day", day, "--campaign", "rain", "--dir", filepath.Join(dir, "none"))
	require.Equal(t, exitRefused, r.code, r.err)
	require.Contains(t, r.err, filepath.Join(dir, "none"))
	require.Equal(t, exitFailed, d.run("export", "--day", day, "--campaign", "drizzle", "--dir", dir).code)
	d.exec("UPDATE transfer SET amount = amount + 1")
	r = d.run("export", "--day", day, "--dir", dir)
	require.Equal(t, exitFailed, r.code, r.err)
	require.Contains(t, r.err, "hongbao audit")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// One campaign's day is not over. The export still writes the files of the other campaigns.
func TestExportGoesOnWithTheOthers(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	d.campaign("east", 10, 1000, "Asia/Shanghai", "Pacific/Kiritimati") // its day begins 25 hours earlier
	d.campaign("west", 10, 1000, "Asia/Shanghai", "Pacific/Pago_Pago")
	zones := map[string]*time.Location{}
	for _, name := range []string{"Pacific/Kiritimati", "Pacific/Pago_Pago"} {
		var err error
		zones[name], err = time.LoadLocation(name)
		require.NoError(t, err)
	}
	today := time.Now().In(zones["Pacific/Pago_Pago"]).Format(time.DateOnly)
	noon, err := time.ParseInLocation(time.DateOnly+" 15:04", today+" 12:00", zones["Pacific/Kiritimati"])
	require.NoError(t, err)
	d.booked(noon)
	dir := t.TempDir()
	r := d.run("export", "--day", today, "--dir", dir)
	require.Equal(t, exitUndecided, r.code, r.err)
	require.Contains(t, r.err, "campaign west")
	require.NotContains(t, r.err, "campaign east")
	require.Contains(t, r.out, "east-"+today+".csv")
	require.FileExists(t, filepath.Join(dir, "east-"+today+".csv"))
}

// One campaign contradicts itself, and another one is archived. The export writes the files of the other campaigns,
// names these two, and fails.
func TestExportSkipsWhatItCantExport(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	for _, id := range []string{"archived", "broken", "clear", "drizzle"} {
		d.campaign(id, 10, 1000)
	}
	require.Equal(t, 2, d.crowdOf("archived", 0, 2))
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	day, dir := d.booked(time.Now().Add(-48*time.Hour)), t.TempDir()
	d.exec(`INSERT INTO archive (campaign, file, sha256, grants, amount, archived_at, deleted_at)
		VALUES ('archived', 'archived.csv', 'abc', 2, 200, 1, 0)`)
	d.exec("UPDATE transfer SET amount = amount + 1 WHERE campaign = 'broken'")
	r := d.run("export", "--day", day, "--dir", dir)
	require.Equal(t, exitFailed, r.code, r.err)
	require.Contains(t, r.err, "of campaign archived: ")
	require.Contains(t, r.err, "archived.csv")
	require.Contains(t, r.err, "campaign broken")
	for _, id := range []string{"clear", "drizzle"} {
		require.FileExists(t, filepath.Join(dir, id+"-"+day+".csv"))
		require.Contains(t, r.out, id+"-"+day+".csv")
		require.NotContains(t, r.err, "campaign "+id)
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 2)
}

// A user whose id is a formula can't run it in the spreadsheet of whoever opens the file. With --exact the ids are as the
// ledger has them, and the heading says which file it is.
func TestExportIsSafeForSpreadsheets(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	d.campaign("rain", 10, 100_05)
	users := []string{`=HYPERLINK("http://evil.test")`, "+1", "-1+1", "@SUM(A1)", "u1", "'=1"}
	for _, user := range users {
		d.ok("grab", "rain", "--", user)
	}
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	day, dir := d.booked(time.Now().Add(-48*time.Hour)), t.TempDir()
	accounts := func(args ...string) (heading string, all []string) {
		_, lines := d.exported(append([]string{"--day", day, "--campaign", "rain", "--dir", dir}, args...)...)
		for _, line := range lines[2:] {
			all = append(all, line[3])
		}
		return lines[0][3], all
	}
	heading, safe := accounts()
	require.Equal(t, "account_safe", heading)
	for _, cell := range safe {
		require.NotRegexp(t, `^[=+\-@\t\r]`, cell)
	}
	require.ElementsMatch(t, []string{`'=HYPERLINK("http://evil.test")`, "'+1", "'-1+1", "'@SUM(A1)", "u1", "''=1"}, safe)
	heading, exact := accounts("--exact")
	require.Equal(t, "account", heading)
	require.ElementsMatch(t, users, exact)
}
