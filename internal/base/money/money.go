// Package money formats amounts of money for people.
package money

import (
	"fmt"
	"regexp"
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

// Text formats an amount for people, in units of its currency and with separators, such as "1,000.00 CNY" or "1,000
// JPY". Without a currency, as in a coupon campaign, the result is a plain count.
func Text(a hongbao.Amount, currency string) string {
	units, rest, fraction := strings.Cut(Number(a, currency), ".")
	text := separate(units)
	if fraction {
		text += "." + rest
	}
	if currency != "" {
		text += " " + currency
	}
	return text
}

// Count formats a number for people, such as "12,034".
func Count(n int64) string { return separate(strconv.FormatInt(n, 10)) }

// separate puts separators into a whole number.
func separate(digits string) string {
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// Number formats an amount for programs, in units of its currency, such as "1000.00" or "1000".
func Number(a hongbao.Amount, currency string) string {
	digits := 2
	switch {
	case currency == "", strings.Contains(whole, " "+currency+" "):
		return strconv.FormatInt(int64(a), 10)
	case strings.Contains(thousandth, " "+currency+" "):
		digits = 3
	}
	text := fmt.Sprintf("%0*d", digits+1, max(a, -a))
	if a < 0 {
		text = "-" + text
	}
	at := len(text) - digits
	return text[:at] + "." + text[at:]
}

// grouped matches a number with separators between groups of three digits.
var grouped = regexp.MustCompile(`^[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?$`)

// Ungrouped removes the separators of a number that a person wrote. Other commas stay, because not everybody reads 1,5
// alike.
func Ungrouped(text string) string {
	text = strings.TrimSpace(text)
	if grouped.MatchString(text) {
		return strings.ReplaceAll(text, ",", "")
	}
	return text
}

// Parse reads an amount that a person wrote, in units of its currency, with or without separators: the inverse of Number
// and Text.
func Parse(text, currency string) (hongbao.Amount, error) {
	digits := Ungrouped(text)
	minor := len(Number(0, currency)) - len("0.")
	units, rest, fraction := strings.Cut(digits, ".")
	n, err := strconv.ParseInt(units+rest+strings.Repeat("0", max(minor-len(rest), 0)), 10, 64)
	if err != nil || strings.ContainsAny(digits, "+-") || units+rest == "" || fraction && (rest == "" || len(rest) > minor) {
		return 0, fmt.Errorf("%.40q is not an amount in %s: write it as %s", text, currency, Number(1_234_500, currency))
	}
	return hongbao.Amount(n), nil
}
