package walk

import (
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
)

// NextStep says how the runner continues after an answer.
type NextStep int

// The next steps. Answered: the answer is final for the grab. Undecided: ask the same place again. Onward: ask the
// place that Ask returns next.
const (
	Answered NextStep = iota
	Undecided
	Onward
)

// Walk is the path of one grab. Begin initializes it, and reinitializes it for the next grab without an allocation.
type Walk struct {
	course        *Course
	user, request string
	generation    int64
	at            int  // index of the current place in the user's order
	asked         bool // a script has answered, so a generation that it did not know was not dealt yet
	script        bool // ask the script of the current place, not only for receipts

	order   []uint8 // empty until the user leaves their first place
	held    []passed
	looked  int // index of the last place whose receipts were read after a refusal
	refused int // index of the place that refused
	refusal *hongbao.Answer
}

// passed has the times at which the user got the packets on a place, as reported when the walk left the place.
type passed struct {
	place int
	times []time.Time
}

// Begin starts the walk of a grab at the user's first place.
func (w *Walk) Begin(course *Course, user, request string) {
	*w = Walk{
		course: course, user: user, request: request, generation: 1,
		order: w.order[:0], held: w.held[:0],
	}
}

// Renew makes the walk call the script of its first place, even if the memory says that the place is empty. The
// script's answer renews the memory.
func (w *Walk) Renew() { w.script = true }

// Ask is the next call that the runner must make for a walk.
type Ask struct {
	Place      int
	Generation int64
	// Receipts means: read only the user's receipts on the place, and do not try to get a packet.
	Receipts bool
}

// Ask returns the next call. It asks for receipts only, if m remembers that the place is empty. m may be nil.
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

// Place returns the current place of the walk.
func (w *Walk) Place() int { return w.Ask(nil, time.Time{}).Place }

// PassedReceipts returns when the user got the packets on other places, as each place reported when the walk left it.
func (w *Walk) PassedReceipts() []time.Time {
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
	return w.course.home(w.user) // without an order the walk is still at the first place
}

// Decided processes the answer of the place's script. If the place was empty, the caller must have called Emptied
// before. Decided may change the answer. If the next step is Answered, the changed answer is final.
func (w *Walk) Decided(m *Memory, now time.Time, a *hongbao.Answer) NextStep {
	w.script = false
	switch a.Outcome {
	case hongbao.OutcomeGranted:
		return Answered
	case hongbao.OutcomeSoldOut:
		w.asked = true
		w.hold(a.Receipts)
		a.Receipts = nil
		return w.pass(m, now, a)
	case hongbao.OutcomeAlreadyGranted:
		if w.course.hold == 1 && len(a.Receipts) > 0 {
			return Answered
		}
		return w.refuse(a)
	case hongbao.OutcomeLimitReached, hongbao.OutcomePaused, hongbao.OutcomeEnded:
		return w.refuse(a)
	case hongbao.OutcomeNotStarted:
		if w.begun() { // the first place is open, so this place's clock is slow, or the campaign is not loaded here yet
			a.Outcome, a.Starts = hongbao.OutcomeRefilling, time.Time{}
			return Undecided
		}
		return Answered
	case hongbao.OutcomeUnknownCampaign:
		if w.begun() || w.place(w.at) > 0 { // only place 0 can know that a campaign does not exist
			a.Outcome = hongbao.OutcomeFrozen
			return Undecided
		}
		return Answered
	case hongbao.OutcomeBusy, hongbao.OutcomeFrozen, hongbao.OutcomeRefilling:
		return Undecided
	}
	return Answered
}

// begun reports whether the walk has left the user's first place.
func (w *Walk) begun() bool { return w.at > 0 || w.generation > 1 }

// hold records when the user got the packets on the current place.
func (w *Walk) hold(receipts []hongbao.Receipt) {
	if len(receipts) == 0 {
		return // receipts never disappear, so an earlier visit cannot have found any
	}
	h := passed{place: w.place(w.at), times: make([]time.Time, len(receipts))}
	for i := range receipts {
		h.times[i] = receipts[i].Time
	}
	w.held = slices.DeleteFunc(w.held, func(o passed) bool { return o.place == h.place })
	w.held = append(w.held, h)
}

// pass leaves an empty place. At the last place of the newest generation, the answer is sold_out, if it is certain that
// there is no newer generation.
func (w *Walk) pass(m *Memory, now time.Time, a *hongbao.Answer) NextStep {
	last := w.at == w.course.places-1
	if last && w.generation >= m.newest {
		if w.asked || m.Current(now) {
			*a = hongbao.Answer{Outcome: hongbao.OutcomeSoldOut, Time: a.Time}
			return Answered
		}
		w.script = true // call this place's script: it reports whether there is a newer generation
		return Onward
	}
	w.shuffle()
	if w.at++; last {
		w.at = 0
		w.generation++
	}
	return Onward
}

// shuffle computes the user's order.
func (w *Walk) shuffle() {
	if len(w.order) == 0 {
		w.order = w.course.order(w.order, w.user)
	}
}

// refuse keeps a refusal and starts to read the receipts on the other places. If the user has a receipt there, the
// answer must contain it instead.
func (w *Walk) refuse(a *hongbao.Answer) NextStep {
	if w.course.places == 1 {
		return Answered
	}
	w.shuffle()
	refusal := *a
	w.refusal, w.refused, w.looked = &refusal, w.at, -1
	return w.next(a)
}

// next moves to the next place whose receipts are still unread. After the last place, the answer is the refusal.
func (w *Walk) next(a *hongbao.Answer) NextStep {
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
	return Answered
}

// Won reports whether one of the user's receipts in a is that of the request. If so, a becomes the answer granted, with
// only this receipt.
func Won(a *hongbao.Answer, request string) bool {
	for i := range a.Receipts {
		if a.Receipts[i].RequestID == request && request != "" {
			a.Outcome, a.Receipts = hongbao.OutcomeGranted, a.Receipts[i:i+1:i+1]
			return true
		}
	}
	return false
}

// Read processes the user's receipts on the place, after an Ask with Receipts. a has the receipts and no outcome. If
// the next step is Answered, a has become the final answer.
func (w *Walk) Read(m *Memory, now time.Time, a *hongbao.Answer) NextStep {
	if a.Outcome == hongbao.OutcomeFrozen {
		return Undecided
	}
	if Won(a, w.request) {
		return Answered
	}
	receipts := a.Receipts
	a.Receipts = nil
	if w.refusal != nil {
		w.refusal.Receipts = append(slices.Clip(w.refusal.Receipts), receipts...)
		return w.next(a)
	}
	if len(receipts) == 0 {
		return w.pass(m, now, a)
	}
	if w.course.hold == 1 {
		a.Outcome, a.Receipts = hongbao.OutcomeAlreadyGranted, receipts
		return Answered
	}
	w.script = true // only the script knows whether the user has reached a limit
	return Onward
}
