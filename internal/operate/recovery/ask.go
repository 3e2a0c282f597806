package recovery

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
	"github.com/hongbao-project/hongbao/internal/store"
)

// facts is what the ledger, the topic and the witnesses know of a frozen shard after the last event that Redis
// certainly had.
type facts struct {
	attempt store.Attempt
	began   time.Time
	before  store.Before
	redis   store.Sight // Redis' epoch, and its last seq
	// complete reports whether every process that may have reported a grant to a user is a witness that has sent all
	// its grants.
	complete bool
	ledger   ledger.Lost
	fenced   bool            // the topic has been fenced and read
	doubt    string          // why the topic can't be trusted; empty if it can
	high     int64           // highest seq in the topic, if the topic can't be fenced
	topic    []hongbao.Grant // may include grants that Redis has
	reported store.Evidence
	skips    store.Skips // what openings have skipped
	steps    model.OpeningSteps
	lapped   time.Time // when the previous step ended
}

func (f *facts) lap(step *int64) {
	now := time.Now()
	*step += now.Sub(f.lapped).Milliseconds()
	f.lapped = now
}

// wrote returns the time of the last write to the shard before it froze; the Unix epoch if it is unknown. If a lost
// grant is earlier, Redis' clock was ahead at its last write. A grant that a later epoch put back keeps its time and
// says nothing.
func (f *facts) wrote() time.Time {
	at := time.UnixMilli(f.attempt.Wrote)
	for _, g := range f.known() {
		if g.Epoch == f.redis.Epoch && g.Seq > f.redis.Seq && g.Time.Before(at) {
			at = g.Time
		}
	}
	return at
}

// over reports whether the shard is on another server than the attempt's, or the server was promoted since, or a
// process has seen the attempt's epoch or a later one.
func (f *facts) over(z *store.Frozen) bool {
	return z.Token != f.attempt.Token || z.History != f.attempt.History || z.Seen.Epoch >= f.attempt.Epoch
}

// known returns the grants after the last event that Redis certainly had, from the ledger, the topic and the
// witnesses.
func (f *facts) known() (known []restore.Known) {
	add := func(from restore.Source, grants []hongbao.Grant) {
		for i := range grants {
			if f.place(&grants[i]) > f.attempt.Floor {
				known = append(known, restore.Known{Grant: grants[i], From: from})
			}
		}
	}
	add(restore.Ledger, f.ledger.Grants)
	add(restore.Topic, f.topic)
	add(restore.Witness, f.reported.Grants)
	return known
}

// place returns the seq that says whether Redis' last event is before or after a grant: see Skips.Place.
func (f *facts) place(g *hongbao.Grant) int64 { return f.skips.Place(g.Epoch, g.Seq) }

func (f *facts) highest() int64 {
	seq := f.high
	for i := range f.topic {
		seq = max(seq, f.topic[i].Seq)
	}
	return seq
}

// ask begins an attempt to restore a shard, or continues one. It fences the ledger and the topic, so that they refuse
// events of earlier epochs that Redis has lost. Then it reads the ledger, the topic and the evidence of the witnesses.
// It returns nil if the shard can't be restored: Redis has lost the whole shard, its server hides its run_id, or the
// shard was opened without the ledger.
func (r *Recoverer) ask(ctx context.Context, shard int) (*facts, error) {
	k := r.cfg.Store.Shard(shard)
	z, err := k.Freeze(ctx)
	if err != nil || !z.Frozen || z.Seq < 0 || z.Token == "" || r.cfg.Ledger == nil {
		return nil, err
	}
	if list, _, err := k.Unrecorded(ctx); err != nil || len(list) > 0 {
		return nil, err
	}
	before, err := k.Before(ctx, restore.Overlap)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	attempt, err := r.begin(ctx, k, &z, &before)
	if err != nil {
		return nil, err
	}
	t := &r.shards[shard]
	f := t.facts
	if f == nil || f.attempt != attempt {
		f = &facts{attempt: attempt, began: time.Now()}
		if before.Attempt == attempt { // another recoverer began it, and processes have been sending since
			f.began = f.began.Add(-before.Asked)
		}
		t.facts = f
	}
	f.before, f.redis, f.lapped = before, store.Sight{Epoch: z.Epoch, Seq: z.Seq}, began
	f.lap(&f.steps.Ledger)
	for wrote := f.wrote(); ; wrote = f.wrote() {
		if err := r.collect(ctx, k, f); err != nil {
			return nil, err
		}
		if !f.wrote().Before(wrote) {
			return f, nil
		}
	}
}

