package replay

import (
	"context"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
)

// receipts finds grants that only the users' receipts have: their entries were deleted before the sink had finished
// them, or the sink has lost them. It leaves out dead letters, about which a person decides.
type receipts struct {
	sink string
	// lost reports whether the sink has lost a grant. If it is nil, all grants that the sink has finished are left out.
	lost   func(g *hongbao.Grant) bool
	shards []map[int64]hongbao.Grant // by seq; nil until needed. Only one goroutine uses an element
}

func newReceipts(c *Config) *receipts {
	if c.Sink == "" {
		return nil
	}
	return &receipts{sink: c.Sink, lost: c.Only, shards: make([]map[int64]hongbao.Grant, c.Store.Len())}
}

// of returns the grants with these seqs that only receipts have, ordered by seq. It reads the shard's receipts once,
// when the sink has not finished some of the seqs.
func (c *receipts) of(ctx context.Context, s *source, shard int, seqs stream.SeqRange) ([]hongbao.Grant, error) {
	k := s.store.Shard(shard)
	done, err := k.Group(c.sink).FinishedEvents(ctx, seqs)
	if err != nil {
		return nil, err
	}
	var grants []hongbao.Grant
	for seq := seqs.First; seq <= seqs.Last; seq++ {
		if c.lost == nil && done.Has(seq) {
			continue
		}
		if c.shards[shard] == nil {
			if err := c.read(ctx, s, shard); err != nil {
				return nil, err
			}
		}
		if g, ok := c.shards[shard][seq]; ok {
			grants = append(grants, g)
		}
	}
	return grants, nil
}

func (c *receipts) read(ctx context.Context, s *source, shard int) error {
	k := s.store.Shard(shard)
	head, err := k.Head(ctx)
	if err != nil {
		return err
	}
	done, err := k.Group(c.sink).FinishedEvents(ctx, stream.SeqRange{First: max(1, min(head.DoneFloor, head.Seq)),
		Last: head.Seq})
	if err != nil {
		return err
	}
	aside, err := deadletter.New(s.store).Aside(ctx, c.sink, shard)
	if err != nil {
		return err
	}
	c.shards[shard], err = k.GrantsByReceipts(ctx, func(g *hongbao.Grant) bool {
		if g.Seq > head.Seq || aside.Has(g) {
			return false
		}
		return g.Seq >= head.DoneFloor && !done.Has(g.Seq) || c.lost != nil && c.lost(g)
	})
	for seq, g := range c.shards[shard] {
		g.EntryID = ledgerID(seq) // the grant has no entry, like a grant from the ledger
		c.shards[shard][seq] = g
	}
	return err
}

func (c *receipts) has(g *hongbao.Grant) bool {
	if c == nil {
		return false
	}
	r, ok := c.shards[g.Shard][g.Seq]
	_, _, made := parseMadeID(g.EntryID)
	return ok && made && sameWin(&r, g)
}
