package replay

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Ledger has the method of the ledger that a replay needs.
type Ledger interface {
	// EachGrantBySeq calls fn for every grant of a shard with a seq in the range, ordered by seq, until fn fails. Two
	// grants have the same seq if Redis went back in time.
	EachGrantBySeq(ctx context.Context, shard int, seqs stream.SeqRange, fn func(hongbao.Grant) error) error
}

// part is a range of a shard's seqs. It has the grants with these seqs, ordered by seq, and counts what else was found.
// All its grants come from the same source, so that the publisher can build a batch of them again from that source.
type part struct {
	grants []hongbao.Grant
	// twins are grants that share their seq with an event of the stream or another grant of the ledger. If grants has a
	// grant with that seq, the filter excludes it, so only one of the two is delivered. Each twin is a batch of its own.
	twins  []hongbao.Grant
	left   []hongbao.Grant // selected grants that are left out, because one of grants or twins has the same seq
	events int64           // number of seqs in the range, with or without a grant
	read   model.ReplayCounts
}

// source reads a shard's grants from the stream. It reads missing ones from the ledger, and those that the ledger lacks
// from the receipts.
type source struct {
	store    *store.Store
	ledger   Ledger    // may be nil
	page     int       // grants in one part of the ledger
	receipts *receipts // nil to read no receipts
	wants    func(g *hongbao.Grant) bool
	// lost reports whether the source includes grants that Redis lost and the ledger has paid. It is false if a sink's
	// own done bits decide what is delivered, because Redis lost those bits, too.
	lost bool
	// twins reports whether the source looks for grants in the ledger with the seq of another event in the stream. It is
	// false if the target is the ledger, which has paid these grants.
	twins bool
}

// each calls fn for all parts of the range, ordered by seq. If the stream is trimmed meanwhile, the ledger fills the
// gap.
func (s *source) each(ctx context.Context, shard int, seqs stream.SeqRange, fn func(*part) error) error {
	k := s.store.Shard(shard)
	from, err := s.seek(ctx, k, seqs.First)
	if err != nil {
		return err
	}
	count := 50
	for next := seqs.First; next <= seqs.Last; {
		raw, err := k.Range(ctx, from, "+", count)
		if err != nil {
			return err
		}
		if len(raw) == 0 {
			return s.fill(ctx, shard, stream.SeqRange{First: next, Last: seqs.Last}, fn)
		}
		from = "(" + raw[len(raw)-1].ID
		var read model.ReplayCounts // the seqs of a forged entry are read like those of a gap
		var entries []stream.Entry
		if entries, read.Unreadable, read.Forged, err = k.Decode(ctx, raw); err != nil {
			return err
		}
		before := next
		if next, err = s.entries(ctx, entries, read, stream.SeqRange{First: next, Last: seqs.Last}, fn); err != nil {
			return err
		}
		if n := next - before; n > 0 {
			count = min(max(int(int64(len(raw)*s.page)/n), 20), 2*count)
		}
	}
	return nil
}

// entries calls fn with the events of the entries in the range, and fills the gaps before and between them. It returns
// the seq after the last entry.
func (s *source) entries(ctx context.Context, entries []stream.Entry, read model.ReplayCounts, seqs stream.SeqRange,
	fn func(*part) error) (int64, error) {
	p := &part{read: read}
	flush := func() error {
		if p.events == 0 && p.read == (model.ReplayCounts{}) {
			return nil
		}
		full := p
		p = &part{}
		if full.events > 0 {
			if err := s.addTwins(ctx, full, entries[0].Shard, seqs.First); err != nil {
				return err
			}
		}
		return fn(full)
	}
	for i := range entries {
		e := &entries[i]
		if e.Kind == stream.EntryEpoch && s.lost { // the seqs that the opening skipped are read like a gap
			continue
		}
		if e.Seq > seqs.First {
			if err := flush(); err != nil {
				return seqs.First, err
			}
			gap := stream.SeqRange{First: seqs.First, Last: min(e.Seq-1, seqs.Last)}
			if err := s.fill(ctx, e.Shard, gap, fn); err != nil {
				return seqs.First, err
			}
			seqs.First = gap.Last + 1
		}
		if seqs.First > seqs.Last {
			break
		}
		seqs.First = p.add(e, seqs)
	}
	return seqs.First, flush()
}

// add adds the events of an entry that are in the range, and returns the seq after them.
func (p *part) add(e *stream.Entry, seqs stream.SeqRange) int64 {
	end := min(e.Last(), seqs.Last)
	if end < seqs.First { // a duplicate of an earlier entry
		return seqs.First
	}
	for i := range e.Grants {
		if seq := e.Grants[i].Seq; seq >= seqs.First && seq <= end {
			p.grants = append(p.grants, e.Grants[i])
			p.read.FromStream++
		}
	}
	p.events += end - seqs.First + 1
	return end + 1
}

