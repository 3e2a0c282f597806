package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
)

// readStreams reads the streams' entries and the ranges of seqs that openings have skipped.
func (r *run) readStreams(ctx context.Context) error {
	if r.partial() {
		return nil
	}
	for _, s := range r.shards {
		err := r.readStream(ctx, s)
		if err == nil {
			s.skipped, err = s.Skipped(ctx)
		}
		if err != nil {
			return fmt.Errorf("shard %d: %w", s.Index(), err)
		}
	}
	return nil
}

func (r *run) readStream(ctx context.Context, s *shard) error {
	next := int64(0) // first seq of the next entry; 0 if it is unknown
	highest := int64(0)
	for page, err := range s.Pages(ctx, "-", "+") {
		if err != nil {
			return err
		}
		for i := range page {
			e, err := stream.ParseEntry(s.Index(), page[i].ID, page[i].Values)
			if errors.Is(err, stream.ErrNewerEntry) {
				return err
			}
			if err != nil {
				r.found(model.Difference{Kind: UnreadableEntry, Where: s.Keys.Events(), Detail: err.Error()})
				next = 0
				continue
			}
			if next > 0 && e.Seq > next {
				s.gaps = append(s.gaps, stream.SeqRange{First: next, Last: e.Seq - 1})
			}
			next = max(next, e.Seq+e.Events())
			highest = next - 1
			r.entry(s, &e)
		}
	}
	if next > 0 && highest < s.seq {
		s.gaps = append(s.gaps, stream.SeqRange{First: highest + 1, Last: s.seq})
	}
	return nil
}

func (r *run) entry(s *shard, e *stream.Entry) {
	if e.Kind == stream.EntryClose {
		s.seen.add(e.Seq)
		s.closes[e.Campaign] = *e
		return
	}
	for i := range e.Grants {
		r.observe(inStream, &e.Grants[i])
	}
}
