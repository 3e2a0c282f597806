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

// maxRuns limits the runs of a position. Between two runs is a hole: seqs of events that are no grants (such as the
// close of a campaign), or of grants that have not arrived. A run usually takes 3 to 5 bytes, so a stored position has
// up to about 16 KiB.
const maxRuns = 4096

// sight says whether a position has seen an event.
type sight uint8

// The values of sight. sightTooOld means that the event is so old that the position has forgotten whether it has seen
// it.
const (
	sightFresh sight = iota
	sightSeen
	sightTooOld
)

// position is the set of events of a shard that were handled. It is stored as runs of consecutive seqs, and a floor.
// Everything up to the floor is forgotten. The zero value is the empty set. A position is not safe for concurrent use.
type position struct {
	floor int64
	runs  []stream.SeqRange // ascending, not adjacent, all above the floor
}

// Look returns whether the event was seen, or sightTooOld if that is forgotten.
func (p *position) Look(seq int64) sight {
	if seq <= p.floor {
		return sightTooOld
	}
	if i := p.after(seq); i < len(p.runs) && p.runs[i].First <= seq {
		return sightSeen
	}
	return sightFresh
}

// after returns the index of the first run that ends at seq or later.
func (p *position) after(seq int64) int {
	return sort.Search(len(p.runs), func(i int) bool { return p.runs[i].Last >= seq })
}

// Add records that the event was seen. It does nothing for an event that was seen before or is too old.
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

// MarshalBinary returns the stored form of the position, in unsigned varints: version, floor, number of runs, and then
// two numbers per run. These are the length of the hole before the run minus one, and the length of the run minus one.
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

// UnmarshalBinary parses the result of MarshalBinary. Empty bytes give the empty set. On an error it leaves p
// unchanged.
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
			return 0, errors.New("the bytes end too early, or a number is out of bounds")
		}
		b = b[size:]
		return int64(n), nil
	}
	most := int64(hongbao.MaxAmount)
	if v, err := next(most); err != nil || v != positionVersion {
		return position{}, fmt.Errorf("version %d is unknown: a newer build wrote these bytes, or they are not a position", v)
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
			return position{}, fmt.Errorf("run %d does not follow the run before it, or is out of bounds", i)
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
