package walk

import "time"

// Lease is how long a shard's revision proves that no newer generation is dealt, counted from before it was asked. A
// top-up announces its generation on every shard, and waits for longer than that before it deals.
const Lease = 250 * time.Millisecond

// Memory is what a producer remembers of a campaign's places. Its owner locks it.
type Memory struct {
	newest int64
	places []remembered
}

type remembered struct {
	read     time.Time // before the last answered question
	revision int64     // the newest generation that was announced there then
	empty    int64     // the newest generation of which nothing is left there
}

// NewMemory returns an empty Memory for a number of places.
func NewMemory(places int) *Memory {
	return &Memory{newest: 1, places: make([]remembered, places)}
}

// Newest returns the newest generation that any place has reported.
func (m *Memory) Newest() int64 { return m.newest }

// Emptied notes that the script at a place, asked at an instant, had nothing left of a generation, and had announced
// generation revision. Then nothing is left there of older ones either: no walk reaches a generation before all places
// of the older ones are empty.
func (m *Memory) Emptied(place int, generation int64, asked time.Time, revision int64) {
	p := &m.places[place]
	if asked.After(p.read) {
		p.read = asked
	}
	p.empty, p.revision = max(p.empty, generation), max(p.revision, revision)
	m.newest = max(m.newest, revision)
}

// Empty reports whether a place need not be asked for packets of a generation.
func (m *Memory) Empty(place int, generation int64, now time.Time) bool {
	p := &m.places[place]
	return p.empty >= generation && now.Before(p.read.Add(Lease))
}

// Current reports whether it is certain that nothing newer than the newest generation is dealt. The revision of any one
// place is enough, since a generation is announced on every place before it is dealt.
func (m *Memory) Current(now time.Time) bool {
	for i := range m.places {
		if p := &m.places[i]; p.revision == m.newest && now.Before(p.read.Add(Lease)) {
			return true
		}
	}
	return false
}

// Final reports whether nothing is left on any place of the newest generation. Each place, asked after an instant, must
// also have said within the lease that nothing newer was announced there.
func (m *Memory) Final(now, after time.Time) bool {
	for place := range m.places {
		if !m.Empty(place, m.newest, now) || !m.places[place].read.After(after) {
			return false
		}
	}
	return true
}
