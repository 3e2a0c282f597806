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

// Lost finds events that a sink has finished but does not have. Create it with FindLost, call Has for each grant that
// the sink has, and then use Picks as Config.Only.
type Lost struct {
	shards []lostShard
	all    bool // picks also events that the sink has not finished

	mu sync.Mutex
	// packets has the packets of all grants that the sink has, in bitmaps by campaign and packet / 64. Two grants can have
	// the same seq.
	packets map[string]map[int64]uint64
}

type lostShard struct {
	done store.Bitset
	last int64
	// skipped has the seqs that openings have skipped. The ledger may have paid grants with such seqs before Redis lost
	// them. Picks judges them whether or not the sink has marked them as done.
	skipped []stream.SeqRange
	aside   deadletter.Aside // a person decides about these
	seen    map[int64]uint64 // bitmap, by seq / 64
	since   time.Time        // events decided earlier may have expired from the sink
}

func newLost(shards int) *Lost {
	l := &Lost{shards: make([]lostShard, shards), packets: map[string]map[int64]uint64{}}
	for i := range l.shards {
		l.shards[i].seen = map[int64]uint64{}
	}
	return l
}

// FindLost returns a Lost with the events that the sink has finished now. Later events and dead letters are never lost.
// Call it before you read the sink, or events that are delivered in between seem to be lost.
func FindLost(ctx context.Context, st *store.Store, sink string) (*Lost, error) {
	l := newLost(st.Len())
	letters := deadletter.New(st)
	for i := range l.shards {
		k, at := st.Shard(i), &l.shards[i]
		var err error
		if at.last, err = k.LastSeq(ctx); err != nil {
			return nil, fmt.Errorf("find what %s has lost: %w", sink, err)
		}
		if at.last > 0 {
			if at.done, err = k.Group(sink).FinishedEvents(ctx, stream.SeqRange{First: 1, Last: at.last}); err != nil {
				return nil, fmt.Errorf("find what %s has lost: %w", sink, err)
			}
		}
		if at.skipped, err = k.Skipped(ctx); err != nil {
			return nil, fmt.Errorf("find what %s has lost: %w", sink, err)
		}
		if at.aside, err = letters.Aside(ctx, sink, i); err != nil {
			return nil, fmt.Errorf("find what %s has lost: %w", sink, err)
		}
	}
	return l, nil
}

// FindLacking returns a Lost that has read the ledger. It also picks grants that the sink has not finished: a remote may
// have credited them, and a restored ledger does not know these credits.
func FindLacking(ctx context.Context, st *store.Store, sink string, l Ledger) (*Lost, error) {
	lost, err := FindLost(ctx, st, sink)
	if err != nil {
		return nil, err
	}
	lost.all = true
	for shard := range lost.shards {
		seqs := stream.SeqRange{First: 1, Last: lost.shards[shard].last}
		err := l.EachGrantBySeq(ctx, shard, seqs, func(g hongbao.Grant) error { lost.Has(&g); return nil })
		if err != nil {
			return nil, err
		}
	}
	return lost, nil
}

// Has notes that the sink has this grant. It is safe for concurrent use.
func (l *Lost) Has(g *hongbao.Grant) {
	if g.Shard < 0 || g.Shard >= len(l.shards) || g.Seq < 1 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shards[g.Shard].seen[g.Seq/64] |= 1 << (g.Seq % 64)
	packets := l.packets[g.Campaign]
	if packets == nil {
		packets = map[int64]uint64{}
		l.packets[g.Campaign] = packets
	}
	packets[g.Packet/64] |= 1 << (g.Packet % 64)
}

// has reports whether Has got this grant.
func (l *Lost) has(g *hongbao.Grant) bool {
	return l.shards[g.Shard].seen[g.Seq/64]&(1<<(g.Seq%64)) != 0 &&
		l.packets[g.Campaign][g.Packet/64]&(1<<(g.Packet%64)) != 0
}

// Since sets the time since which the sink has kept all events of a shard. Events that were decided earlier are not
// judged.
func (l *Lost) Since(shard int, since time.Time) { l.shards[shard].since = since }

// Picks reports whether the sink has lost this grant. It is safe for concurrent use once all calls of Has and Since
// have returned.
func (l *Lost) Picks(g *hongbao.Grant) bool {
	if g.Shard < 0 || g.Shard >= len(l.shards) {
		return false
	}
	s := &l.shards[g.Shard]
	if g.Time.Before(s.since) || g.Seq < 1 || g.Seq > s.last || s.aside.Has(g) || l.has(g) {
		return false
	}
	return l.all || s.done.Has(g.Seq) || slices.ContainsFunc(s.skipped, func(r stream.SeqRange) bool {
		return r.First <= g.Seq && g.Seq <= r.Last
	})
}
