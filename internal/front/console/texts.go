package console

import (
	"crypto/rand"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/model"
)

// texts are the functions that templates can call.
var texts = template.FuncMap{
	"money": money.Text, "count": count, "ago": ago, "clock": clock, "lasts": lasts, "seconds": seconds, "state": state,
	"percent": percent, "bars": bars, "line": line, "class": stateClass,
	"outcome": outcomeClass, "details": details,
	"sub": func(a, b int64) int64 { return a - b }, "drawn": rand.Text,
}

// count formats a number with commas between groups of three digits.
func count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

// lasts formats a duration for people.
func lasts(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	text := d.Round(time.Second).String()
	for _, unit := range []string{"m0s", "h0m"} { // 2m0s, but not 2m40s
		if strings.HasSuffix(text, unit) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func ago(t time.Time) string { return lasts(time.Since(t)) + " ago" }

func seconds(s float64) string { return lasts(time.Duration(s * float64(time.Second))) }

// states are the texts for the states of campaigns and sinks.
var states = map[string]string{
	"created": "Not loaded", "loading": "Loading", "not_started": "Not started", "open": "Open", "paused": "Paused",
	"ended": "Ended", "sold_out": "Sold out", "frozen": "Frozen", "missing": "Missing",
	model.Unread: "Not read",
	"working":    "Working", "no_worker": "No worker", "behind": "Behind", "down": "Down",
	"closed": "Closed", "refunded": "Refunded",
}

func state(s string) string {
	if text, ok := states[s]; ok {
		return text
	}
	return s
}

// stateClass returns the CSS class for a state. The page also shows the state as text.
func stateClass(s string) string {
	switch s {
	case "open", "working":
		return "good"
	case "paused", "loading", "created", "behind":
		return "warn"
	case "frozen", "missing", "no_worker", "down", model.Unread:
		return "bad"
	}
	return "calm"
}

func percent(part, whole int64) string {
	if whole == 0 {
		return "0"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64)
}

// The size of a drawing in its own units. A page scales the drawing.
const width, height, foot = 600, 160, 18

// bar is a bar of a drawing, in the drawing's units.
type bar struct {
	X, Y, W, H float64
	Title      string
}

// drawing is a bar chart. Plan has the outlines of further bars to compare with.
type drawing struct {
	Bars, Plan     []bar
	Low, High, Max string
	Width, Height  int
}

// bars draws the distribution of amounts.
func bars(bins []model.Bin, currency string, revealed bool) drawing {
	d := drawing{Width: width, Height: height + foot}
	if len(bins) == 0 {
		return d
	}
	most := int64(1)
	for _, b := range bins {
		most = max(most, b.Granted)
		if revealed {
			most = max(most, b.Plan)
		}
	}
	d.Max = count(most)
	d.Low, d.High = money.Text(bins[0].Low, currency), money.Text(bins[len(bins)-1].High, currency)
	step := float64(width) / float64(len(bins))
	draw := func(i int, n int64, title string) bar {
		h := math.Round(float64(n) / float64(most) * height)
		return bar{math.Round(float64(i)*step + 1), height - h, math.Max(math.Round(step-2), 1), h, title}
	}
	for i, b := range bins {
		title := fmt.Sprintf("%s to %s: %s", money.Text(b.Low, currency), money.Text(b.High, currency), count(b.Granted))
		d.Bars = append(d.Bars, draw(i, b.Granted, title))
		if revealed {
			d.Plan = append(d.Plan, draw(i, b.Plan, title))
		}
	}
	return d
}

// line draws the number of grants over time.
func line(points []model.Point, step time.Duration) drawing {
	d := drawing{Width: width, Height: height + foot}
	if len(points) == 0 || step <= 0 {
		return d
	}
	first, last := points[0].At, points[len(points)-1].At
	steps := float64(last.Sub(first)/step) + 1
	most := int64(1)
	for _, p := range points {
		most = max(most, p.Grants)
	}
	d.Max, d.Low, d.High = count(most), clock(first), clock(last.Add(step))
	w := width / steps
	for _, p := range points {
		h := float64(p.Grants) / float64(most) * height
		d.Bars = append(d.Bars, bar{float64(p.At.Sub(first)/step) * w, height - h, math.Max(w-0.5, 0.5), h,
			clock(p.At) + ": " + count(p.Grants)})
	}
	return d
}
