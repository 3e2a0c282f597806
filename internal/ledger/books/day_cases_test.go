package books

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// noon is the middle of the day that the tests read.
var noon = time.UnixMilli(1_700_000_000_000).UTC()

// day returns the lines and sums of campaign rain for the 24 hours around noon.
func (f *fixture) day(t *testing.T) (lines []Line, sums DaySums) {
	t.Helper()
	sums, err := f.books.Day(t.Context(), Day{"rain", noon.Add(-12 * time.Hour), noon.Add(12 * time.Hour)},
		func(l *Line) error {
			lines = append(lines, *l)
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, sums.Closing, sums.Opening+sums.Funded-sums.Granted-sums.Refunded)
	return lines, sums
}

// booked sets the time of the transfers that the test has just booked. Earlier calls have moved the other transfers
// before 2025.
func (f *fixture) booked(t *testing.T, at time.Time) {
	t.Helper()
	f.Tamper(t, db.Stmt{SQL: `UPDATE transfer SET created_at = $1 WHERE created_at > 1735689600000`,
		Args: []any{at.UnixMilli()}})
}

func kinds(lines []Line) (all []string) {
	for i := range lines {
		all = append(all, fmt.Sprint(lines[i].Kind, " ", lines[i].Packet, " ", lines[i].User, " ", lines[i].Amount))
	}
	return all
}

// Day returns the lines that were booked from the day's first to its last millisecond, in a fixed order.
func testDay(t *testing.T, f *fixture) {
	f.Create(t, "rain", 10)
	f.Create(t, "snow", 10)
	lines, sums := f.day(t)
	require.Empty(t, lines)
	require.Equal(t, DaySums{}, sums, "nothing is booked in the day yet")

	f.booked(t, noon.Add(-12*time.Hour)) // the funding, in the day's first millisecond
	f.Settle(t, append(ledgertest.Grants("rain", 3, 4), ledgertest.Grants("snow", 1, 2)...)...)
	f.Settle(t, ledgertest.Grants("rain", 1, 2)...)
	f.booked(t, noon)
	f.Settle(t, ledgertest.Grants("rain", 5, 5)...)
	f.Settle(t, ledgertest.SecondOf(1, "bea:1"))
	_, err := f.Ledger.Decide(t.Context(), ledger.Resolution{ID: f.Waiting(t)[0].ID, Pay: true, Decision: stream.Decision{By: "ann", Why: "dealt twice"}},
		f.Plan)
	require.NoError(t, err)
	f.booked(t, noon.Add(12*time.Hour-time.Millisecond))
	f.Settle(t, ledgertest.Grants("rain", 6, 6)...)
	f.booked(t, noon.Add(12*time.Hour)) // the next day
	f.Settle(t, ledgertest.Grants("rain", 7, 7)...)
	f.booked(t, noon.Add(-12*time.Hour-time.Millisecond)) // the day before

	lines, sums = f.day(t)
	user := func(packet int64) string { return ledgertest.Grant("rain", packet).User }
	require.Equal(t, []string{
		fmt.Sprint("funding 0  ", int64(ledgertest.FundedFor(10))),
		fmt.Sprint("grant 1 ", user(1), " ", int64(ledgertest.Planned(1))), fmt.Sprint("grant 2 ", user(2), " ", int64(ledgertest.Planned(2))),
		fmt.Sprint("grant 3 ", user(3), " ", int64(ledgertest.Planned(3))), fmt.Sprint("grant 4 ", user(4), " ", int64(ledgertest.Planned(4))),
		fmt.Sprint("grant 5 ", user(5), " ", int64(ledgertest.Planned(5))),
		fmt.Sprint("quarantine_payment 1 bea:1 ", int64(ledgertest.Planned(1))),
	}, kinds(lines))
	require.Equal(t, noon, lines[1].Booked)
	require.Equal(t, ledgertest.Grant("rain", 1).Time, lines[1].Granted)
	require.Equal(t, lines[1].Transfer, lines[2].Transfer, "both are of one batch")
	require.NotEqual(t, lines[1].Transfer, lines[3].Transfer)
	require.Equal(t, DaySums{Opening: -ledgertest.Planned(7), Funded: ledgertest.FundedFor(10), Granted: ledgertest.FundedFor(5), Grants: 5,
		Closing: ledgertest.FundedFor(10) - ledgertest.FundedFor(5) - ledgertest.Planned(7), Paid: ledgertest.Planned(1), Payments: 1}, sums)
}

// The refund has a line on its day, and the pool is empty afterwards.
func testDayRefund(t *testing.T, f *fixture) {
	f.Create(t, "rain", 10)
	f.Settle(t, ledgertest.Grants("rain", 1, 4)...)
	f.booked(t, noon.Add(-24*time.Hour))
	f.Refund(t, ledgertest.Close("rain", 10, 4))
	f.booked(t, noon)
	lines, sums := f.day(t)
	left := ledgertest.FundedFor(10) - ledgertest.FundedFor(4)
	require.Equal(t, []string{fmt.Sprint("refund 0  ", int64(left))}, kinds(lines))
	require.Equal(t, DaySums{Opening: left, Refunded: left}, sums)
}

// A campaign has more grants than a page: Day returns each once, in order.
func testDayPages(t *testing.T, f *fixture) {
	const packets = tables.PageRows + 500
	f.Create(t, "rain", packets)
	f.Settle(t, ledgertest.Grants("rain", 1, packets)...)
	f.booked(t, noon)
	lines, sums := f.day(t)
	require.EqualValues(t, packets, sums.Grants)
	require.Len(t, lines, packets+1)
	for i := range lines[1:] {
		require.EqualValues(t, i+1, lines[i+1].Packet)
	}
}

// Day returns a Broken error if the lines contradict the transfers or the pool's balance. If fn fails, Day returns the
// error of fn.
func testDayBroken(t *testing.T, f *fixture) {
	read := func(fn func(*Line) error) error {
		_, err := f.books.Day(t.Context(), Day{"rain", noon.Add(-time.Hour), noon.Add(time.Hour)}, fn)
		return err
	}
	ignore := func(*Line) error { return nil }
	err := read(ignore)
	require.ErrorIs(t, err, tables.ErrNoCampaign)
	f.Create(t, "rain", 10)
	f.Settle(t, ledgertest.Grants("rain", 1, 4)...)
	f.booked(t, noon)
	for _, sql := range []string{
		`UPDATE transfer SET amount = amount + $1 WHERE kind = 'grants'`,
		`UPDATE transfer SET grants = grants + $1 WHERE kind = 'grants'`,
		`UPDATE grants SET amount = amount + $1 WHERE packet = 2`,
		`UPDATE grants SET batch = batch + $1 WHERE packet = 2`, // the grant has no transfer with this batch
		`UPDATE account SET balance = balance + $1 WHERE id = 'pool:rain'`,
	} {
		f.Tamper(t, db.Stmt{SQL: sql, Args: []any{int64(1)}})
		err := read(ignore)
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%s: %v", sql, err)
		f.Tamper(t, db.Stmt{SQL: sql, Args: []any{int64(-1)}})
		require.NoError(t, read(ignore))
	}
	stop := errors.New("the disk is full")
	require.ErrorIs(t, read(func(*Line) error { return stop }), stop)
}

// Day counts the credits that are pending at a remote.
func testDayUnrecorded(t *testing.T, f *fixture) {
	f.Create(t, "rain", 10)
	f.booked(t, noon)
	_, _, err := f.Settler.Begin(t.Context(), payment.CreditCall{Owner: "w1", Batch: 1, OwnedFor: time.Hour}, testkit.Batch(ledgertest.Grants("rain", 1, 3)))
	require.NoError(t, err)
	_, sums := f.day(t)
	require.Zero(t, sums.Unrecorded, "the credits began after the day")
	f.Tamper(t, db.Stmt{SQL: `UPDATE pending SET since = $1 WHERE packet < 3`, Args: []any{noon.UnixMilli()}})
	_, sums = f.day(t)
	require.EqualValues(t, 2, sums.Unrecorded)
}
