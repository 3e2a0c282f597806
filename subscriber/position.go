package subscriber

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// maxRuns bounds a position. Runs are parted by holes: events that are no grants (each close of a campaign is one), and
// grants that have not come. A run takes 3 to 5 bytes as a rule, so a full Position is written as about 16 KiB.
const maxRuns = 4096

// Sight is what a position knows of an event.
type sight uint8

// What can be known. sightTooOld: it lies below the oldest hole that is remembered, so it can't be told.
const (
	sightFresh sight = iota
	sightSeen
	sightTooOld
)

// Position is the set of events of one shard that were dealt with: runs without a hole, and a floor below which it has
// forgotten. The zero value has seen nothing. Not for use by several goroutines at once.
type position struct {
	floor int64
	runs  []stream.SeqRange // ascending, with a hole between each two, all above the floor
}

// Look tells whether the event was seen.
func (p *position) Look(seq int64) sight {
	if seq <= p.floor {
		return sightTooOld
	}
	if i := p.after(seq); i < len(p.runs) && p.runs[i].First <= seq {
		return sightSeen
	}
	return sightFresh
}

// after is the index of the first run that ends at seq or later.
func (p *position) after(seq int64) int {
	return sort.Search(len(p.runs), func(i int) bool { return p.runs[i].Last >= seq })
}

// Add notes that the event was seen. A second time changes nothing, nor does an event that is too old.
func (p *position) Add(seq int64) {
	if p.Look(seq) != sightFresh {
		return
	}
	i := p.after(seq)
	left := i > 0 && p.runs[i-1].Last == seq-1
	right := i < len(p.runs) && p.runs[i].First == seq+1
	switch {
	case left && right:
		p.runs[i-1].Last = p.runs[i].Last
		p.runs = slices.Delete(p.runs, i, i+1)
	case left:
		p.runs[i-1].Last = seq
	case right:
		p.runs[i].First = seq
	default:
		p.runs = slices.Insert(p.runs, i, stream.SeqRange{First: seq, Last: seq})
	}
	if len(p.runs) > maxRuns {
		p.floor = p.runs[1].First - 1
		p.runs = slices.Delete(p.runs, 0, 1)
	}
}

const positionVersion = 1

// MarshalBinary writes the position for a store: version, floor, number of runs; then for each run the hole before it
// less one and its length less one. All are unsigned varints.
func (p *position) MarshalBinary() ([]byte, error) {
	b := make([]byte, 0, 16+4*len(p.runs))
	b = binary.AppendUvarint(b, positionVersion)
	b = binary.AppendUvarint(b, uint64(p.floor))
	b = binary.AppendUvarint(b, uint64(len(p.runs)))
	last := p.floor
	for _, r := range p.runs {
		b = binary.AppendUvarint(b, uint64(r.First-last-1))
		b = binary.AppendUvarint(b, uint64(r.Last-r.First))
		last = r.Last
	}
	return b, nil
}

// UnmarshalBinary reads what MarshalBinary wrote; empty means nothing seen. Anything else is refused and leaves p as it
// was.
func (p *position) UnmarshalBinary(b []byte) error {
	if len(b) == 0 {
		*p = position{}
		return nil
	}
	read, err := readPosition(b)
	if err != nil {
		return fmt.Errorf("a position of %d bytes can't be read: %w", len(b), err)
	}
	*p = read
	return nil
}

func readPosition(b []byte) (position, error) {
	next := func(most int64) (int64, error) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(most) {
			return 0, errors.New("it is cut off, or a number is out of bounds")
		}
		b = b[size:]
		return int64(n), nil
	}
	most := int64(hongbao.MaxAmount)
	if v, err := next(most); err != nil || v != positionVersion {
		return position{}, fmt.Errorf("version %d is unknown: a newer build wrote it, or it is something else", v)
	}
	floor, err := next(most)
	if err != nil {
		return position{}, fmt.Errorf("floor: %w", err)
	}
	n, err := next(maxRuns)
	if err != nil {
		return position{}, fmt.Errorf("number of runs: %w", err)
	}
	p := position{floor: floor}
	last := floor
	for i := range n {
		hole, err1 := next(most - last - 1)
		length, err2 := next(most - last - 1 - hole)
		if err := errors.Join(err1, err2); err != nil || i > 0 && hole == 0 {
			return position{}, fmt.Errorf("run %d: it does not follow the one before, or is out of bounds", i)
		}
		r := stream.SeqRange{First: last + 1 + hole}
		r.Last = r.First + length
		p.runs = append(p.runs, r)
		last = r.Last
	}
	if len(b) > 0 {
		return position{}, fmt.Errorf("%d bytes follow its end", len(b))
	}
	return p, nil
}
