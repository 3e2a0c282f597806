package money_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
)

func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		amount   hongbao.Amount
		currency string
		want     string
	}{
		{100_000, "CNY", "1,000.00 CNY"}, {185, "CNY", "1.85 CNY"}, {5, "USD", "0.05 USD"}, {0, "EUR", "0.00 EUR"},
		{-5, "EUR", "-0.05 EUR"},
		{-1234, "EUR", "-12.34 EUR"}, {1000, "JPY", "1,000 JPY"}, {-1, "VND", "-1 VND"}, {1500, "KWD", "1.500 KWD"},
		{7, "BHD", "0.007 BHD"},
		{3, "", "3"}, {hongbao.MaxAmount, "CNY", "90,071,992,547,409.91 CNY"}, {-123_456, "", "-123,456"},
	} {
		require.Equal(t, c.want, money.Text(c.amount, c.currency))
	}
}

// A file for programs has no separators and no currency beside the number.
func TestNumber(t *testing.T) {
	t.Parallel()
	for want, currency := range map[string]string{"-1234567.89": "CNY", "-123456789": "JPY", "-123456.789": "KWD"} {
		require.Equal(t, want, money.Number(-123_456_789, currency))
	}
	require.Equal(t, "7", money.Number(7, ""))
}

func TestCount(t *testing.T) {
	t.Parallel()
	for want, n := range map[string]int64{"0": 0, "999": 999, "1,000": 1000, "-12,034": -12_034, "-123": -123, "1,234,567": 1_234_567} {
		require.Equal(t, want, money.Count(n))
	}
}
