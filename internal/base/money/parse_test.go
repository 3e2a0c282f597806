package money_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
)

// An amount is read as it is written, in units of its currency.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, currency string
		want           hongbao.Amount
	}{{"1,234.50", "CNY", 123_450}, {" 7 ", "CNY", 700}, {"0.5", "CNY", 50}, {"1,000", "JPY", 1000}, {"1.005", "KWD", 1005}, {"12", "", 12}} {
		got, err := money.Parse(c.text, c.currency)
		require.NoError(t, err, c.text)
		require.Equal(t, c.want, got, c.text)
		again, err := money.Parse(money.Number(got, c.currency), c.currency)
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for _, c := range [][2]string{{"", "CNY"}, {"-1", "CNY"}, {"1.005", "CNY"}, {"1.", "CNY"}, {"1.5", "JPY"}, {"x", "CNY"},
		{"99999999999999999999", "CNY"}, {"1.2.3", "CNY"}, {".", "CNY"},
		{"1,5", "CNY"}, {"1,50", "CNY"}, {"1.234,50", "CNY"}, {"1,2345", "CNY"}, {",100", "CNY"}, {"1,,000", "CNY"}, {"100,", "CNY"},
		{"+1", "CNY"}} {
		_, err := money.Parse(c[0], c[1])
		require.Error(t, err, c[0])
	}
}
