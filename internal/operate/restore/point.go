package restore

import (
	"time"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

const (
	// Young is how old the witness line of a process may be when the process grants and when it answers. The process
	// first writes an older line again. So a process that was stopped sends no answer after a recoverer has decided
	// without it.
	Young = stream.WitnessAge
	// Overlap is how far back from its last write Redis is not trusted, if more than one promotion may have happened
	// since. A process may not notice a promotion for Young plus the second between two looks of its watch, and write.
	Overlap = Young + time.Second
	// Fresh is how much older than the last write in Redis a witness line may be. The process of an older line does not
	// have to report.
	Fresh = Overlap + Young + time.Second
	// Patience is how long a restore waits for silent witnesses. No answer is in transit for longer.
	Patience = Young

	chunk  = 1 << 16 // seqs continue at a multiple of it
	perSec = 500_000 // more than a shard can grant in a second
)

// Entry is an entry of the stream: its last event, and when it was written.
type Entry struct {
	Seq  int64
	Time time.Time
}

// Found is the shard as a recoverer finds it.
type Found struct {
	Seq     int64
	Entries []Entry // those that the stream still has, in the order of their seqs
	Trimmed int64   // the last event that left the stream
	// Wrote is when the youngest entry or witness line was written, before the shard froze.
	Wrote time.Time
	// Direct reports that one promotion lies between the shard's last opening and this server: the history in which
	// the shard was opened is the one that its server followed before.
	Direct bool
	// Floors are the floors that the ledger records for epochs later than that of Redis. After a floor, Redis has a
	// history that an opening has replaced, or that an attempt has begun to replace.
	Floors []int64
}

// Intact returns the last event up to which Redis certainly has every granted event. Later events in Redis are evidence
// like that of other sources: a server that was promoted twice may have granted them in place of those it lost.
func Intact(f Found) int64 {
	intact := f.Seq
	if !f.Direct {
		intact = f.Trimmed
		for _, e := range f.Entries {
			if !e.Time.After(f.Wrote.Add(-Overlap)) {
				intact = max(intact, e.Seq)
			}
		}
	}
	for _, floor := range f.Floors {
		intact = min(intact, floor)
	}
	return intact
}

// SkipTo returns the last seq that an opening skips: a boundary after every known event, and after everything that may
// have been granted since Redis' last intact write.
func SkipTo(known int64, since time.Duration) int64 {
	known += chunk/2 + int64(since.Seconds()*perSec)
	return (known/chunk+1)*chunk - 1
}

// Holes returns the seqs of some spans that no known event has. A span is of one epoch: from the seq after its
// opening, or after the last intact one, to the last one that anyone saw. Spans and owned seqs rise.
func Holes(spans []stream.SeqRange, owned []int64) (holes []stream.SeqRange) {
	for _, span := range spans {
		next := span.First
		for len(owned) > 0 && owned[0] <= span.Last {
			if owned[0] > next {
				holes = append(holes, stream.SeqRange{First: next, Last: owned[0] - 1})
			}
			next = max(next, owned[0]+1)
			owned = owned[1:]
		}
		if next <= span.Last {
			holes = append(holes, stream.SeqRange{First: next, Last: span.Last})
		}
	}
	return holes
}
