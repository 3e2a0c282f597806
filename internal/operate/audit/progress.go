package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// progress is what a group has finished on a shard: all seqs up to finished. After finished, bits has the done bits up
// to upto.
type progress struct {
	exists         bool
	finished, upto int64
	bits           store.Bitset
}

func (p *progress) done(seq int64) bool {
	return seq <= p.finished || seq <= p.upto && p.bits.Has(seq)
}

func (p *progress) anyUndone(first, last int64) bool {
	for seq := max(first, p.finished+1); seq <= last; seq++ {
		if !p.done(seq) {
			return true
		}
	}
	return false
}

// waitQuiet waits until every group has finished everything, at most for Options.Wait.
func (r *run) waitQuiet(ctx context.Context) error {
	over := time.Now().Add(r.opts.Wait)
	return retry.Poll(ctx, 50*time.Millisecond, func() (_ bool, err error) {
		r.report.Quiet, err = r.quiet(ctx)
		return r.report.Quiet || !time.Now().Before(over), err
	})
}

func (r *run) quiet(ctx context.Context) (bool, error) {
	for _, s := range r.shards {
		for _, k := range r.sinks {
			p, seq, err := r.progressOf(ctx, s, k.group)
			if err != nil || p.finished < seq {
				return false, err
			}
		}
	}
	return true, nil
}

// readProgress reads the progress of every group before its sink is read: the sink must have everything that is
// finished here.
func (r *run) readProgress(ctx context.Context) error {
	for _, k := range r.sinks {
		for i, s := range r.shards {
			p, seq, err := r.progressOf(ctx, s, k.group)
			if err != nil {
				return err
			}
			if !p.exists {
				if err := r.groupMissing(ctx, s, k.group, seq); err != nil {
					return err
				}
			}
			if p.upto = seq; p.finished < seq {
				p.bits, err = s.Group(k.group).Done(ctx, stream.SeqRange{First: p.finished + 1, Last: seq})
				if err != nil {
					return err
				}
			}
			k.at[i] = p
			s.report.Finished[k.group] = p.finished
		}
		if r.Owed == nil {
			continue
		}
		var err error
		if k.owed, err = r.Owed(ctx, k.group); err != nil {
			return err
		}
	}
	return nil
}

// groupMissing reports a missing consumer group if the shard has events. After Redis was emptied, the opening only skips
// seqs, and the workers create their groups a few seconds later.
func (r *run) groupMissing(ctx context.Context, s *shard, group string, seq int64) error {
	skipped, err := s.Skipped(ctx) // later than seq, so it has all of them
	if err != nil {
		return err
	}
	var events int64
	for _, some := range store.Without([]stream.SeqRange{{First: 1, Last: seq}}, skipped) {
		events += some.Len()
	}
	if events > 0 {
		r.found(model.Difference{Kind: GroupMissing, Where: s.Keys.Events(),
			Detail: fmt.Sprintf("shard %d has %d events, but no consumer group %s", s.Index(), events, group)})
	}
	return nil
}

// progressOf reads a group's progress. seq is the shard's last seq, and is read first: so finished is never too high
// while the shard goes on.
func (r *run) progressOf(ctx context.Context, s *shard, group string) (p progress, seq int64, err error) {
	if seq, err = s.LastSeq(ctx); err != nil {
		return p, 0, err
	}
	p.finished, p.exists, err = s.Group(group).Finished(ctx, seq)
	return p, seq, err
}
