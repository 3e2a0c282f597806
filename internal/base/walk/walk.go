package walk

import (
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Verdict says how a grab continues after an answer.
type Verdict int

// The verdicts. Told: the answer is the grab's. Undecided: ask the same place again. Onward: ask what Ask returns next.
const (
	Told Verdict = iota
	Undecided
	Onward
)

// Walk is the path of one grab. Call Begin before use; the next grab reuses its memory.
type Walk struct {
	course        *Course
	user, request string
	generation    int64
	at            int  // index of the place in the user's order
	asked         bool // a script has answered: a generation unknown to it was not dealt then
	script        bool // receipts are not enough at the present place

	order   []uint8 // empty until the user leaves their first place
	held    []held
	looked  int // places whose receipts were read after a refusal
	refused int // the place that refused
	refusal *hongbao.Answer
}

// held are the times of a user's packets on a place when the walk left it.
type held struct {
	place int
	times []time.Time
}

// Begin starts at the user's first place.
func (w *Walk) Begin(course *Course, user, request string) {
	*w = Walk{
		course: course, user: user, request: request, generation: 1,
		order: w.order[:0], held: w.held[:0],
	}
}

// Renew makes the walk ask the script of its first place, even if that place is remembered as empty: the answer renews
// the memory.
func (w *Walk) Renew() { w.script = true }

// Ask is the next question of a walk.
type Ask struct {
	Place      int
	Generation int64
	// Receipts asks only for the user's receipts on the place, not for its packets.
	Receipts bool
}

// Ask returns the next question. It asks only for receipts if m remembers the place as empty; m may be nil.
func (w *Walk) Ask(m *Memory, now time.Time) Ask {
	if w.refusal != nil {
		return Ask{Place: w.place(w.looked), Receipts: true}
	}
	p := w.place(w.at)
	return Ask{
		Place: p, Generation: w.generation,
		Receipts: m != nil && !w.script && m.Empty(p, w.generation, now),
	}
}

// Place returns the present place of the walk.
func (w *Walk) Place() int { return w.Ask(nil, time.Time{}).Place }

// Held returns the times of the user's packets on other places, as each reported when the walk left it.
func (w *Walk) Held() []time.Time {
	var times []time.Time
	for _, h := range w.held {
		if h.place != w.place(w.at) {
			times = append(times, h.times...)
		}
	}
	return times
}

func (w *Walk) place(at int) int {
	if len(w.order) > 0 {
		return int(w.order[at])
	}
	return w.course.home(w.user) // no walk has continued without an order
}

// Decided processes the answer of the place's script; Emptied has updated m before that. Decided may change the answer,
// which is the grab's if the verdict is Told.
func (w *Walk) Decided(m *Memory, now time.Time, a *hongbao.Answer) Verdict {
	w.script = false
	switch a.Outcome {
	case hongbao.OutcomeGranted:
		return Told
	case hongbao.OutcomeSoldOut:
		w.asked = true
		w.hold(a.Receipts)
		a.Receipts = nil
		return w.pass(m, now, a)
	case hongbao.OutcomeAlreadyGranted:
		if w.course.hold == 1 && len(a.Receipts) > 0 {
			return Told
		}
		return w.refuse(a)
	case hongbao.OutcomeLimitReached, hongbao.OutcomePaused, hongbao.OutcomeEnded:
		return w.refuse(a)
	case hongbao.OutcomeNotStarted:
		if w.begun() { // other places are open: this one's clock is slow, or it is not loaded yet
			a.Outcome, a.Starts = hongbao.OutcomeRefilling, time.Time{}
			return Undecided
		}
		return Told
	case hongbao.OutcomeUnknownCampaign:
		if w.begun() || w.place(w.at) > 0 { // only the home can say that a campaign does not exist
			a.Outcome = hongbao.OutcomeFrozen
			return Undecided
		}
		return Told
	case hongbao.OutcomeBusy, hongbao.OutcomeFrozen, hongbao.OutcomeRefilling:
		return Undecided
	}
	return Told
}

// begun reports whether the walk has left the user's first place.
func (w *Walk) begun() bool { return w.at > 0 || w.generation > 1 }

// hold notes the times of the user's packets on the present place.
func (w *Walk) hold(receipts []hongbao.Receipt) {
	if len(receipts) == 0 {
		return // an earlier visit found none either: receipts do not disappear
	}
	h := held{place: w.place(w.at), times: make([]time.Time, len(receipts))}
	for i := range receipts {
		h.times[i] = receipts[i].Time
	}
	w.held = slices.DeleteFunc(w.held, func(o held) bool { return o.place == h.place })
	w.held = append(w.held, h)
}

// pass leaves an empty place. After the last place of the newest generation nothing is left, if that generation is
// certainly the newest.
func (w *Walk) pass(m *Memory, now time.Time, a *hongbao.Answer) Verdict {
	last := w.at == w.course.places-1
	if last && w.generation >= m.newest {
		if w.asked || m.Current(now) {
			*a = hongbao.Answer{Outcome: hongbao.OutcomeSoldOut, Time: a.Time}
			return Told
		}
		w.script = true // ask this place once more, so that it reports a newer generation
		return Onward
	}
	w.lay()
	if w.at++; last {
		w.at = 0
		w.generation++
	}
	return Onward
}

// lay draws the user's order.
func (w *Walk) lay() {
	if len(w.order) == 0 {
		w.order = w.course.order(w.order, w.user)
	}
}

// refuse begins to look for receipts on the other places: a refusal must not hide one.
func (w *Walk) refuse(a *hongbao.Answer) Verdict {
	if w.course.places == 1 {
		return Told
	}
	w.lay()
	refusal := *a
	w.refusal, w.refused, w.looked = &refusal, w.at, -1
	return w.next(a)
}

// next goes to the next place whose receipts were not read; after the last one the refusal is the answer.
func (w *Walk) next(a *hongbao.Answer) Verdict {
	if w.looked++; w.looked == w.refused {
		w.looked++
	}
	if w.looked < w.course.places {
		return Onward
	}
	*a = *w.refusal
	if a.Outcome == hongbao.OutcomeLimitReached {
		a.Receipts = nil
	} else if len(a.Receipts) > 0 {
		a.Outcome = hongbao.OutcomeAlreadyGranted
		slices.SortFunc(a.Receipts, func(x, y hongbao.Receipt) int { return x.Time.Compare(y.Time) })
	}
	return Told
}

// Read processes the user's receipts on the place, if Ask asked only for them. a has the receipts and no outcome; it
// becomes the grab's answer if the verdict is Told.
func (w *Walk) Read(m *Memory, now time.Time, a *hongbao.Answer) Verdict {
	if a.Outcome == hongbao.OutcomeFrozen {
		return Undecided
	}
	receipts := a.Receipts
	a.Receipts = nil
	for i := range receipts {
		if receipts[i].RequestID == w.request && w.request != "" {
			a.Outcome, a.Receipts = hongbao.OutcomeGranted, receipts[i:i+1:i+1]
			return Told
		}
	}
	if w.refusal != nil {
		w.refusal.Receipts = append(slices.Clip(w.refusal.Receipts), receipts...)
		return w.next(a)
	}
	if len(receipts) == 0 {
		return w.pass(m, now, a)
	}
	if w.course.hold == 1 {
		a.Outcome, a.Receipts = hongbao.OutcomeAlreadyGranted, receipts
		return Told
	}
	w.script = true // the script knows whether the user has reached a limit
	return Onward
}
