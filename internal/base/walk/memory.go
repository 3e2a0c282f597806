package walk

import "time"

// Lease is how long an answer of a shard proves that no newer generation has been dealt, counted from just before the
// call. A top-up announces its generation on every shard and then waits longer than a lease before it deals packets.
const Lease = 250 * time.Millisecond

// Memory is what a producer remembers of a campaign's places. The caller must lock it.
type Memory struct {
	newest int64
	places []remembered
}

type remembered struct {
	read     time.Time // time just before the last call that was answered
	revision int64     // newest generation that the place had announced by then
	empty    int64     // newest generation of which the place has no packets left
}

// NewMemory returns an empty Memory for a number of places.
func NewMemory(places int) *Memory {
	return &Memory{newest: 1, places: make([]remembered, places)}
}

// Newest returns the newest generation that any place has announced.
func (m *Memory) Newest() int64 { return m.newest }

// Emptied records the answer of a place that had no packets of the generation left. asked is the time just before the
// call; revision is the newest generation that the place had announced. The place has no packets of older generations
// either: a walk reaches a generation only after all places of the older ones are empty.
func (m *Memory) Emptied(place int, generation int64, asked time.Time, revision int64) {
	p := &m.places[place]
	if asked.After(p.read) {
		p.read = asked
	}
	p.empty, p.revision = max(p.empty, generation), max(p.revision, revision)
	m.newest = max(m.newest, revision)
}

// Empty reports whether the place is known to have no packets of the generation, by an answer within the lease.
func (m *Memory) Empty(place int, generation int64, now time.Time) bool {
	p := &m.places[place]
	return p.empty >= generation && now.Before(p.read.Add(Lease))
}

// Current reports whether it is certain that no generation newer than Newest has been dealt. The answer of one place
// within the lease is enough, because every place announces a generation before any place deals it.
func (m *Memory) Current(now time.Time) bool {
	for i := range m.places {
		if p := &m.places[i]; p.revision == m.newest && now.Before(p.read.Add(Lease)) {
			return true
		}
	}
	return false
}

// Final reports whether no place has packets left, not even of the newest generation. Every place must have confirmed
// this within the lease, in a call that started later than after.
func (m *Memory) Final(now, after time.Time) bool {
	for place := range m.places {
		if !m.Empty(place, m.newest, now) || !m.places[place].read.After(after) {
			return false
		}
	}
	return true
}
