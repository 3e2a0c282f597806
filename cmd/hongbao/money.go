package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// money writes an amount for a person: "1000.00 CNY". Currencies without minor units, or with three digits of them, are
// written in minor units, so that no table of currencies can be wrong by a factor.
func money(a hongbao.Amount, currency string) string {
	switch currency {
	case "":
		return strconv.FormatInt(int64(a), 10)
	case "CNY", "EUR", "USD", "GBP", "HKD", "SGD", "TWD", "MYR", "AUD", "CAD", "CHF", "INR", "BRL":
		sign := ""
		if a < 0 {
			sign, a = "-", -a
		}
		return fmt.Sprintf("%s%d.%02d %s", sign, a/100, a%100, currency)
	}
	return fmt.Sprintf("%d minor units of %s", a, currency)
}

// amountFlag is a flag's amount in minor units.
type amountFlag hongbao.Amount

// Set implements pflag.Value.
func (a *amountFlag) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > int64(hongbao.MaxAmount) {
		return fmt.Errorf("want a whole number of minor units from 0 to %d: 12.50 is 1250", hongbao.MaxAmount)
	}
	*a = amountFlag(n)
	return nil
}

// String implements pflag.Value.
func (a *amountFlag) String() string { return strconv.FormatInt(int64(*a), 10) }

// Type implements pflag.Value.
func (a *amountFlag) Type() string { return "int" }

// histogram draws the spread of amounts in at most ten rows of equal width.
func histogram(w io.Writer, amounts []hongbao.Amount, currency string) error {
	if len(amounts) == 0 {
		return nil
	}
	low, high := slices.Min(amounts), slices.Max(amounts)
	width := max((high-low)/10+1, 1)
	counts := make([]int, (high-low)/width+1)
	for _, a := range amounts {
		counts[(a-low)/width]++
	}
	most := slices.Max(counts)
	for i, n := range counts {
		from := low + hongbao.Amount(i)*width
		to := min(from+width-1, high)
		bar := strings.Repeat("#", (n*40+most-1)/most)
		if _, err := fmt.Fprintf(w, "  %12s to %-12s %8d %s\n", money(from, currency), money(to, currency), n, bar); err != nil {
			return fmt.Errorf("draw the histogram: %w", err)
		}
	}
	return nil
}