// fill calls fn with the grants of the range that the ledger and the receipts have.
func (s *source) fill(ctx context.Context, shard int, seqs stream.SeqRange, fn func(*part) error) error {
	p, next := &part{}, seqs.First
	flush := func() error {
		full := p
		p = &part{}
		if err := s.preferReceipts(ctx, full, shard); err != nil {
			return err
		}
		return fn(full)
	}
	gap := func(last int64) error {
		missing := stream.SeqRange{First: next, Last: last}
		next = max(next, last+1)
		return s.gap(ctx, shard, missing, p)
	}
	if s.ledger == nil {
		return errors.Join(gap(seqs.Last), flush())
	}
	err := s.ledger.EachGrantBySeq(ctx, shard, seqs, func(g hongbao.Grant) error {
		if g.Seq < next {
			s.twin(p, g)
			return nil
		}
		if len(p.grants) >= s.page {
			if err := flush(); err != nil {
				return err
			}
		}
		if err := gap(g.Seq - 1); err != nil {
			return err
		}
		p.events++
		next = g.Seq + 1
		g.EntryID = ledgerID(g.Seq)
		p.grants = append(p.grants, g)
		p.read.FromLedger++
		return nil
	})
	if err == nil {
		err = gap(seqs.Last)
	}
	if err != nil {
		return err
	}
	return flush()
}

// gap adds the grants in the receipts with seqs that neither the stream nor the ledger has. It ignores seqs that
// openings of the shard have skipped, because no event has them.
func (s *source) gap(ctx context.Context, shard int, seqs stream.SeqRange, p *part) error {
	if seqs.Len() <= 0 {
		return nil
	}
	p.events += seqs.Len()
	runs, err := s.notSkipped(ctx, shard, seqs)
	if err != nil {
		return err
	}
	for _, run := range runs {
		p.read.NotFound += run.Len()
		if s.receipts == nil {
			continue
		}
		grants, err := s.receipts.of(ctx, s, shard, run)
		if err != nil {
			return err
		}
		p.grants = append(p.grants, grants...)
		p.read.FromReceipts += int64(len(grants))
		p.read.NotFound -= int64(len(grants))
	}
	return nil
}

// notSkipped returns the range without the seqs that openings of the shard have skipped.
func (s *source) notSkipped(ctx context.Context, shard int, seqs stream.SeqRange) ([]stream.SeqRange, error) {
	skipped, err := s.store.Shard(shard).Skipped(ctx)
	return store.Without([]stream.SeqRange{seqs}, skipped), err
}

// seek returns an ID at which to begin reading for a seq. It is at or shortly before the seq's entry.
func (s *source) seek(ctx context.Context, k *store.Shard, seq int64) (string, error) {
	f, err := s.search(ctx, k, func(e *stream.Entry) bool { return e.Seq <= seq })
	if err != nil || f.last == nil {
		return "-", err
	}
	return strconv.FormatInt(msOf(f.last.ID), 10), nil
}

// found is the result of a search in a stream: its first entry, the last entry before the searched position, and the
// next one. A missing, unreadable or forged entry is nil. Then the replay begins to read earlier, and reports that
// entry.
type found struct{ first, last, next *stream.Entry }

// search finds the last entry for which before is true, by a binary search over the IDs. IDs are times, and later
// entries have higher seqs.
func (s *source) search(ctx context.Context, k *store.Shard, before func(*stream.Entry) bool) (f found, err error) {
	if f.first, err = s.probe(ctx, k, "-"); err != nil || f.first == nil {
		return f, err
	}
	if !before(f.first) {
		f.next = f.first
		return f, nil
	}
	end, err := k.LastID(ctx)
	if err != nil || end == "" {
		return found{}, err
	}
	f.last = f.first
	low, high := msOf(f.first.ID), msOf(end)
	for low < high {
		mid := low + (high-low+1)/2
		e, err := s.probe(ctx, k, strconv.FormatInt(mid, 10))
		if err != nil {
			return found{}, err
		}
		if e != nil && before(e) {
			low, f.last = mid, e
		} else {
			high, f.next = mid-1, e
		}
	}
	return f, nil
}

// probe returns the first entry at or after this ID. It returns nil if there is none, or if it is unreadable or forged.
func (s *source) probe(ctx context.Context, k *store.Shard, id string) (*stream.Entry, error) {
	raw, err := k.Range(ctx, id, "+", 1)
	if err != nil {
		return nil, err
	}
	real, _, _, err := k.Decode(ctx, raw)
	if err != nil || len(real) == 0 {
		return nil, err
	}
	return &real[0], nil
}

func msOf(id string) int64 {
	text, _, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return ms
}
