package books

import (
	"testing"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest/opened"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fixture is a ledger with its books.
type fixture struct {
	*opened.Fixture
	books Books
}

func newFixture(t *testing.T, d db.Database) *fixture {
	f := opened.On(t, d)
	return &fixture{f, Of(f.Tables())}
}

// cases are the cases that every database must pass.
var cases = map[string]func(*testing.T, *fixture){
	"what a day moved":                         testDay,
	"the day of a refund":                      testDayRefund,
	"a day of many pages":                      testDayPages,
	"a day that the ledger contradicts":        testDayBroken,
	"a day with credits that are not recorded": testDayUnrecorded,
	"totals":                              testTotals,
	"a seal longer than a statement":      testSealIsolated,
	"a sealed campaign is not read again": testSeal,
	"a sealed campaign is in the bases":   testBases,
	"bases are added in steps":            testBaseSteps,
	"what is found after a seal":          testFoundAfterSeal,
	"topic bases":                         testTopicBases,
	"a campaign is archived":              testArchive,
	"an archive that is refused":          testArchiveRefused,
	"an archive stays audited":            testArchiveStays,
	"an archive while others read":        testArchiveAmongReaders,
	"every difference is found":           testDifferences,
}

func conformance(t *testing.T, database func(testing.TB) db.Database) {
	ledgertest.Run(t, cases, func(t *testing.T) *fixture { return newFixture(t, database(t)) })
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	conformance(t, ledgertest.SQLite)
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	conformance(t, ledgertest.Postgres)
}

func TestMariaDB(t *testing.T) {
	t.Parallel()
	conformance(t, ledgertest.MariaDB)
}