// collect asks the ledger, the topic and the witnesses.
func (r *Recoverer) collect(ctx context.Context, k *store.Shard, f *facts) (err error) {
	group, asking := errgroup.WithContext(ctx)
	wrote := f.wrote() // reads what fenceTopic sets
	group.Go(func() error { return r.fenceTopic(asking, k, f, wrote) })
	group.Go(func() error { return r.hear(asking, k, f, wrote) })
	if err := group.Wait(); err != nil {
		return err
	}
	f.lapped = time.Now()
	if f.ledger, err = r.cfg.Ledger.LostEvents(ctx, k.Index(), f.attempt.Floor); err != nil {
		return err
	}
	if f.skips, err = k.Skips(ctx); err != nil {
		return err
	}
	f.reported, err = k.Evidence(ctx)
	return err
}

// begin returns the attempt that is under way. If there is none, it notes a new one in the ledger and then in Redis.
func (r *Recoverer) begin(ctx context.Context, k *store.Shard, z *store.Frozen, before *store.Before) (
	store.Attempt, error) {
	has, err := k.Attempt(ctx)
	if err != nil {
		return has, err
	}
	state, err := r.cfg.Ledger.Shard(ctx, k.Index())
	if err != nil {
		return has, err
	}
	if has.Epoch > z.Seen.Epoch && has.Epoch == state.Epoch && has.Token == z.Token && has.History == z.History {
		return has, nil
	}
	a := store.Attempt{Epoch: max(z.Epoch, z.Seen.Epoch, state.Epoch, has.Epoch) + 1,
		Wrote: before.Wrote.UnixMilli(), Token: z.Token, History: z.History}
	found := restore.ShardState{Seq: z.Seq, Certain: before.CertainSeq, OnePromotion: before.OnePromotion}
	if has.Epoch > 0 { // the earlier attempt may have written events above its floor
		found.Floors, a.Wrote = append(found.Floors, has.Floor), min(a.Wrote, has.Wrote)
	}
	fences, err := r.cfg.Ledger.Fences(ctx, k.Index())
	if err != nil {
		return a, err
	}
	for _, f := range fences {
		if f.Epoch > z.Epoch { // above that fence's floor Redis has a history that the later epoch has replaced
			found.Floors = append(found.Floors, f.Floor)
		}
	}
	a.Floor = restore.Intact(found)
	err = r.cfg.Ledger.Fence(ctx, ledger.Fence{Shard: k.Index(), From: state.Epoch, Epoch: a.Epoch, Floor: z.Seq,
		Token: z.Token})
	if err == nil && z.Seen.After(store.Sight{Epoch: z.Epoch, Seq: z.Seq}) {
		err = r.writeNote(ctx, k.Index(), a.Epoch, noteText{SeenIn: z.Seen.Epoch, Seen: z.Seen.Seq})
	}
	if err != nil {
		return a, err
	}
	return a, k.Begin(ctx, z, a) // if another worker has opened the shard meanwhile, FreezeFenced freezes it
}

