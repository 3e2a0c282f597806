package console

import (
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// watched is a campaign with the states of the sinks, read at one time.
type watched struct {
	*model.Live
	sinks []deliveries.SinkStatus // nil if they could not be read
	audit *model.AuditReport      // of the last audit; nil if no server has it
	read  time.Time
}

// campaignView is the data of a campaign's page.
type campaignView struct {
	Audited
	Money     bool // whether the page shows amounts
	Judgement judgement
	Chart     chart
	// Now and Peak are grants a second; nil if they are not known. PeakOver is how long the peak is an average of.
	Now, Peak *float64
	Asked     *float64 // answers a second
	PeakAt    time.Time
	PeakOver  time.Duration
	// SellsOut is how long the packets last at the rate of the last ten seconds, and SoldAfter how long they lasted; 0 if
	// that is not known.
	SellsOut, SoldAfter time.Duration
	// Seen is the last sample with grants while they can't be read.
	Seen *model.Sample
	Flow []flowBar
	Life []lifeStep
	Log  []logLine
	Read time.Time
}

// HasWaiting reports whether grants are on their way.
func (v *campaignView) HasWaiting() bool {
	return slices.ContainsFunc(v.Flow, func(b flowBar) bool { return b.Waits > 0 })
}

// At returns a time of the campaign for a page.
func (v *campaignView) At(t time.Time) when { return when{t, v.TimeZone, v.From} }

// viewCampaign makes the page of a campaign. The rates are those of the last minutes.
func viewCampaign(w *watched, audited Audited, rates []rate, every time.Duration, now time.Time) *campaignView {
	v := &campaignView{Audited: audited, Money: true, Read: w.read}
	if !v.Known() {
		v.Seen = lastSeen(w.Samples)
	}
	differs := -1
	if audited.Listed {
		differs = len(audited.Differences)
	}
	v.Judgement = judge(&facts{Live: w.Live, now: now, read: w.read, every: every, sinks: w.sinks, differs: differs, seen: v.Seen})
	if n := len(rates); n > 0 {
		v.Now, v.Asked = rates[n-1].Granted, rates[n-1].Answered
	}
	whole := ratesOfTimeline(v.Timeline, v.Step)
	v.peak(rates, whole)
	if v.Status == "open" && v.InRedis && !v.Full && v.Now != nil && *v.Now > 0 {
		v.SellsOut = sellsOut(rates, v.Left)
	}
	if !v.LedgerUnread && v.Over() && v.Settled == v.Dealt && !v.Last.IsZero() {
		v.SoldAfter = v.Last.Sub(v.From)
	}
	if v.Runs(now) || len(v.Timeline) == 0 {
		v.Chart = chartOf(rates)
	} else {
		v.Chart = chartOf(whole)
		v.Chart.Whole = true
	}
	v.Chart.mark(v.Spans, now)
	v.Flow, v.Life, v.Log = flowOf(w), lifeOf(w.Live, now), logOf(w.Live, now)
	return v
}

// logLine is a line of what happened to a campaign. Span is nil for what nobody did and nothing disturbed.
type logLine struct {
	At   time.Time
	What model.Sentence
	Span *model.Span
}

// logSpans is the maximum number of spans in the log: the newest.
const logSpans = 50

// logOf returns the past events of a campaign, and what changed or disturbed it, in chronological order.
func logOf(c *model.Live, now time.Time) (list []logLine) {
	for _, m := range c.Moments {
		if !m.At.After(now) {
			list = append(list, logLine{At: m.At, What: m.What})
		}
	}
	for i := max(0, len(c.Spans)-logSpans); i < len(c.Spans); i++ {
		if s := &c.Spans[i]; s.Kind != model.SpanReveal { // a moment says it
			list = append(list, logLine{s.From, whatOf(s), s})
		}
	}
	slices.SortStableFunc(list, func(a, b logLine) int { return a.At.Compare(b.At) })
	return list
}

// whatOf says what happened in a span.
func whatOf(s *model.Span) model.Sentence {
	if s.Kind == model.SpanSinkDown {
		return model.Say("%s: interrupted", deliveryTo(string(s.Sink)))
	}
	return happenings[s.Kind]
}

// happenings has what happened in the spans of each kind but a sink's.
var happenings = map[model.SpanKind]model.Sentence{
	model.SpanLoad: model.Say("Loaded"), model.SpanTopUp: model.Say("Packets added"), model.SpanPaused: model.Say("Paused"),
	model.SpanClose: model.Say("Closed"), model.SpanCancel: model.Say("Cancelled"), model.SpanRefund: model.Say("Refunded"),
	model.SpanReveal: model.Say("The plan is revealed"), model.SpanFrozen: model.Say("Frozen: grabs were refused"),
	model.SpanRedisUnread:  model.Say("Redis could not be read"),
	model.SpanLedgerUnread: model.Say("The ledger could not be read"),
}

// lastSeen returns the last sample with grants, or nil.
func lastSeen(samples []model.Sample) *model.Sample {
	for i := len(samples) - 1; i >= 0; i-- {
		if samples[i].Granted != nil {
			return &samples[i]
		}
	}
	return nil
}

// peak finds the highest rate: of the whole campaign by the ledger, or of the last minutes.
func (v *campaignView) peak(rates, whole []rate) {
	all, over := rates, time.Second
	if len(whole) > 0 && v.Settled >= v.Granted {
		all, over = whole, max(v.Step, time.Second)
	}
	for i := range all {
		if g := all[i].Granted; g != nil && *g > 0 && (v.Peak == nil || *g > *v.Peak) {
			v.Peak, v.PeakAt, v.PeakOver = g, all[i].At, over
		}
	}
}

// sellsOut returns how long the packets last at the rate of the last ten seconds, or 0.
func sellsOut(rates []rate, left int64) time.Duration {
	const last = 10
	var sum float64
	n := 0
	for _, r := range rates[max(0, len(rates)-last):] {
		if r.Granted == nil {
			return 0
		}
		sum += *r.Granted
		n++
	}
	if sum <= 0 {
		return 0
	}
	return time.Duration(float64(left) / (sum / float64(n)) * float64(time.Second)).Round(time.Second)
}

// ratesOfTimeline returns the paid grants a second by the time of their grab, for each second or each step, whichever is
// longer.
func ratesOfTimeline(points []model.Point, step time.Duration) []rate {
	if len(points) == 0 || step <= 0 {
		return nil
	}
	wide := max(step, time.Second)
	first, last := points[0].At, points[len(points)-1].At.Add(step)
	sums := make([]float64, int(last.Sub(first)/wide)+1)
	for _, p := range points {
		sums[int(p.At.Sub(first)/wide)] += float64(p.Grants)
	}
	out := make([]rate, 0, len(sums)+1)
	for i, n := range sums {
		out = append(out, rate{At: first.Add(time.Duration(i) * wide), Granted: new(n / wide.Seconds())})
	}
	return out
}

// flowBar is how many grants have reached a place, on the scale of all packets.
type flowBar struct {
	Name   model.Sentence
	Class  string
	N      int64
	Share  float64 // of all packets, in percent
	Waits  int64   // on the way; without dead letters
	Oldest time.Duration
	Unread bool
}

// flowOf follows the grants from the win to each sink.
func flowOf(w *watched) []flowBar {
	share := func(n int64) float64 { return 100 * float64(n) / float64(max(w.Dealt, 1)) }
	known := w.Known()
	granted := flowBar{Name: model.Say("Granted"), Class: "granted", N: w.Granted, Share: share(w.Granted), Unread: !known}
	ledger := flowBar{Name: model.Say("Paid"), Class: "paid", N: w.Settled, Share: share(w.Settled), Unread: w.LedgerUnread}
	if w.Currency == "" {
		ledger.Name = model.Say("In the ledger")
	}
	list := []flowBar{granted, ledger}
	for _, lag := range w.Lags {
		if lag.Sink == configs.SinkBalance {
			list[1].Oldest = lag.Oldest
			if list[1].Waits = w.Unpaid(); !known || w.LedgerUnread {
				list[1].Waits = lag.Grants
			}
			continue
		}
		done := w.FinishedBy(lag.Sink)
		bar := flowBar{Name: deliveryTo(lag.Sink), Class: "announced", N: done.Done, Share: share(done.Done),
			Waits: w.Waiting(lag), Oldest: lag.Oldest, Unread: !known}
		if lag.Sink == configs.SinkKafka {
			bar.Name = model.Say("Announced in Kafka")
		}
		list = append(list, bar)
	}
	return list
}

// lifeStep is a step of a campaign's life.
type lifeStep struct {
	Name          model.Sentence
	Done, Current bool
	At            time.Time // zero if it is not known, or not yet
}

// lifeOf returns the steps of a campaign's life.
func lifeOf(c *model.Live, now time.Time) []lifeStep {
	at := map[string]int{"created": 1, "loading": 1, "not_started": 2, "open": 2, "paused": 2, "frozen": 2, "sold_out": 3, "ended": 3,
		"closed": 4, "refunded": 5}[c.Status]
	switch {
	case c.Status == "refunded" && c.Revealed:
		at = 6
	case c.Status == model.Unread && !now.Before(c.To):
		at = 3
	case c.Status == model.Unread:
		at = 2
	}
	steps := []lifeStep{{Name: model.Say("Create"), At: c.Created}, {Name: model.Say("Load"), At: c.Loading}, {Name: model.Say("Rain"), At: c.From},
		{Name: model.Say("Close")}, {Name: model.Say("Refund")}, {Name: model.Say("Reveal the seed")}}
	for i := range steps {
		steps[i].Done, steps[i].Current = i < at, i == at
	}
	return steps
}
