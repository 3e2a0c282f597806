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
		{100_000, "CNY", "1000.00 CNY"}, {185, "CNY", "1.85 CNY"}, {5, "USD", "0.05 USD"}, {0, "EUR", "0.00 EUR"},
		{-5, "EUR", "-0.05 EUR"},
		{-1234, "EUR", "-12.34 EUR"}, {1000, "JPY", "1000 JPY"}, {-1, "VND", "-1 VND"}, {1500, "KWD", "1.500 KWD"},
		{7, "BHD", "0.007 BHD"},
		{3, "", "3"}, {hongbao.MaxAmount, "CNY", "90071992547409.91 CNY"},
	} {
		require.Equal(t, c.want, money.Text(c.amount, c.currency))
	}
}
