package audit_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger"
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
	w.ledger.spoil = func(c *ledger.Totals) { c.Currency = "EUR" }
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