// fenceTopic fences all earlier sessions of the topic, and reads the grants in the topic. It does so once in an
// attempt.
func (r *Recoverer) fenceTopic(ctx context.Context, k *store.Shard, f *facts, wrote time.Time) error {
	if r.cfg.Topic == nil || f.fenced {
		return nil
	}
	began := time.Now()
	defer func() { f.steps.Topic += time.Since(began).Milliseconds() }()
	since := topicSince(wrote, &f.before.LastWrite, r.cfg.Topic.FenceSince)
	open, err := k.Group(r.cfg.TopicSink).OpenClaims(ctx)
	if err != nil {
		return err
	}
	claims := make([]stream.Claim, len(open))
	for i := range open {
		claims[i] = open[i].Claim
	}
	fenced, err := r.cfg.Topic.Fence(ctx, stream.TopicFence{Shard: k.Index(), Since: since, Claims: claims})
	// If the broker refuses a fence and a read works, a shard that has lost nothing can still open. Its done bits are
	// restored from what Fence has read. After an outage the next call fences.
	if err != nil && ctx.Err() == nil && !hongbao.IsOutage(err) {
		f.doubt, f.topic = fmt.Sprintf("it can't be fenced: %v", err), fenced.Grants
		f.high, err = r.cfg.Topic.HighestSeq(ctx, k.Index(), since)
		return err
	}
	if err != nil {
		return fmt.Errorf("fence the topic: %w", err)
	}
	f.fenced, f.topic, f.doubt = true, fenced.Grants, fenced.Doubt
	return nil
}

// LastEntry returns the time from which the topic may have events that Redis has lost. It is a minute before the last
// write to the shard, even if its entry was trimmed. It is the zero time if that is unknown.
func (r *Recoverer) LastEntry(ctx context.Context, shard int) (time.Time, error) {
	last, err := r.cfg.Store.Shard(shard).LastWrite(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return topicSince(last.Wrote, &last, func(at time.Time) time.Time { return at.Add(-stream.ClockSkew) }), nil
}

// topicSince returns the time from which the topic has to be read, if Redis was last written at wrote, by its clock.
// The topic's times come from other clocks. So if Redis' clock is ahead of this worker's, the difference is taken off.
// The result is the zero time if wrote is unknown, or still in the future; else earlier moves it back.
func topicSince(wrote time.Time, last *store.LastWrite, earlier func(time.Time) time.Time) time.Time {
	at := wrote.Add(-max(0, last.Ahead))
	if wrote.UnixMilli() == 0 || at.After(time.Now()) {
		return time.Time{}
	}
	return earlier(at)
}

// hear waits for the witnesses, at most for Gather. It sets f.complete if all witnesses that have to report have sent
// everything to this attempt.
func (r *Recoverer) hear(ctx context.Context, k *store.Shard, f *facts, wrote time.Time) error {
	began := time.Now()
	defer func() { f.steps.Witnesses += time.Since(began).Milliseconds() }()
	unseen, least := f.before.Frozen.Sub(wrote), r.cfg.Gather
	if unseen >= 0 && unseen < freshWrite {
		least = r.cfg.Settle
	}
	for f.complete = false; ; {
		lines, err := k.Witnesses(ctx)
		if err != nil {
			return err
		}
		said := make([]restore.Line, len(lines))
		for i, l := range lines {
			said[i] = restore.Line{At: l.At, Sent: l.Sent == f.attempt.Epoch}
		}
		e := restore.Evidence{
			Silent: restore.Silent(said, wrote), Patience: r.cfg.Gather, Waited: time.Since(f.began),
			Lines: f.before.OnePromotion || f.before.AppendOnly && unseen < maxUnseen,
		}
		switch restore.Decide(e) {
		case restore.Exact:
			if e.Waited >= least {
				f.complete = true
				return nil
			}
		case restore.Guarded:
			return nil
		case restore.Wait:
		}
		if !retry.Pause(ctx, hearEvery) {
			return ctx.Err()
		}
	}
}

const (
	// hearEvery is the pause between two checks of which witnesses have reported.
	hearEvery = 50 * time.Millisecond
	// freshWrite is a short time from the last write to the freeze. Within it hardly any process can have begun to
	// answer users after the writes that Redis still has. After a longer time the recoverer waits for Gather: a live
	// process whose registration as a witness Redis has lost can report meanwhile.
	freshWrite = 2 * time.Second
	// maxUnseen is the time from the last write in an append-only file to the freeze up to which no registration as a
	// witness can be missing. After a longer time the file may be an older copy.
	maxUnseen = 10 * time.Second
)
