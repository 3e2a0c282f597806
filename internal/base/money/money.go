// Package money formats amounts of money for people.
package money

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// The ISO 4217 currencies that have no minor unit, and those whose minor unit is a thousandth. All others have
// hundredths.
const (
	whole      = " BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF "
	thousandth = " BHD IQD JOD KWD LYD OMR TND "
)

// Text formats an amount in units of its currency, such as "1000.00 CNY" or "1000 JPY". Without a currency, as in a
// coupon campaign, the result is the plain number.
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
