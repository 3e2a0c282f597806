package recovery

import (
	"cmp"
	"context"
	"slices"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
	"github.com/hongbao-project/hongbao/internal/store"
)

// restore puts back what Redis has lost, and withholds what a silent process may have reported. If only a person can
// decide, it returns why, and has changed nothing, except when Redis refused to put a grant back. lost reports whether
// a loss is known. begun has the plan that an earlier recoverer noted for this attempt; nil if there is none.
func (r *Recoverer) restore(ctx context.Context, v *ShardReport, f *facts, lost bool, begun *model.RestoreCounts) (
	done *model.RestoreCounts, why string, err error) {
	var kept []restore.Known
	if lost {
		if kept, why, err = r.judge(ctx, v, f); err != nil || why != "" {
			return nil, why, err
		}
	}
	f.lap(&f.steps.Judge)
	done = planned(v, f, begun)
	if v.guarded = done.Silent; v.guarded {
		if why := v.lostWithheld(); why != "" {
			return nil, why, nil
		}
		margin, err := r.margin(ctx, v, f, kept, done.Unknown)
		if err != nil {
			return nil, "", err
		}
		done.Margin = max(done.Margin, margin)
	}
	if v.restored = v.Redis; !lost && done.Unknown == 0 {
		if done.First, done.Last = 0, 0; done.Margin == 0 { // a quiet restart
			return done, "", nil
		}
	}
	if why, err := r.putBack(ctx, v, f, kept, done); err != nil || why != "" {
		return nil, why, err
	}
	if len(kept) > 0 {
		v.restored = kept[len(kept)-1].Seq
	}
	done.Withheld, err = r.countWithheld(ctx, v)
	f.lap(&f.steps.PutBack)
	return done, "", err
}

// putBack withholds packets and puts back grants, in an order that another recoverer can continue. If Redis refuses a
// grant, it returns why a person has to decide.
func (r *Recoverer) putBack(ctx context.Context, v *ShardReport, f *facts, kept []restore.Known,
	done *model.RestoreCounts) (
	why string, err error) {
	if done.Changed() { // noted before any change
		if err := r.note(ctx, v, done); err != nil {
			return "", err
		}
	}
	if v.guarded {
		if err := r.withhold(ctx, v, kept, done.Margin); err != nil {
			return "", err
		}
	}
	k := r.cfg.Store.Shard(v.Shard)
	if err := k.RestoreGrants(ctx, f.attempt, runsOf(v, kept)...); err != nil {
		if hongbao.ClassOf(err) == hongbao.ClassConflict {
			return err.Error(), nil
		}
		return "", err
	}
	if v.guarded && done.Margin+done.Unknown > 0 {
		if err := r.withholdRest(ctx, v); err != nil {
			return "", err
		}
	}
	for id, c := range v.here {
		if done.Unknown == 0 || v.guarded && c.places > 1 { // then no packet returns to the stock: the rest is withheld
			continue
		}
		if err := k.Revise(ctx, f.attempt, id); err != nil {
			return "", err
		}
	}
	return "", nil
}

