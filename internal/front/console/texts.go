package console

import (
	"crypto/rand"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/model"
)

// functions are the functions that the templates of a language can call.
func (t *tongue) functions() template.FuncMap {
	return template.FuncMap{
		"t": t.say, "h": t.markup, "code": code, "link": link, "lang": func() string { return t.Tag },
		"money": t.money, "sums": t.sums, "sinkName": deliveryTo, "count": count, "ago": t.ago, "clock": t.clock, "at": t.at, "zone": t.zone, "rate": rounded, "now": time.Now, "clockOf": func(w when) string { return w.At.In(location(w.zone)).Format(time.TimeOnly) }, "icon": icon, "badge": badge, "len64": func(list []listed) int64 { return int64(len(list)) }, "phases": func(list []model.Campaign) []phaseGroup { return phasesOf(list, time.Now()) }, "lasts": t.lasts, "seconds": t.seconds,
		"state": t.state, "answer": t.answer, "reason": t.reason, "errorClass": t.errorClass, "split": t.split, "weekday": t.weekday, "limit": t.limit, "percent": percent, "bars": t.bars, "line": t.line, "class": stateClass,
		"action": t.action, "stepClass": stepClass, "stepLevel": stepLevel,
		"local": t.local, "report": reportText, "roles": rolesFor, "actionNamed": func(a string) access.Action { return access.Action(a) },
		"outcome": t.outcome, "outcomeClass": outcomeClass, "details": details,
		"sub": func(a, b int64) int64 { return a - b }, "inc": func(i int) int { return i + 1 }, "drawn": rand.Text,
	}
}

// count formats a number with commas between groups of three digits.
func count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// money formats an amount in units of its currency.
func (t *tongue) money(a hongbao.Amount, currency string) string {
	text := money.Text(a, currency)
	if yuan, ok := strings.CutSuffix(text, " CNY"); ok {
		return t.printer.Sprintf(sayYuan.Text, yuan)
	}
	return text
}

// sums formats sums of money, one for each currency.
func (t *tongue) sums(list model.Sums) string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = t.money(s.Amount, s.Currency)
	}
	return strings.Join(texts, ", ")
}

