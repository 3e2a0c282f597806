package audit_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/store"
)

func TestAmountsAreInTheCurrencysUnits(t *testing.T) {
	t.Parallel()
	r := model.AuditReport{Campaigns: []model.CampaignReport{
		{Campaign: "rain", Currency: "CNY", InRedis: true, Counts: model.Counts{Funded: 100_000, GrantedAmount: 185}},
		{Campaign: "snow", Currency: "CNY", InRedis: true, Counts: model.Counts{Funded: 5}},
		{Campaign: "sakura", Currency: "JPY", InRedis: true, Counts: model.Counts{Funded: 700}},
		{Campaign: "coupons", InRedis: true, Counts: model.Counts{Packets: 3}},
	}}
	var b strings.Builder
	require.NoError(t, r.Write(&b))
	text := regexp.MustCompile(" +").ReplaceAllString(b.String(), " ")
	for _, row := range []string{
		"rain 1,000.00 CNY 1.85 CNY 0.00 CNY |", "snow 0.05 CNY 0.00 CNY", "sakura 700 JPY 0 JPY",
		"coupons 0 0 0 | 0 0 0 | 3 0 0 0 0",
		"total 0 0 0 | 0 0 0 | 3 0 0 0 0", "total 1,000.05 CNY 1.85 CNY", "total 700 JPY 0 JPY",
	} {
		require.Contains(t, text, "\n "+row)
	}
}

// A campaign in the report has the ledger's currency; without a ledger it has the currency in Redis.
func TestReportHasTheCurrency(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.ledger.spoil = func(c *books.Totals) { c.Currency = "EUR" }
	require.Equal(t, "EUR", w.audit(t, audit.Options{}).Campaigns[0].Currency)
	w.cfg.Ledger = nil
	require.Equal(t, "CNY", w.audit(t, audit.Options{}).Campaigns[0].Currency)
}

// The report names a campaign that is still being loaded, because its stock is not compared with its plan yet.
func TestReportNamesACampaignThatIsBeingLoaded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	do(t, w.rdb.HSet(t.Context(), w.keys("a").Keys.Campaign("a"), "state", store.StateLoading))
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.Equal(t, []bool{true, false}, []bool{r.Campaigns[0].Loading, r.Campaigns[1].Loading})
	var text strings.Builder
	require.NoError(t, r.Write(&text))
	require.Contains(t, text.String(), "Campaign a is still being loaded: its stock is not compared with its plan yet.")
	require.Contains(t, text.String(), "a (still loading)")
}

// Counts have separators. A table that is wider than the terminal becomes one table for each part, and no line of them is
// too long.
func TestReportFitsATerminal(t *testing.T) {
	t.Parallel()
	r := model.AuditReport{Quiet: true, Campaigns: []model.CampaignReport{{Campaign: "spring-rain", Currency: "CNY", InRedis: true,
		Counts: model.Counts{Packets: 50_000, Granted: 49_000, Left: 1_000, Settled: 49_000, Published: 48_999, Funded: 50_000_000,
			GrantedAmount: 49_000_000, LeftAmount: 1_000_000, SettledAmount: 49_000_000, Open: 1_000_000}}},
		Total: model.Counts{InFlight: 1_234, Unsettled: 0, Unpublished: 1_234}}
	const wide = `     campaign          funded         granted           left  |         settled  refunded           open  |  packets  granted   left  settled  published
  spring-rain  500,000.00 CNY  490,000.00 CNY  10,000.00 CNY  |  490,000.00 CNY  0.00 CNY  10,000.00 CNY  |   50,000   49,000  1,000   49,000     48,999
        total  500,000.00 CNY  490,000.00 CNY  10,000.00 CNY  |  490,000.00 CNY  0.00 CNY  10,000.00 CNY  |   50,000   49,000  1,000   49,000     48,999
`
	text := func(width int) string {
		var b strings.Builder
		require.NoError(t, r.WriteWithin(&b, width))
		return b.String()
	}
	require.Contains(t, text(0), "1,234 grants in flight, not judged (0 to the ledger, 1,234 to the topic).\n")
	require.Contains(t, text(0), "\n"+wide)
	require.Equal(t, text(0), text(200))
	_, tables, _ := strings.Cut(text(80), "\n\n")
	require.Equal(t, `     campaign          funded         granted           left
  spring-rain  500,000.00 CNY  490,000.00 CNY  10,000.00 CNY
        total  500,000.00 CNY  490,000.00 CNY  10,000.00 CNY

     campaign         settled  refunded           open
  spring-rain  490,000.00 CNY  0.00 CNY  10,000.00 CNY
        total  490,000.00 CNY  0.00 CNY  10,000.00 CNY

     campaign  packets  granted   left  settled  published
  spring-rain   50,000   49,000  1,000   49,000     48,999
        total   50,000   49,000  1,000   49,000     48,999
`, tables)
}
