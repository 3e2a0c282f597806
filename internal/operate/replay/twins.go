package replay

import (
	"cmp"
	"context"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Two grants have the same seq if two servers were the primary, or if Redis lost writes that a person has accepted as
// lost. A replay delivers one grant for each seq, because done bits and claims have seqs only. So it chooses among the
// grants that it selects, and counts the others. A replay with another name, and a filter that selects only the other
// grant, delivers that one.

// sameWin reports whether two grants are the same win.
func sameWin(a, b *hongbao.Grant) bool { return a.Campaign == b.Campaign && a.Packet == b.Packet }

// twin adds a grant of the ledger to a part whose range has its seq. If the part already has a selected grant with this
// seq, the twin is left out.
func (s *source) twin(p *part, g hongbao.Grant) {
	if !s.wants(&g) {
		return
	}
	if i, ok := p.find(g.Seq); ok && s.wants(&p.grants[i]) || p.twinOf(g.Seq) >= 0 {
		p.left = append(p.left, g)
		return
	}
	g.EntryID = twinID(&g)
	p.twins = append(p.twins, g)
	p.read.FromLedger++
}

// find returns the index of the grant with this seq.
func (p *part) find(seq int64) (int, bool) {
	return slices.BinarySearchFunc(p.grants, seq, func(g hongbao.Grant, seq int64) int { return cmp.Compare(g.Seq, seq) })
}

// twinOf returns the index of the twin with this seq, or -1.
func (p *part) twinOf(seq int64) int {
	return slices.IndexFunc(p.twins, func(g hongbao.Grant) bool { return g.Seq == seq })
}

// addTwins adds the grants of the ledger whose seqs have other events in the stream. The part ends before the seq next.
func (s *source) addTwins(ctx context.Context, p *part, shard int, next int64) error {
	if !s.twins {
		return nil
	}
	seqs := stream.SeqRange{First: next - p.events, Last: next - 1}
	return s.ledger.EachGrantBySeq(ctx, shard, seqs, func(g hongbao.Grant) error {
		if i, ok := p.find(g.Seq); !ok || !sameWin(&p.grants[i], &g) {
			s.twin(p, g)
		}
		return nil
	})
}

// preferReceipts replaces grants of the ledger by grants with the same seqs that the sink has not finished. They have
// only receipts, because their entries were deleted too early.
func (s *source) preferReceipts(ctx context.Context, p *part, shard int) error {
	if s.receipts == nil || len(p.grants) == 0 {
		return nil
	}
	seqs := stream.SeqRange{First: p.grants[0].Seq, Last: p.grants[len(p.grants)-1].Seq}
	runs, err := s.notSkipped(ctx, shard, seqs)
	if err != nil {
		return err
	}
	for _, run := range runs {
		found, err := s.receipts.of(ctx, s, shard, run)
		if err != nil {
			return err
		}
		for _, g := range found {
			s.prefer(p, g)
		}
	}
	return nil
}

// prefer replaces the selected grant of the ledger that has the seq of g.
func (s *source) prefer(p *part, g hongbao.Grant) {
	i, ok := p.find(g.Seq)
	if !ok || sameWin(&p.grants[i], &g) || !s.wants(&g) {
		return
	}
	t := p.twinOf(g.Seq)
	switch {
	case t >= 0 && sameWin(&p.twins[t], &g):
		return
	case t >= 0:
		p.left = append(p.left, p.twins[t])
		p.twins = slices.Delete(p.twins, t, t+1)
		p.read.FromLedger--
	case s.wants(&p.grants[i]):
		p.left = append(p.left, p.grants[i])
		p.grants = slices.Delete(p.grants, i, i+1)
		p.read.FromLedger--
	}
	p.left = slices.DeleteFunc(p.left, func(l hongbao.Grant) bool { return sameWin(&l, &g) })
	g.EntryID = twinID(&g)
	p.twins = append(p.twins, g)
	p.read.FromReceipts++
}