func (t *tongue) clock(at time.Time) string {
	if at.IsZero() {
		return t.printer.Sprintf(sayNever.Text)
	}
	return at.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

// when formats a time in the campaign's time zone, with its date unless that is the campaign's first day.
func (t *tongue) when(w when) string {
	if w.At.IsZero() {
		return t.printer.Sprintf(sayNever.Text)
	}
	zone, day := location(w.zone), "2006-01-02 "
	if t.Tag == "en" {
		day = "2 Jan 2006 "
	}
	local := w.At.In(zone)
	if local.Format(time.DateOnly) == w.day.In(zone).Format(time.DateOnly) {
		day = ""
	}
	return local.Format(day + time.TimeOnly)
}

// instant formats a time in a sentence.
func (t *tongue) instant(m model.Instant) string {
	if m.Short {
		return m.At.In(location(m.Zone)).Format(time.TimeOnly)
	}
	return t.when(when{At: m.At, zone: m.Zone})
}

// at is when for a page: UTC is its tooltip.
func (t *tongue) at(w when) template.HTML {
	utc := w.At.UTC()
	//nolint:gosec // it is made of numbers, and of words of the catalogue
	return template.HTML(`<time datetime="` + utc.Format(time.RFC3339) + `" title="` + utc.Format(time.DateTime) + ` UTC">` + t.when(w) +
		"</time>")
}

// local is clock for a page: where scripts run, console.js writes the reader's own time before it.
func (t *tongue) local(at time.Time) template.HTML {
	if at.IsZero() {
		return template.HTML(t.clock(at)) //nolint:gosec // it is a word of the catalogue
	}
	//nolint:gosec // it is made of numbers
	return template.HTML(`<time data-local datetime="` + at.UTC().Format(time.RFC3339) + `">` + t.clock(at) + "</time>")
}

// location returns a time zone; UTC if there is none of this name.
func location(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	return zone
}

// zone names a time zone for people.
func (t *tongue) zone(name string) string {
	switch name {
	case "":
		return "UTC"
	case "Asia/Shanghai":
		return t.printer.Sprintf(sayShanghai.Text)
	}
	return name
}

// rounded formats a rate: small ones with one decimal.
func rounded(n *float64) string {
	if n == nil {
		return ""
	}
	if *n > 0 && *n < 10 {
		return strconv.FormatFloat(*n, 'f', 1, 64)
	}
	return count(int64(math.Round(*n)))
}

// badge returns the CSS class for the state of a campaign at its name.
func badge(state string) string {
	switch state {
	case "open":
		return "rain"
	case "created", "loading", "paused", "frozen", "ended":
		return "wait"
	case "not_started":
		return "info"
	case model.Unread:
		return "bad"
	}
	return "calm"
}

// icons are the shapes of the levels of a judgement.
var icons = map[level]template.HTML{
	levelOK:   `<circle cx="8" cy="8" r="6.5"/><path d="m5.2 8.2 2 2 3.8-4.2"/>`,
	levelWait: `<path d="M8 2 1.500 13.500h13z"/><path d="M8 6.500v3.500m0 1.700v.1"/>`,
	levelBad:  `<circle cx="8" cy="8" r="6.5"/><path d="M8 4.500v4.500m0 2v.1"/>`,
	levelInfo: `<circle cx="8" cy="8" r="6.5"/><path d="M8 7.500v4m0-6.500v.1"/>`,
	levelCalm: `<circle cx="8" cy="8" r="6.5"/><path d="M5 8h6"/>`,
}

func icon(l level) template.HTML {
	return `<svg class="i" viewBox="0 0 16 16" aria-hidden="true">` + icons[l] + `</svg>`
}

// The parts of texts that functions put together.
var (
	sayYuan, sayNever, sayAgo = model.Say("%s CNY"), model.Say("never"), model.Say("%s ago")
	sayMillis, saySeconds     = model.Say("%d ms"), model.Say("%s s")
	sayMinutes, sayHours      = model.Say("%d min"), model.Say("%d h")
	sayDays                   = model.Say("%d d")
	sayShanghai               = model.Say("Asia/Shanghai")
	sayBar                    = model.Say("%s to %s: %s")
)

// lasts formats a duration for people, with its two largest units.
func (t *tongue) lasts(d time.Duration) string {
	two := func(large model.Sentence, of time.Duration, small model.Sentence, part time.Duration) string {
		text := t.printer.Sprintf(large.Text, int64(d/of))
		if rest := int64(d % of / part); rest > 0 && small.Text == saySeconds.Text {
			text += " " + t.printer.Sprintf(small.Text, strconv.FormatInt(rest, 10))
		} else if rest > 0 {
			text += " " + t.printer.Sprintf(small.Text, rest)
		}
		return text
	}
	switch {
	case d < 100*time.Millisecond:
		return t.printer.Sprintf(sayMillis.Text, d.Milliseconds())
	case d < 10*time.Second:
		return t.printer.Sprintf(saySeconds.Text, strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', -1, 64))
	case d < time.Minute:
		return t.printer.Sprintf(saySeconds.Text, strconv.FormatInt(int64(d/time.Second), 10))
	case d < time.Hour:
		return two(sayMinutes, time.Minute, saySeconds, time.Second)
	case d < 24*time.Hour:
		return two(sayHours, time.Hour, sayMinutes, time.Minute)
	}
	return two(sayDays, 24*time.Hour, sayHours, time.Hour)
}

func (t *tongue) ago(at time.Time) string {
	return t.printer.Sprintf(sayAgo.Text, t.lasts(time.Since(at)))
}

func (t *tongue) seconds(s float64) string { return t.lasts(time.Duration(s * float64(time.Second))) }

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
func (t *tongue) bars(bins []model.Bin, currency string, revealed bool) drawing {
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
	d.Low, d.High = t.money(bins[0].Low, currency), t.money(bins[len(bins)-1].High, currency)
	step := float64(width) / float64(len(bins))
	draw := func(i int, n int64, title string) bar {
		h := math.Round(float64(n) / float64(most) * height)
		return bar{math.Round(float64(i)*step + 1), height - h, math.Max(math.Round(step-2), 1), h, title}
	}
	for i, b := range bins {
		title := t.printer.Sprintf(sayBar.Text, t.money(b.Low, currency), t.money(b.High, currency), count(b.Granted))
		d.Bars = append(d.Bars, draw(i, b.Granted, title))
		if revealed {
			d.Plan = append(d.Plan, draw(i, b.Plan, title))
		}
	}
	return d
}

// line draws the number of grants over time.
func (t *tongue) line(points []model.Point, step time.Duration) drawing {
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
	d.Max, d.Low, d.High = count(most), t.clock(first), t.clock(last.Add(step))
	w := width / steps
	for _, p := range points {
		h := float64(p.Grants) / float64(most) * height
		d.Bars = append(d.Bars, bar{float64(p.At.Sub(first)/step) * w, height - h, math.Max(w-0.5, 0.5), h,
			t.clock(p.At) + ": " + count(p.Grants)})
	}
	return d
}
