// Package opened opens ledgers for the tests of the packages beside package ledger. The tests of package ledger, which
// can't import it, have a fixture of their own.
package opened

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Fixture is a ledger with a settler in front of it.
type Fixture struct {
	*ledger.Settler
	Ledger   *ledger.Ledger
	Database db.Database
	Plan     ledgertest.Plan
}

// On opens a ledger on a database. The settler pays the planned amounts of the tests' campaigns.
func On(t testing.TB, d db.Database) *Fixture {
	t.Helper()
	config := ledger.Config{Database: d, Retries: ledgertest.Retries, Limits: ledgertest.Limits()}
	_, err := ledger.Migrate(t.Context(), config)
	require.NoError(t, err)
	f := &Fixture{Database: d, Plan: func(_ string, packet int64) (hongbao.Amount, bool, error) {
		return ledgertest.Planned(packet), true, nil
	}}
	f.Ledger, err = ledger.Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Ledger.Close()) })
	f.Settler, err = ledger.NewSettler(ledger.SettlerConfig{Ledger: f.Ledger, Log: zap.NewNop(), Plan: f.Plan})
	require.NoError(t, err)
	return f
}

// Tables returns the ledger's database.
func (f *Fixture) Tables() *tables.DB { return f.Ledger.Tables() }

// Create creates a test campaign.
func (f *Fixture) Create(t testing.TB, id string, packets int64) {
	t.Helper()
	c := ledgertest.Canonical(t, ledgertest.Spec(id, packets))
	_, err := f.Ledger.CreateCampaign(t.Context(), ledger.Campaign(c))
	require.NoError(t, err)
}

// Settle settles grants.
func (f *Fixture) Settle(t testing.TB, grants ...hongbao.Grant) {
	t.Helper()
	ledgertest.Settle(t, f, grants...)
}

// Refund refunds a campaign.
func (f *Fixture) Refund(t testing.TB, closed stream.Entry) {
	t.Helper()
	r, err := f.Ledger.Refund(t.Context(), []stream.Entry{closed}, 0)
	require.NoError(t, err)
	require.Equal(t, closed.Close.LeftAmount, r.Amount)
}

// Waiting returns the grants in quarantine that wait for a decision.
func (f *Fixture) Waiting(t testing.TB) []model.Quarantined {
	t.Helper()
	list, err := f.Ledger.Quarantine(t.Context(), 0, 10_000)
	require.NoError(t, err)
	return list
}

// Tamper writes to the database without the checks of the ledger.
func (f *Fixture) Tamper(t testing.TB, stmts ...db.Stmt) {
	t.Helper()
	ledgertest.Tamper(t, f.Tables(), stmts...)
}
