package replay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Lost finds what a sink has finished and does not have: events that were lost there. Create it with FindLost, pass it
// everything that the sink has, and then use it as Config.Only.
type Lost struct {
	shards []lostShard
}

type lostShard struct {
	mu   sync.Mutex
	done store.Bitset
	last int64
	// skipped are seqs that no entry has: Redis lost their events, if there were any. Only a replay delivers those that
	// the ledger has paid, whether or not the sink has marked them as done.
	skipped []stream.SeqRange
	// aside are the events of dead letters, waiting and dropped ones: a person decides these one by one.
	aside map[int64]bool
	seen  map[int64]uint64 // by seq / 64
	since time.Time        // events that were decided before may have expired from the sink
}

// FindLost notes which events the sink has finished now. Events that it finishes later, and dead letters, are not lost.
// Call it before the sink is read, or events delivered meanwhile would seem to be lost.
func FindLost(ctx context.Context, st *store.Store, sink string) (*Lost, error) {
	l := &Lost{shards: make([]lostShard, st.Len())}
	letters := deadletter.New(st)
	for i := range l.shards {
		k, at := st.Shard(i), &l.shards[i]
		at.seen = map[int64]uint64{}
		var err error
		if at.last, err = k.LastSeq(ctx); err != nil {
			return nil, fmt.Errorf("find what %s has lost: %w", sink, err)
		}
		if at.last > 0 {
			if at.done, err = k.GroupDone(ctx, sink, stream.SeqRange{First: 1, Last: at.last}); err != nil {
				return nil, fmt.Errorf("find what %s has lost: %w", sink, err)
			}
		}
		if at.skipped, err = k.Skipped(ctx); err != nil {
			return nil, fmt.Errorf("find what %s has lost: %w", sink, err)
		}
		if at.aside, err = letters.Seqs(ctx, sink, i); err != nil {
			return nil, fmt.Errorf("find what %s has lost: %w", sink, err)
		}
	}
	return l, nil
}

// Has notes that the sink has a grant. It is safe for concurrent use.
func (l *Lost) Has(g *hongbao.Grant) {
	if g.Shard < 0 || g.Shard >= len(l.shards) || g.Seq < 1 {
		return
	}
	s := &l.shards[g.Shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[g.Seq/64] |= 1 << (g.Seq % 64)
}

// Since notes since when the sink has kept all events of a shard: events that were decided before are not judged.
func (l *Lost) Since(shard int, since time.Time) { l.shards[shard].since = since }

// Picks reports whether a grant was lost. It is safe for concurrent use, after all calls of Has and Since.
func (l *Lost) Picks(g *hongbao.Grant) bool {
	if g.Shard < 0 || g.Shard >= len(l.shards) {
		return false
	}
	s := &l.shards[g.Shard]
	if g.Time.Before(s.since) || g.Seq < 1 || g.Seq > s.last || s.aside[g.Seq] || s.seen[g.Seq/64]&(1<<(g.Seq%64)) != 0 {
		return false
	}
	return s.done.Has(g.Seq) || slices.ContainsFunc(s.skipped, func(r stream.SeqRange) bool {
		return r.First <= g.Seq && g.Seq <= r.Last
	})
}
