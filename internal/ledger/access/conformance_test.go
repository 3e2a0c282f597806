package access

import (
	"testing"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest/opened"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fixture is a ledger with its access.
type fixture struct {
	*opened.Fixture
	access Access
}

func newFixture(t *testing.T, d db.Database) *fixture {
	f := opened.On(t, d)
	return &fixture{f, Of(f.Tables())}
}

// cases are the cases that every database must pass.
var cases = map[string]func(*testing.T, *fixture){
	"API keys":                           testKeys,
	"concurrent rotations of an API key": testKeysTogether,
	"sessions of the console":            testSessions,
	"links to a campaign":                testLinks,
	"jobs":                               testJobs,
	"jobs of processes that are gone":    testLostJobs,
	"many jobs":                          testManyJobs,
	"the journal":                        testJournal,
	"the journal with the change it describes": testJournalTogether,
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
