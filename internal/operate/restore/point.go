package restore

import (
	"time"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

const (
	// Young is the maximum age of a process's witness line when the process grants and when it answers. If the line is
	// older, the process writes it again first. So a process that was stopped can't answer after a recoverer has
	// decided without it.
	Young = stream.WitnessAge
	// Overlap applies if more than one promotion may have happened since the opening. Then the writes in the last
	// Overlap before Redis' last write are not trusted. A process may need Young plus the second between two checks of
	// its watch to notice a promotion, and may write until then.
	Overlap = Young + time.Second
	// Fresh is the maximum age of a witness line, measured at the last write in Redis, with which a process has to
	// report.
	Fresh = Overlap + Young + time.Second
	// Patience is how long a restore waits for silent witnesses. Any answer to a user that is still in transit arrives
	// or is discarded within that time.
	Patience = Young
)

// ShardState is the state in which a recoverer finds the shard.
type ShardState struct {
	Seq int64
	// Certain is the last seq that was written at least Overlap before Redis' last write before the freeze.
	Certain int64
	// OnePromotion reports whether exactly one promotion lies between the shard's opening and this server. Then the shard
	// was opened in the history that this server followed before.
	OnePromotion bool
	// Floors has the floors in the ledger of later epochs than that of Redis. Above a floor, an opening has replaced
	// the history that Redis has, or an attempt has begun to replace it.
	Floors []int64
}

// Intact returns the intact seq: up to it Redis certainly has every event that was granted. Redis' later events are
// evidence like that of other sources. A server that was promoted twice may have granted them in place of lost events.
func Intact(f ShardState) int64 {
	intact := f.Seq
	if !f.OnePromotion {
		intact = min(intact, f.Certain)
	}
	for _, floor := range f.Floors {
		intact = min(intact, floor)
	}
	return intact
}

// Holes returns the seqs of the spans that no known event has. A span has the seqs of one epoch: from the one after
// its opening, or after the intact seq, to the highest that any process saw. spans and owned must be sorted.
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
