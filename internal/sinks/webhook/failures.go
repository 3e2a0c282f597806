package webhook

import (
	"sync"
	"time"
)

// failures finds out whether failed requests concern one event or the whole endpoint. A status 500, a lost answer or a
// timeout does not say it. As an outage, it would stop the shard for as long as one event fails: a bug of the receiver
// in one event would stop all others. As a failure of the event, it would use up attempts in a real outage, which must
// make no dead letters.
//
// The evidence is other events. If the endpoint has accepted one since the event failed before, or during its first
// try, only that event fails. If it has accepted none, and another event fails too, all do. Otherwise the event waits,
// while the shard delivers others, which show it. So each attempt that counts has evidence of its own.
type failures struct {
	now func() time.Time

	mu sync.Mutex
	// accepted is the number of accepted events.
	accepted int64
	// last has the last failed try of each event, by the event's id.
	last map[string]try
}

// try is a failed try of an event: the values of accepted when it began and when it was judged, and the latter time.
type try struct {
	began, judged int64
	at            time.Time
}

// recentFailure is the maximum age of a failure that shows together with another one that all events fail. Events that
// are tried during an outage come again within 10 s. An older event may have become a dead letter.
const recentFailure = time.Minute

// maxFailures limits the number of events in last. If it is exceeded, all of them are forgotten.
const maxFailures = 100_000

// concern is whom a failure concerns.
type concern int

const (
	unclear   concern = iota // not known yet: the event waits
	thisEvent                // only this event
	allEvents                // every event
)

// begin returns the number of accepted events, which judge needs at the end of a try that begins now.
func (f *failures) begin() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accepted
}

// accept records that the endpoint accepted an event.
func (f *failures) accept(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.accepted++
	delete(f.last, id)
}

// judge records the failed tries of one call, by the ids of their events, and returns whom each concerns.
func (f *failures) judge(began map[string]int64) map[string]concern {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil || len(f.last)+len(began) > maxFailures {
		f.last = map[string]try{}
	}
	now := f.now()
	since := make(map[string]int64, len(began)) // from when on an accepted event is evidence
	for id, n := range began {
		since[id] = n
		if before, known := f.last[id]; known {
			since[id] = before.judged
		}
		f.last[id] = try{n, f.accepted, now}
	}
	together := 0
	for _, t := range f.last {
		if t.began == f.accepted && now.Sub(t.at) <= recentFailure {
			together++
		}
	}
	concerns := make(map[string]concern, len(began))
	for id, n := range since {
		switch {
		case f.accepted > n:
			concerns[id] = thisEvent
		case together > 1:
			concerns[id] = allEvents
		default:
			concerns[id] = unclear
		}
	}
	return concerns
}