// planned counts what a restore puts back. It includes what an earlier recoverer has put back in this attempt.
func planned(v *ShardReport, f *facts, begun *model.RestoreCounts) *model.RestoreCounts {
	done := &model.RestoreCounts{First: v.Redis + 1, Last: v.Known(), Silent: v.guarded, Planned: true}
	if begun != nil {
		done.Silent, done.Margin = begun.Silent || v.guarded, begun.Margin
		if begun.First > 0 {
			done.First, done.Last = begun.First, max(begun.Last, done.Last)
		}
	}
	sources := map[int64]restore.Source{}
	known := slices.DeleteFunc(f.known(), func(g restore.Known) bool { return f.place(&g.Grant) < done.First })
	slices.SortFunc(known, func(a, b restore.Known) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, g := range known {
		if from, has := sources[g.Seq]; g.Seq >= done.First && (!has || g.From < from) {
			sources[g.Seq] = g.From
			done.Last = max(done.Last, g.Seq)
		}
	}
	for _, from := range sources {
		switch from {
		case restore.Ledger:
			done.Ledger++
		case restore.Topic:
			done.Topic++
		case restore.Witness, restore.Redis:
			done.Witnesses++
		}
	}
	spans := lostSpans(v, done.First, known)
	for _, s := range spans {
		done.Last = max(done.Last, s.Seqs.Last)
	}
	done.Unknown = unknown(spans)
	return done
}

// runsOf returns the grants to put back as runs for Regrant, and the unknown seqs between them as runs without grants.
func runsOf(v *ShardReport, kept []restore.Known) (runs []store.Run) {
	next := v.Redis + 1
	for rest := kept; len(rest) > 0; {
		run := runOf(rest)
		rest = rest[len(run):]
		if first := run[0].Seq; first > next {
			runs = append(runs, store.Run{Unknown: stream.SeqRange{First: next, Last: first - 1}, Reported: v.guarded})
		}
		next = run[len(run)-1].Seq + 1
		runs = append(runs, store.Run{Grants: run, Generations: v.here[run[0].Campaign].dealt})
	}
	return runs
}

// runOf returns the longest prefix of kept that fits one entry: one campaign, currency and time, and consecutive seqs.
func runOf(kept []restore.Known) (run []hongbao.Grant) {
	for i := range kept {
		g := kept[i].Grant
		if i > 0 && (g.Campaign != run[0].Campaign || g.Seq != run[i-1].Seq+1 || g.Currency != run[0].Currency ||
			g.Time.UnixMilli() != run[0].Time.UnixMilli()) || i == stream.MaxEntryGrants {
			break
		}
		run = append(run, g)
	}
	return run
}

// markTopic sets the done bits of the events that the topic has. Redis may have lost these bits, and the publisher
// would send the events again. A requeue of dead letters has its own bits: Redis may have lost them, and have the
// letters again.
func (r *Recoverer) markTopic(ctx context.Context, k *store.Shard, f *facts, last int64) error {
	var events []stream.CampaignRange
	for i := range f.topic { // in the order of the seqs; two grants with the same seq have one bit
		g := &f.topic[i]
		if n := len(events); g.Seq <= last && (n == 0 || events[n-1].Last < g.Seq) {
			events = stream.AppendEvent(events, g.Campaign, g.Seq)
		}
	}
	sink := r.cfg.TopicSink
	if err := k.SetDone(ctx, f.attempt, sink, sink, events); err != nil {
		return err
	}
	return k.SetDone(ctx, f.attempt, sink, deadletter.RequeueSink(sink), stream.OfCampaign("", stream.Seqs(events)...))
}

// keepTopic sets the done bits of the events that the topic has, so that they are not sent again after an accepted
// loss. It does nothing if the topic contradicts Redis. It fences the topic first, and waits for the witnesses
// meanwhile. A witness that reports no more than the person was shown does not stop the opening.
func (r *Recoverer) keepTopic(ctx context.Context, v *ShardReport) error {
	f, err := r.ask(ctx, v.Shard)
	if err != nil || f == nil {
		return err
	}
	k := r.cfg.Store.Shard(v.Shard)
	z, err := k.Freeze(ctx)
	if err != nil {
		return err
	}
	if !z.Seen.After(v.last()) {
		v.state.Seen = z.Seen
	}
	if f.doubt != "" {
		return nil
	}
	if _, _, why, err := r.missing(ctx, v, f); err != nil || why != "" {
		return err
	}
	return r.markTopic(ctx, k, f, v.Redis)
}

// lost reports whether something must be put back. begun has the plan that an earlier recoverer noted for this attempt.
// why is not empty if only a person can decide.
func (r *Recoverer) lost(ctx context.Context, v *ShardReport, f *facts) (lost bool, begun *model.RestoreCounts,
	why string, err error) {
	if f == nil {
		return v.Lost(), nil, "", nil
	}
	if v.noted, err = r.noted(ctx, v.Shard); err != nil {
		return false, nil, "", err
	}
	for i := range v.noted {
		if n := &v.noted[i]; n.Epoch == f.attempt.Epoch && (n.First > 0 || n.Silent) {
			begun = &n.RestoreCounts
		}
	}
	if v.Lost() || begun != nil && begun.First > 0 {
		return true, begun, "", nil
	}
	if err := r.readWithheld(ctx, v); err != nil {
		return false, nil, "", err
	}
	// A server that was demoted and promoted again may have granted other packets under the same seqs.
	missing, _, why, err := r.missing(ctx, v, f)
	return len(missing) > 0, begun, why, err
}

// freezeAgain reads the shard's state after a restore. It returns an error if the state is not that of the report with
// the restored events: Redis may have lost them again, or a process has reported more.
func (r *Recoverer) freezeAgain(ctx context.Context, v *ShardReport, f *facts) error {
	z, err := r.cfg.Store.Shard(v.Shard).Freeze(ctx)
	if err != nil {
		return err
	}
	if !z.Frozen || f.over(&z) || z.Seq < v.restored || z.Seen.After(v.last()) || z.Late != v.Late {
		return store.ErrAttemptOver
	}
	v.state, v.Redis, v.Campaigns = z, z.Seq, nil
	for id, c := range v.here { // after the restore no campaign is in doubt
		if c.added > 0 {
			v.dealt[id] = c.dealt
		}
	}
	return nil
}

// restoreAndOpen restores what a shard has lost, and opens the shard. If only a person can decide, it returns why.
func (r *Recoverer) restoreAndOpen(ctx context.Context, v *ShardReport, f *facts) (why string, err error) {
	v.evidence = store.AnyEvidence
	if f != nil {
		if v.evidence, v.attempt = f.reported.Texts, f.attempt; f.over(&v.state) {
			return "", store.ErrAttemptOver
		}
	}
	var done *model.RestoreCounts
	lost, begun, why, err := r.lost(ctx, v, f)
	if err != nil || why != "" {
		return why, err
	}
	if !lost && f != nil {
		r.guard(v, f, nil, false)
	}
	if lost || v.guarded || begun != nil {
		if done, why, err = r.restore(ctx, v, f, lost, begun); err != nil || why != "" {
			return why, err
		}
		if err := r.freezeAgain(ctx, v, f); err != nil {
			return "", err
		}
	}
	if f != nil {
		if err := r.markTopic(ctx, r.cfg.Store.Shard(v.Shard), f, v.Redis); err != nil {
			return "", err
		}
		f.lap(&f.steps.Marks)
	}
	v.counts = cmp.Or(done, &model.RestoreCounts{})
	if err := r.open(ctx, v, nil); err != nil {
		return "", err
	}
	r.shards[v.Shard].facts = nil
	r.logOpening(v, f, done)
	if done == nil || !done.Changed() {
		return "", nil
	}
	done.Took, done.Planned = f.steps, false
	if err := r.note(ctx, v, done); err != nil { // the shard is open even without the note
		r.cfg.Log.Warn("what was restored could not be noted in the ledger", zap.Int("shard", v.Shard), zap.Error(err))
	}
	return "", nil
}
