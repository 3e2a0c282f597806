package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/money"
)

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

// bin counts the packets with amounts from Low to High.
type bin struct {
	Low     hongbao.Amount `json:"low"`
	High    hongbao.Amount `json:"high"`
	Packets int            `json:"packets"`
}

// histogram is the spread of amounts in at most ten bins of equal width.
func histogram(amounts []hongbao.Amount) []bin {
	if len(amounts) == 0 {
		return []bin{}
	}
	low, high := slices.Min(amounts), slices.Max(amounts)
	width := max((high-low)/10+1, 1)
	bins := make([]bin, (high-low)/width+1)
	for i := range bins {
		from := low + hongbao.Amount(i)*width
		bins[i] = bin{Low: from, High: min(from+width-1, high)}
	}
	for _, a := range amounts {
		bins[(a-low)/width].Packets++
	}
	return bins
}

func writeHistogram(w io.Writer, bins []bin, currency string) error {
	most := 0
	for _, b := range bins {
		most = max(most, b.Packets)
	}
	for _, b := range bins {
		bar := strings.Repeat("#", (b.Packets*40+most-1)/most)
		if _, err := fmt.Fprintf(w, "  %12s to %-12s %8d %s\n", money.Text(b.Low, currency), money.Text(b.High, currency),
			b.Packets, bar); err != nil {
			return fmt.Errorf("draw the histogram: %w", err)
		}
	}
	return nil
}
