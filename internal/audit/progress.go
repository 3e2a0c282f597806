package audit

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/stream"
)

// progress is how far a group has come on a shard: everything up to finished, and what the done bits say up to upto.
type progress struct {
	exists         bool
	finished, upto int64
	bits           shards.Bitset
}

func (p *progress) done(seq int64) bool {
	return seq <= p.finished || seq <= p.upto && p.bits.Has(seq)
}

// pollQuiet is how often waitQuiet looks.
const pollQuiet = 50 * time.Millisecond

// waitQuiet waits until every group has finished everything, or the time is over.
func (r *run) waitQuiet(ctx context.Context) error {
	timeout := time.NewTimer(r.opts.Wait)
	defer timeout.Stop()
	tick := time.NewTicker(pollQuiet)
	defer tick.Stop()
	for {
		quiet, err := r.quiet(ctx)
		if err != nil {
			return err
		}
		if quiet {
			r.report.Quiet = true
			return nil
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
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

// readProgress reads how far every group is, before its sink is read: what is finished here must be there.
func (r *run) readProgress(ctx context.Context) error {
	for _, k := range r.sinks {
		for i, s := range r.shards {
			p, seq, err := r.progressOf(ctx, s, k.group)
			if err != nil {
				return err
			}
			if !p.exists && seq > 0 {
				r.found(Difference{Kind: GroupMissing, Where: s.Events(),
					Detail: fmt.Sprintf("shard %d has %d events, but no consumer group %s", s.Index(), seq, k.group)})
			}
			if p.finished < seq {
				p.bits, err = shards.Of(r.Redis, s.Keys).Done(ctx, k.group, stream.SeqRange{First: p.finished + 1, Last: seq})
				if err != nil {
					return err
				}
				p.upto = seq
			}
			k.at[i] = p
			s.report.Finished[k.group] = p.finished
		}
	}
	return nil
}

// progressOf asks how far a group is. Whatever moves meanwhile, the answer is never too high. seq is the shard's, read
// first.
func (r *run) progressOf(ctx context.Context, s *shard, group string) (p progress, seq int64, err error) {
	if seq, err = r.seqOf(ctx, s); err != nil {
		return p, 0, err
	}
	p.finished, p.exists, err = shards.Of(r.Redis, s.Keys).GroupFinished(ctx, group, seq)
	return p, seq, err
}

// parseSeq reads a seq; 0 if it is none.
func parseSeq(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
