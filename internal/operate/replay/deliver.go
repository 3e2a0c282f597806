package replay

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/delivery"
	"github.com/hongbao-project/hongbao/internal/store"
)

// part delivers those grants of a part that match the filter and are not delivered yet.
func (w *run) part(ctx context.Context, shard int, p *part) error {
	for twin := range slices.Chunk(p.twins, 1) {
		if err := w.batch(ctx, shard, twin); err != nil {
			return err
		}
	}
	grants := slices.DeleteFunc(p.grants, func(g hongbao.Grant) bool { return !w.wants(&g) })
	for batch := range slices.Chunk(grants, w.to.BatchGrants) {
		if err := w.batch(ctx, shard, batch); err != nil {
			return err
		}
	}
	w.note(func(r *model.ReplayReport) {
		r.Looked += p.events
		r.ReplayCounts.Add(&p.read)
		r.SameSeq += int64(len(p.left))
	})
	if w.opts.Dead != "" {
		return ctx.Err()
	}
	at := &w.shard[shard].seqs
	at.First += p.events
	return errors.Join(w.noteNext(ctx, shard, at.First), ctx.Err())
}

// wants reports whether the replay selects a grant.
func (w *run) wants(g *hongbao.Grant) bool {
	owed := w.Owed == nil || w.opts.Filter.Seqs.Last > 0 || w.Owed[g.Shard].Owes(g.Seq)
	return owed && w.opts.Filter.matches(g) && (w.Only == nil || w.Only(g)) && !w.shard[g.Shard].aside.Has(g)
}

// noteNext stores the seq at which the next run continues; 0 means at the beginning.
func (w *run) noteNext(ctx context.Context, shard int, next int64) error {
	if w.opts.DryRun || w.shard[shard].failed {
		return nil
	}
	return w.at(shard).Replayed(context.WithoutCancel(ctx), w.Name, next)
}

func (w *run) note(change func(*model.ReplayReport)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.report)
	if w.Progress != nil {
		w.Progress(&w.report)
	}
}

func (w *run) batch(ctx context.Context, shard int, grants []hongbao.Grant) error {
	k := w.at(shard)
	bits := k.Group(w.DoneSink)
	doneOf := bits.Done
	if w.DoneSink != DoneSink(w.Name) {
		doneOf = bits.FinishedEvents
	}
	done, err := doneOf(ctx, stream.SeqRange{First: grants[0].Seq, Last: grants[len(grants)-1].Seq})
	if err != nil {
		return err
	}
	left := make([]hongbao.Grant, 0, len(grants))
	var has []hongbao.Grant // Redis has lost their done bits
	for i := range grants {
		switch {
		case done.Has(grants[i].Seq):
		case w.target != nil && w.target.has(&grants[i]):
			has = append(has, grants[i])
		default:
			left = append(left, grants[i])
		}
	}
	if !w.opts.DryRun {
		if err := w.mark(ctx, k, w.DoneSink, has); err != nil {
			return err
		}
	}
	there, err := w.there(ctx, shard, left)
	if err != nil {
		return err
	}
	w.note(func(r *model.ReplayReport) {
		r.Matched += int64(len(grants))
		r.Before += int64(len(grants) - len(left))
		if w.opts.DryRun {
			r.There += int64(len(there))
		}
	})
	if w.opts.DryRun || len(left) == 0 {
		return nil
	}
	return w.to.Deliver(ctx, hongbao.Batch{Shard: shard, Epoch: k.Epoch(), Grants: left}, delivery.Results{
		Delivered: func(ctx context.Context, grants []hongbao.Grant) error {
			if err := w.marked(ctx, k, grants); err != nil {
				return err
			}
			had := int64(0)
			for i := range grants {
				if there[grants[i].Seq] {
					had++
				}
			}
			w.note(func(r *model.ReplayReport) {
				r.There += had
				r.Delivered += int64(len(grants)) - had
			})
			return nil
		},
		Refused: func(g *hongbao.Grant, err error) {
			w.shard[shard].failed = true
			w.note(func(r *model.ReplayReport) { r.Refusals.Add("", g, err) })
		},
	})
}

// marked sets the done bits of the delivered grants, unless the Handler sets them. Grants from receipts are also marked
// as done for the sink.
func (w *run) marked(ctx context.Context, k *store.Shard, grants []hongbao.Grant) error {
	if w.Marks {
		return nil
	}
	if err := w.mark(ctx, k, w.DoneSink, grants); err != nil {
		return err
	}
	fromReceipts := slices.DeleteFunc(slices.Clone(grants),
		func(g hongbao.Grant) bool { return !w.source.receipts.has(&g) })
	if len(fromReceipts) == 0 {
		return nil
	}
	seqs := stream.SeqRange{First: fromReceipts[0].Seq, Last: fromReceipts[len(fromReceipts)-1].Seq}
	done, err := k.Group(w.Sink).FinishedEvents(ctx, seqs)
	if err != nil {
		return err
	}
	unmarked := slices.DeleteFunc(fromReceipts, func(g hongbao.Grant) bool { return done.Has(g.Seq) })
	return w.mark(ctx, k, w.Sink, unmarked) // their entries are gone, so no worker will mark them
}

// there returns, by seq, which of the grants the ledger already has before the delivery. It returns nil if the target
// is not the ledger.
func (w *run) there(ctx context.Context, shard int, grants []hongbao.Grant) (map[int64]bool, error) {
	if !w.Settles || w.Ledger == nil || len(grants) == 0 {
		return nil, nil
	}
	bySeq := make(map[int64]*hongbao.Grant, len(grants))
	for i := range grants {
		bySeq[grants[i].Seq] = &grants[i]
	}
	has := map[int64]bool{}
	seqs := stream.SeqRange{First: grants[0].Seq, Last: grants[len(grants)-1].Seq}
	err := w.Ledger.EachGrantBySeq(ctx, shard, seqs, func(g hongbao.Grant) error {
		if want := bySeq[g.Seq]; want != nil && want.Campaign == g.Campaign && want.Packet == g.Packet {
			has[g.Seq] = true
		}
		return nil
	})
	return has, err
}

// mark sets done bits of grants. Only those of the replay's sink are counted by campaign.
func (w *run) mark(ctx context.Context, k *store.Shard, bits string, grants []hongbao.Grant) error {
	if len(grants) == 0 {
		return nil
	}
	events := stream.EventsOf(grants)
	if bits != w.Sink {
		events = stream.OfCampaign("", stream.Seqs(events)...)
	}
	_, err := k.Group(bits).Ack(ctx, events, nil)
	return err
}

// eachLetter calls fn with the grants of the dead letters of opts.Dead. It leaves out grants above the last seq that
// the replay covers.
func (w *run) eachLetter(ctx context.Context, shard int, fn func(*part) error) error {
	return w.letters.Each(ctx, w.opts.Dead, shard, "", func(page []model.Letter) error {
		p := &part{events: int64(len(page))}
		for i := range page {
			switch g := page[i].Grant; {
			case g == nil:
				p.read.Unreadable++
			case g.Seq <= w.report.Last[shard]:
				p.grants = append(p.grants, *g)
				p.read.FromDead++
			}
		}
		slices.SortStableFunc(p.grants, func(a, b hongbao.Grant) int { return cmp.Compare(a.Seq, b.Seq) })
		p.grants = slices.CompactFunc(p.grants, func(a, b hongbao.Grant) bool { return a.Seq == b.Seq })
		return fn(p)
	})
}
