package replay

import (
	"context"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/deadletter"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/stream"
)

// told finds grants that users were told of and whose entries were deleted before their sink had finished them: only
// receipts have them. What the sink has finished is not wanted, nor is what is among its dead letters: these are
// decided one by one.
type told struct {
	sink   string
	shards []map[int64]hongbao.Grant // by seq; nil until a shard needs it. One goroutine works on a shard
}

func newTold(sink string, n int) *told {
	if sink == "" {
		return nil
	}
	return &told{sink: sink, shards: make([]map[int64]hongbao.Grant, n)}
}

// of gives the grants that are wanted among seqs, in their order. Receipts are read once a shard, and only if the sink
// has not finished some of the seqs.
func (t *told) of(ctx context.Context, s *source, shard int, seqs stream.SeqRange) ([]hongbao.Grant, error) {
	k := shards.Of(s.rdb, s.space.Shard(shard))
	done, err := k.GroupDone(ctx, t.sink, seqs)
	if err != nil {
		return nil, err
	}
	var grants []hongbao.Grant
	for seq := seqs.First; seq <= seqs.Last; seq++ {
		if done.Has(seq) {
			continue
		}
		if t.shards[shard] == nil {
			if err := t.read(ctx, s, shard); err != nil {
				return nil, err
			}
		}
		if g, ok := t.shards[shard][seq]; ok {
			grants = append(grants, g)
		}
	}
	return grants, nil
}

// read reads the receipts of a shard.
func (t *told) read(ctx context.Context, s *source, shard int) error {
	k := shards.Of(s.rdb, s.space.Shard(shard))
	head, err := k.Head(ctx)
	if err != nil {
		return err
	}
	done, err := k.GroupDone(ctx, t.sink, stream.SeqRange{First: max(1, min(head.DoneFloor, head.Seq)), Last: head.Seq})
	if err != nil {
		return err
	}
	aside, err := deadletter.New(s.rdb, s.space).Seqs(ctx, t.sink, shard)
	if err != nil {
		return err
	}
	t.shards[shard], err = k.Told(ctx, func(seq int64) bool {
		return seq >= head.DoneFloor && seq <= head.Seq && !done.Has(seq) && !aside[seq]
	})
	for seq, g := range t.shards[shard] {
		g.EntryID = ledgerID(seq) // as if it had come from the ledger: neither has an entry
		t.shards[shard][seq] = g
	}
	return err
}

// has tells whether a grant came from a receipt.
func (t *told) has(g *hongbao.Grant) bool {
	if t == nil {
		return false
	}
	_, ok := t.shards[g.Shard][g.Seq]
	return ok && g.EntryID == ledgerID(g.Seq)
}
