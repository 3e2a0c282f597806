package console

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/model"
)

// chart is a drawing of rates over time. Coordinates are in percent of the plot; paths are in a box of 1000 by 100.
type chart struct {
	// Whole says that the chart has the whole campaign by the ledger, not the last minutes.
	Whole         bool
	Granted, Area template.HTMLAttr
	Paid          template.HTMLAttr
	Gaps          []gap
	Bands         []band
	Ys            []gridLine // from the top
	Xs            []tick
	From, To      time.Time
	Top           float64
}

// gridLine is a line across the plot: a number, and its place from the top.
type gridLine struct {
	N  int64
	At string
}

// tick is a time on the axis.
type tick struct {
	X      string
	At     time.Time
	Anchor string
}

// gap is a time without readings.
type gap struct{ X, Width string }

// band is a time in which something disturbed the campaign.
type band struct {
	gap
	Class string // "bad" if users could not grab, or if payments waited
	What  model.Sentence
}

// mark adds the bands of spans.
func (c *chart) mark(spans []model.Span, now time.Time) {
	whole := c.To.Sub(c.From)
	if whole <= 0 {
		return
	}
	for i := range spans {
		from, to := spans[i].From, spans[i].Through(now)
		if !spans[i].Lasts() || !to.After(c.From) || !from.Before(c.To) {
			continue
		}
		x := func(t time.Time) float64 { return 100 * float64(t.Sub(c.From)) / float64(whole) }
		begin, end := max(0, x(from)), min(100, x(to))
		b := band{gap: gap{fmt.Sprintf("%.2f%%", begin), fmt.Sprintf("%.2f%%", end-begin)}, What: whatOf(&spans[i])}
		if k := spans[i].Kind; k == model.SpanRedisUnread || k == model.SpanLedgerUnread {
			b.Class = "bad"
		}
		c.Bands = append(c.Bands, b)
	}
}

// highest is how many times as high as the highest rate of grants the chart can be. A higher rate of payments is cut off.
const highest = 2

// chartOf draws rates. Where a number is missing, its line has a gap.
func chartOf(rates []rate) (c chart) {
	if len(rates) < 2 {
		return c
	}
	c.From, c.To = rates[0].At, rates[len(rates)-1].At
	span := c.To.Sub(c.From).Seconds()
	if span <= 0 {
		return chart{}
	}
	c.Top = topOf(rates)
	step := nice(c.Top / 5)
	c.Top = max(step, math.Ceil(c.Top/step)*step)
	for y := c.Top; y > -step/2; y -= step {
		c.Ys = append(c.Ys, gridLine{int64(math.Round(y)), fmt.Sprintf("%.2f%%", 100-100*y/c.Top)})
	}
	x := func(t time.Time) float64 { return 1000 * t.Sub(c.From).Seconds() / span }
	y := func(n float64) float64 { return 100 - 100*min(n/c.Top, 1) }
	granted, area := path(rates, func(r *rate) *float64 { return r.Granted }, x, y)
	paid, _ := path(rates, func(r *rate) *float64 { return r.Settled }, x, y)
	c.Granted, c.Area, c.Paid = attribute(granted), attribute(area), attribute(paid)
	c.Gaps = gaps(rates, x)
	for i := range 4 {
		t := c.From.Add(time.Duration(float64(i) / 3 * float64(c.To.Sub(c.From))))
		c.Xs = append(c.Xs, tick{fmt.Sprintf("%.2f%%", float64(i)/3*100), t, []string{"start", "middle", "middle", "end"}[i]})
	}
	return c
}

// topOf returns the highest rate that a chart shows.
func topOf(rates []rate) float64 {
	var granted, paid float64
	for i := range rates {
		if n := rates[i].Granted; n != nil {
			granted = max(granted, *n)
		}
		if n := rates[i].Settled; n != nil {
			paid = max(paid, *n)
		}
	}
	if granted > 0 { // after an outage, all that waited is paid at once: that must not make the grants a flat line
		paid = min(paid, highest*granted)
	}
	return max(granted, paid)
}

// attribute returns the attribute d of a path. It has only numbers and commands.
func attribute(d string) template.HTMLAttr {
	return template.HTMLAttr(`d="` + d + `"`) //nolint:gosec // it is made of numbers
}

// path returns the line of a number, and the area below it, one piece for each run of points that have the number.
func path(rates []rate, of func(*rate) *float64, x func(time.Time) float64, y func(float64) float64) (line, area string) {
	var l, a strings.Builder
	begun := -1.0
	last := 0.0
	end := func() {
		if begun >= 0 {
			fmt.Fprintf(&a, "L%.1f 100L%.1f 100Z", last, begun)
		}
		begun = -1
	}
	for i := range rates {
		n := of(&rates[i])
		if n == nil {
			end()
			continue
		}
		command := "L"
		last = x(rates[i].At)
		if begun < 0 {
			begun, command = last, "M"
		}
		fmt.Fprintf(&l, "%s%.1f %.2f", command, last, y(*n))
		fmt.Fprintf(&a, "%s%.1f %.2f", command, last, y(*n))
	}
	end()
	return l.String(), a.String()
}

// gaps returns the times without grants.
func gaps(rates []rate, x func(time.Time) float64) (list []gap) {
	for i := 0; i < len(rates); i++ {
		if rates[i].Granted != nil {
			continue
		}
		from := max(i-1, 0)
		for i+1 < len(rates) && rates[i+1].Granted == nil {
			i++
		}
		begin, end := x(rates[from].At), x(rates[min(i+1, len(rates)-1)].At)
		list = append(list, gap{fmt.Sprintf("%.2f%%", begin/10), fmt.Sprintf("%.2f%%", (end-begin)/10)})
	}
	return list
}

// nice returns a round number of at least n: 1, 2 or 5 with zeros.
func nice(n float64) float64 {
	if n <= 1 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(n)))
	for _, f := range []float64{1, 2, 5, 10} {
		if f*unit >= n {
			return f * unit
		}
	}
	return 10 * unit
}
