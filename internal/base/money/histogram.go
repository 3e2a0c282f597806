package money

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// Bin counts the packets with amounts from Low to High, both included.
type Bin struct {
	Low     hongbao.Amount `json:"low"`
	High    hongbao.Amount `json:"high"`
	Packets int            `json:"packets"`
}

// Histogram returns the distribution of amounts in at most ten bins of equal width.
func Histogram(amounts []hongbao.Amount) []Bin {
	if len(amounts) == 0 {
		return []Bin{}
	}
	low, high := slices.Min(amounts), slices.Max(amounts)
	width := max((high-low)/10+1, 1)
	bins := make([]Bin, (high-low)/width+1)
	for i := range bins {
		from := low + hongbao.Amount(i)*width
		bins[i] = Bin{Low: from, High: min(from+width-1, high)}
	}
	for _, a := range amounts {
		bins[(a-low)/width].Packets++
	}
	return bins
}

// WriteHistogram writes bins as a text histogram, one bar for each bin.
func WriteHistogram(w io.Writer, bins []Bin, currency string) error {
	most := 0
	for _, b := range bins {
		most = max(most, b.Packets)
	}
	for _, b := range bins {
		bar := strings.Repeat("#", (b.Packets*40+most-1)/most)
		if _, err := fmt.Fprintf(w, "  %12s to %-12s %8d %s\n", Text(b.Low, currency), Text(b.High, currency),
			b.Packets, bar); err != nil {
			return fmt.Errorf("draw the histogram: %w", err)
		}
	}
	return nil
}
