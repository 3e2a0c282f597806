package pages

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
)

const (
	// A shape is read again after shapeAge, or after shapeRest times the duration of the last reading, whichever is
	// longer. Each reading scans every grant of the campaign in the ledger.
	shapeAge, shapeRest = 5 * time.Second, 20
	// shapeTime bounds one reading. It must be shorter than the time limit of a page.
	shapeTime = 3 * time.Second
	// spreadBins and timeSteps bound the number of drawn points. maxShapes bounds how many campaigns are cached.
	spreadBins, timeSteps, maxShapes = 20, 100, 100
	// shortestStep is the shortest step of a timeline.
	shortestStep = 100 // ms
)

// shape is the distribution of a campaign's paid grants over amounts and over time.
type shape struct {
	spread   []model.Bin
	timeline []model.Point
	step     time.Duration
	// first and last are the times of the first and the last grant; zero if there are no grants.
	first, last time.Time
	until       time.Time // normally the shape is not read again before this time
	grants      int64
	revealed    bool
	failed      error // error of the last reading: the shape is outdated or missing
}

// shapes caches the shapes of campaigns. It is safe for concurrent use.
type shapes struct {
	read func(context.Context, *ledger.Ledger, *ledger.StoredCampaign, bool) (shape, error) // readShape

	mu   sync.Mutex
	held map[string]shape
}

// of returns the shape of a campaign. It reads a shape again only if the campaign has new grants or was revealed. After
// a failed reading it waits as long as after a successful reading, because there may be too many grants to read in
// time.
func (s *shapes) of(ctx context.Context, l *ledger.Ledger, c *ledger.StoredCampaign) shape {
	s.mu.Lock()
	has, ok := s.held[c.Spec.ID]
	s.mu.Unlock()
	revealed, rests := !c.Revealed.IsZero(), time.Now().Before(has.until)
	if ok && has.failed != nil && rests {
		return has
	}
	if ok && has.failed == nil && (rests && has.grants > 0 || has.grants == c.Grants) && has.revealed == revealed {
		return has
	}
	start := time.Now()
	short, cancel := context.WithTimeout(ctx, shapeTime)
	defer cancel()
	now, err := s.read(short, l, c, revealed)
	if err != nil && short.Err() != nil {
		err = short.Err() // the driver may return another error for a timeout
	}
	if err != nil {
		now = has
	}
	now.failed = err
	if errors.Is(ctx.Err(), context.Canceled) { // the user left the page, so the error says nothing about the campaign
		return now
	}
	now.until = time.Now().Add(max(shapeAge, shapeRest*time.Since(start)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil || len(s.held) >= maxShapes {
		s.held = map[string]shape{}
	}
	s.held[c.Spec.ID] = now
	return now
}

// addShape adds the distribution of the paid grants to a page, or a note that says why it is missing.
func (s *Source) addShape(ctx context.Context, c *ledger.StoredCampaign, out *model.Live) {
	var drawn shape
	archive, archived, err := s.Books().Archived(ctx, c.Spec.ID)
	if !archived && err == nil {
		drawn = s.shapes.of(ctx, s.Ledger(), c)
		err = drawn.failed
	}
	switch {
	case archived:
		out.Undrawn = new(model.Say("Since %s the grants are in the archive %s, and not in the ledger: the archive "+
			"has their amounts and times.", archive.Archived.UTC().Format(time.DateOnly), archive.File))
	case errors.Is(err, context.DeadlineExceeded):
		out.Undrawn = new(model.Say("It is too large to draw now, or the ledger is too busy: the drawing is missing or old."))
	case err != nil:
		out.Undrawn = ledgerAway(err)
	}
	out.Spread, out.Timeline, out.Step, out.Moments = drawn.spread, drawn.timeline, drawn.step, drawn.moments(c)
	out.First, out.Last = drawn.first, drawn.last
}

// moments returns the events of the campaign's life in the ledger, in chronological order.
func (s *shape) moments(c *ledger.StoredCampaign) []model.Moment {
	last, lastAt := model.Say("Last grant"), s.last
	switch {
	case c.Grants == c.Packets:
		last = model.Say("The last packet is granted")
	case time.Now().Before(c.Spec.To): // more follow, and the shape may be old
		lastAt = time.Time{}
	}
	var list []model.Moment
	for _, m := range []model.Moment{{What: model.Say("Created"), At: c.Created}, {What: model.Say("The window opens"), At: c.Spec.From},
		{What: model.Say("First grant"), At: s.first}, {What: last, At: lastAt}, {What: model.Say("The window closes"), At: c.Spec.To},
		{What: model.Say("The plan is revealed"), At: c.Revealed}} {
		if !m.At.IsZero() {
			list = append(list, m)
		}
	}
	slices.SortStableFunc(list, func(a, b model.Moment) int { return a.At.Compare(b.At) })
	return list
}

func readShape(ctx context.Context, l *ledger.Ledger, c *ledger.StoredCampaign, revealed bool) (shape, error) {
	out := shape{grants: c.Grants, revealed: revealed}
	b, err := l.Bounds(ctx, c.Spec.ID)
	if err != nil || b.Grants == 0 && !revealed {
		return out, err
	}
	var plan []hongbao.Amount
	if revealed { // until the reveal no one may see the amounts of ungranted packets
		_, _, added, err := l.Plan(ctx, c.Spec.ID)
		if err != nil {
			return out, err
		}
		p, err := campaign.NewPlan(c.Spec, c.Seed, added...)
		if err != nil {
			return out, err
		}
		plan = p.Amounts
		if b.Grants == 0 {
			b.Low, b.High = plan[0], plan[0]
		}
		for _, a := range plan {
			b.Low, b.High = min(b.Low, a), max(b.High, a)
		}
	}
	width := int64(b.High-b.Low)/spreadBins + 1
	paid, err := l.Amounts(ctx, c.Spec.ID, b.Low, width)
	if err != nil {
		return out, err
	}
	out.spread = make([]model.Bin, int64(b.High-b.Low)/width+1)
	for i := range out.spread {
		low := b.Low + hongbao.Amount(int64(i)*width)
		out.spread[i] = model.Bin{Low: low, High: min(low+hongbao.Amount(width)-1, b.High)}
	}
	bin := func(amount int64) *model.Bin {
		return &out.spread[min(max((amount-int64(b.Low))/width, 0), int64(len(out.spread)-1))]
	}
	for _, s := range paid { // a grant that was paid after the bounds were read may be outside
		bin(s.From).Granted += s.Grants
	}
	for _, a := range plan {
		bin(int64(a)).Plan++
	}
	if b.Grants > 0 {
		out.first, out.last = time.UnixMilli(b.First), time.UnixMilli(b.Last)
	}
	step := max(shortestStep, (b.Last-b.First)/timeSteps+1)
	out.step = time.Duration(step) * time.Millisecond
	times, err := l.Times(ctx, c.Spec.ID, b.First, step)
	for _, t := range times {
		out.timeline = append(out.timeline, model.Point{At: time.UnixMilli(t.From), Grants: t.Grants})
	}
	return out, err
}
