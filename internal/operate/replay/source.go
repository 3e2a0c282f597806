package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Ledger is the part of the ledger that a replay needs.
type Ledger interface {
	// EachGrantBySeq calls fn for every grant of a shard whose seq is in the range, in the order of the seqs, until fn
	// fails. A seq comes twice if Redis went back in time.
	EachGrantBySeq(ctx context.Context, shard int, seqs stream.SeqRange, fn func(hongbao.Grant) error) error
}

// part is a run of grants of one shard, by rising seq, and the counts of what else was found. All grants of a part come
// from the same source, so that the publisher can build a batch of them again from that source.
type part struct {
	grants []hongbao.Grant
	events int64 // seqs that it covers, grants or not
	read   Counts
}

// source reads a shard's grants: from the stream what is kept, from the ledger what is not, and from the receipts what
// neither has.
type source struct {
	store    *store.Store
	ledger   Ledger    // may be nil
	page     int       // grants at once
	receipts *receipts // nil: it does not read receipts
	// lost says that the source also returns grants that Redis lost and the ledger has paid. It is false if only a sink's
	// done bits say what is delivered: Redis lost those bits too.
	lost bool
}

// each calls fn for all parts of the seqs, in their order. The stream may be trimmed meanwhile: a gap in its entries is
// filled from the ledger.
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
		var read Counts // the seqs of a forged entry, if it has any, become a gap
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

// entries passes on those events of the entries whose seqs are in the range, and fills the gaps before and between the
// entries. It returns
// the next seq.
func (s *source) entries(ctx context.Context, entries []stream.Entry, read Counts, seqs stream.SeqRange,
	fn func(*part) error) (int64, error) {
	p := &part{read: read}
	flush := func() error {
		if p.events == 0 && p.read == (Counts{}) {
			return nil
		}
		full := p
		p = &part{}
		return fn(full)
	}
	for i := range entries {
		e := &entries[i]
		if e.Kind == stream.EntryEpoch && s.lost { // the seqs that it skips are a gap
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

// add adds those events of an entry whose seqs are in the range, and returns the next seq.
func (p *part) add(e *stream.Entry, seqs stream.SeqRange) int64 {
	end := min(e.Last(), seqs.Last)
	if end < seqs.First { // the entry comes a second time
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

// fill passes on what the ledger and the receipts have of the seqs.
func (s *source) fill(ctx context.Context, shard int, seqs stream.SeqRange, fn func(*part) error) error {
	p, next := &part{}, seqs.First
	flush := func() error {
		full := p
		p = &part{}
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
			p.read.SameSeq++
			return nil
		}
		if err := gap(g.Seq - 1); err != nil {
			return err
		}
		p.events++
		next = g.Seq + 1
		g.EntryID = ledgerID(g.Seq)
		p.grants = append(p.grants, g)
		p.read.FromLedger++
		if len(p.grants) >= s.page {
			return flush()
		}
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

// gap adds the receipts' grants for seqs that neither the stream nor the ledger has. Seqs that an opening of the shard
// has skipped have no event.
func (s *source) gap(ctx context.Context, shard int, seqs stream.SeqRange, p *part) error {
	if seqs.Len() <= 0 {
		return nil
	}
	p.events += seqs.Len()
	skipped, err := s.store.Shard(shard).Skipped(ctx)
	if err != nil {
		return err
	}
	for _, run := range store.Without([]stream.SeqRange{seqs}, skipped) {
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

// ledgerID replaces in a grant the id of the entry that the stream no longer has. It is an id that Redis can read and
// that no entry ever had. A worker that looks for it in the stream finds nothing, and the publisher then reads the
// topic back.
func ledgerID(seq int64) string { return "0-" + strconv.FormatInt(seq, 10) }

func seqOfLedgerID(id string) (int64, bool) {
	text, ok := strings.CutPrefix(id, "0-")
	seq, err := strconv.ParseInt(text, 10, 64)
	return seq, ok && err == nil
}

// seek returns where to begin to read for a seq: an id at or before its entry, not far from it.
func (s *source) seek(ctx context.Context, k *store.Shard, seq int64) (string, error) {
	f, err := s.search(ctx, k, func(e *stream.Entry) bool { return e.Seq <= seq })
	if err != nil || f.last == nil {
		return "-", err
	}
	return strconv.FormatInt(msOf(f.last.ID), 10), nil
}

// found is the result of a search in a stream: the first entry of the stream, the last one before the searched place,
// and the one after it. A missing, unreadable or forged entry is nil: then the replay begins to read earlier, and
// reports that entry.
type found struct{ first, last, next *stream.Entry }

// search finds the place in a stream up to which before is true. Ids are times, and rise with the seqs.
func (s *source) search(ctx context.Context, k *store.Shard, before func(*stream.Entry) bool) (f found, err error) {
	if f.first, err = s.probe(ctx, k, "-"); err != nil || f.first == nil {
		return f, err
	}
	if !before(f.first) {
		f.next = f.first
		return f, nil
	}
	ends, err := s.store.Redis().XRevRangeN(ctx, k.Keys.Events(), "+", "-", 1).Result()
	if err != nil || len(ends) == 0 {
		return found{}, store.Classify(err)
	}
	f.last = f.first
	low, high := msOf(f.first.ID), msOf(ends[0].ID)
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

// probe returns the first entry at or after an id; nil if there is none, or it can't be read, or is forged.
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

// Entries returns the entries that the publisher needs to build a batch of a replay again. It is safe for concurrent
// use.
type Entries struct {
	Store *store.Store
	// Ledger may be nil: then grants that came from it are found among the receipts only.
	Ledger Ledger
}

// Entries returns the entries from firstID to lastID, both included, in order; missing ones are left out. Ids that a
// replay created for grants of the ledger and of receipts have one entry each.
func (e *Entries) Entries(ctx context.Context, shard int, firstID, lastID string) ([]stream.Entry, error) {
	first, made := seqOfLedgerID(firstID)
	last, alsoMade := seqOfLedgerID(lastID)
	if !made || !alsoMade {
		return e.Store.Entries(ctx, shard, firstID, lastID)
	}
	var out []stream.Entry
	missing := map[int64]bool{} // seqs that the ledger does not have
	for seq := first; seq <= last; seq++ {
		missing[seq] = true
	}
	add := func(g hongbao.Grant) error {
		if !missing[g.Seq] {
			return nil
		}
		delete(missing, g.Seq)
		g.EntryID = ledgerID(g.Seq)
		out = append(out, stream.Entry{
			ID: g.EntryID, Shard: shard, Kind: stream.EntryGrant, Campaign: g.Campaign, Seq: g.Seq, Epoch: g.Epoch,
			Time:   g.Time,
			Grants: []hongbao.Grant{g},
		})
		return nil
	}
	var err error
	if e.Ledger != nil {
		err = e.Ledger.EachGrantBySeq(ctx, shard, stream.SeqRange{First: first, Last: last}, add)
	}
	if err == nil && len(missing) > 0 {
		var granted map[int64]hongbao.Grant
		granted, err = e.Store.Shard(shard).GrantsByReceipts(ctx, func(seq int64) bool { return missing[seq] })
		for _, g := range granted {
			_ = add(g) // it returns no error
		}
	}
	if err != nil {
		return nil, fmt.Errorf("build entries %s to %s of shard %d from the ledger and the receipts: %w", firstID, lastID,
			shard, err)
	}
	slices.SortFunc(out, func(a, b stream.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return out, nil
}
