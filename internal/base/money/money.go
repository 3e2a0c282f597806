// Package money writes amounts for a person to read.
package money

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// The currencies of ISO 4217 whose minor unit is not a hundredth.
const (
	whole      = " BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF "
	thousandth = " BHD IQD JOD KWD LYD OMR TND "
)

// Text returns an amount in its currency's units, such as "1000.00 CNY" or "1000 JPY". Without a currency, as in a
// coupon's campaign, it is a plain number.
func Text(a hongbao.Amount, currency string) string {
	if currency == "" {
		return strconv.FormatInt(int64(a), 10)
	}
	digits := 2
	switch {
	case strings.Contains(whole, " "+currency+" "):
		digits = 0
	case strings.Contains(thousandth, " "+currency+" "):
		digits = 3
	}
	if digits == 0 {
		return fmt.Sprintf("%d %s", a, currency)
	}
	text := fmt.Sprintf("%0*d", digits+1, max(a, -a))
	if a < 0 {
		text = "-" + text
	}
	at := len(text) - digits
	return text[:at] + "." + text[at:] + " " + currency
}
