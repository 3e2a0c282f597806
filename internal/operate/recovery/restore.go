package recovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
	"github.com/hongbao-project/hongbao/internal/store"
)

// facts are what everybody knows of a frozen shard behind the last event that Redis surely had.
type facts struct {
	attempt store.Attempt
	began   time.Time
	before  store.Before
	// complete: whoever was told of a grant is among the witnesses that have spoken.
	complete bool
	ledger   ledger.Lost
	fenced   bool            // the topic was asked
	doubt    string          // about the topic
	high     int64           // the last event that the topic has, if it can't be fenced
	topic    []hongbao.Grant // also some that Redis has
	told     store.Evidence
	given    []stream.SeqRange // seqs whose loss a person has accepted
	steps    Steps
	lapped   time.Time // when a step of them ended last
}

// Steps is how long each step of an opening took, in ms; of one that was tried again all tries. Witnesses and Topic go on at
// the same time.
type Steps struct {
	Ledger    int64 `json:"fence_ledger_ms"`
	Witnesses int64 `json:"hear_ms"`
	Topic     int64 `json:"fence_topic_ms"`
	Judge     int64 `json:"judge_ms"`
	PutBack   int64 `json:"put_back_ms"`
	Marks     int64 `json:"mark_ms"`
	Open      int64 `json:"open_ms"`
}

// lap ends a step that began when the last one ended.
func (f *facts) lap(step *int64) {
	now := time.Now()
	*step += now.Sub(f.lapped).Milliseconds()
	f.lapped = now
}

// wrote is when Redis wrote the shard last before it froze.
func (f *facts) wrote() time.Time { return time.UnixMilli(f.attempt.Wrote) }

// known are the grants behind the last event that Redis surely had.
func (f *facts) known() (known []restore.Known) {
	add := func(from restore.Source, grants []hongbao.Grant) {
		for i := range grants {
			if grants[i].Seq > f.attempt.Floor {
				known = append(known, restore.Known{Grant: grants[i], From: from})
			}
		}
	}
	add(restore.Ledger, f.ledger.Grants)
	add(restore.Topic, f.topic)
	add(restore.Witness, f.told.Grants)
	return known
}

// highest is the last event that the topic has.
func (f *facts) highest() int64 {
	seq := f.high
	for i := range f.topic {
		seq = max(seq, f.topic[i].Seq)
	}
	return seq
}

// ask begins an attempt, or goes on with one: from then on the ledger and the topic take nothing of an earlier epoch that
// Redis has lost. Then it asks them and the witnesses. It returns nil for a shard that can't be restored: one that is gone, one
// whose server hides its run, and one that was opened without the ledger.
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
		t.facts = f
	}
	f.before, f.lapped = before, began
	f.lap(&f.steps.Ledger)
	group, asking := errgroup.WithContext(ctx)
	group.Go(func() error { return r.fenceTopic(asking, k, f) })
	group.Go(func() error { return r.hear(asking, k, f) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	f.lapped = time.Now()
	if f.ledger, err = r.cfg.Ledger.LostEvents(ctx, shard, f.attempt.Floor); err != nil {
		return nil, err
	}
	if f.given, err = k.GivenUp(ctx); err != nil {
		return nil, err
	}
	f.told, err = k.Evidence(ctx)
	return f, err
}

// begin notes an attempt in the ledger and then in Redis, or returns the one that is under way.
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
	if has.Epoch > 0 && has.Epoch == state.Epoch && has.Token == z.Token && has.History == z.History {
		return has, nil
	}
	a := store.Attempt{Epoch: max(z.Epoch, state.Epoch, has.Epoch) + 1, Floor: z.Seq, Wrote: before.Wrote.UnixMilli(),
		Token: z.Token, History: z.History}
	if !before.Direct {
		a.Floor = min(a.Floor, before.Sure)
	}
	if has.Epoch > 0 { // what is behind it, an attempt has put back
		a.Floor, a.Wrote = min(a.Floor, has.Floor), min(a.Wrote, has.Wrote)
	}
	fences, err := r.cfg.Ledger.Fences(ctx, k.Index())
	if err != nil {
		return a, err
	}
	for _, f := range fences {
		if f.Epoch > z.Epoch { // what Redis has behind it is of a history that this opening has replaced
			a.Floor = min(a.Floor, f.Floor)
		}
	}
	err = r.cfg.Ledger.Fence(ctx, ledger.Fence{Shard: k.Index(), From: state.Epoch, Epoch: a.Epoch, Floor: z.Seq,
		Token: z.Token})
	if err != nil {
		return a, err
	}
	return a, k.Begin(ctx, z, a)
}

// fenceTopic keeps every session of before from the topic, and reads what it has. It does so once for an attempt.
func (r *Recoverer) fenceTopic(ctx context.Context, k *store.Shard, f *facts) error {
	if r.cfg.Topic == nil || f.fenced {
		return nil
	}
	began := time.Now()
	defer func() { f.steps.Topic += time.Since(began).Milliseconds() }()
	var since time.Time
	if f.attempt.Wrote > 0 {
		since = r.cfg.Topic.FenceSince(f.wrote())
	}
	open, err := k.OpenClaims(ctx, r.cfg.TopicSink)
	if err != nil {
		return err
	}
	claims := make([]stream.Claim, len(open))
	for i := range open {
		claims[i] = open[i].Claim
	}
	fenced, err := r.cfg.Topic.Fence(ctx, stream.TopicFence{Shard: k.Index(), Since: since, Claims: claims})
	if err != nil && ctx.Err() == nil { // it can be read, maybe: then a shard that has lost nothing opens
		f.doubt = fmt.Sprintf("it can't be fenced: %v", err)
		f.high, err = r.cfg.Topic.HighestSeq(ctx, k.Index(), since)
		return err
	}
	if err != nil {
		return fmt.Errorf("fence the topic: %w", err)
	}
	f.fenced, f.topic, f.doubt = true, fenced.Grants, fenced.Doubt
	return nil
}

// hear waits for the witnesses, up to Gather, and notes whether all that have to speak have sent all to the attempt.
func (r *Recoverer) hear(ctx context.Context, k *store.Shard, f *facts) error {
	began := time.Now()
	defer func() { f.steps.Witnesses += time.Since(began).Milliseconds() }()
	unseen, least := f.before.Frozen.Sub(f.wrote()), r.cfg.Gather
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
			Ledger: true, Topic: true, // they answer, or the attempt fails
			Silent: restore.Silent(said, f.wrote()), Patience: r.cfg.Gather, Waited: time.Since(f.began),
			Lines: f.before.Direct || unseen < maxUnseen,
		}
		switch restore.Decide(e) {
		case restore.Exact:
			if e.Waited >= least {
				f.complete = true
				return nil
			}
		case restore.Guarded:
			return nil
		case restore.Stay, restore.Wait:
		}
		if !retry.Pause(ctx, hearEvery) {
			return ctx.Err()
		}
	}
}

const (
	// hearEvery is how often a recoverer looks who has spoken.
	hearEvery = 50 * time.Millisecond
	// freshWrite is how long before the freeze the last write may be, so that hardly any process can have begun to answer
	// since. Else one that lives gets Gather to send what it knows, although Redis has lost its line.
	freshWrite = 2 * time.Second
	// maxUnseen is how long before the freeze the last write of a file may be: later no line can be missing.
	maxUnseen = 10 * time.Second
)

// Counts are what came back with a restore, by who knew of it first, how many events nobody knew, and what was withheld for these.
type Counts struct {
	Ledger    int   `json:"ledger"`
	Topic     int   `json:"topic"`
	Witnesses int   `json:"witnesses"`
	Nobody    int64 `json:"nobody"`
	// Silent: a process was silent that may have told users of grants that nobody can name. Withheld are the packets that are
	// withheld for them.
	Silent   bool  `json:"silent,omitempty"`
	Withheld int64 `json:"withheld,omitempty"`
	// First and Last are the lost events.
	First int64 `json:"first_seq"`
	Last  int64 `json:"last_seq"`
	// Planned: the shard was not open yet when this was noted.
	Planned bool  `json:"planned,omitempty"`
	Took    Steps `json:"took"`
}

// Restored is an opening that put back what Redis had lost.
type Restored struct {
	Shard int       `json:"shard"`
	Epoch int64     `json:"epoch"`
	At    time.Time `json:"at"`
	Counts
}

// Restored lists the last openings that put something back, by shard, the newest first. There are none without the ledger.
func (r *Recoverer) Restored(ctx context.Context) (list []Restored, err error) {
	if r.cfg.Ledger == nil {
		return nil, nil
	}
	for shard := range r.cfg.Store.Len() {
		fences, err := r.cfg.Ledger.Fences(ctx, shard)
		if err != nil {
			return nil, err
		}
		head, err := r.cfg.Store.Shard(shard).Head(ctx)
		if err != nil && !errors.Is(err, store.ErrFrozen) {
			return nil, err
		}
		for _, f := range fences {
			one := Restored{Shard: f.Shard, Epoch: f.Epoch, At: f.Opened}
			if f.Note != "" && json.Unmarshal([]byte(f.Note), &one.Counts) == nil && (!one.Planned || f.Epoch == head.Epoch) {
				list = append(list, one)
			}
		}
	}
	return list, nil
}

// restore puts back what Redis has lost. It returns why a person has to decide, if one has: then nothing is changed.
// begun is what an earlier run at this attempt has planned, nil for none.
func (r *Recoverer) restore(ctx context.Context, v *Verdict, f *facts, begun *Counts) (done *Counts, why string, err error) {
	kept, why, err := r.judge(ctx, v, f)
	if err != nil || why != "" {
		return nil, why, err
	}
	f.lap(&f.steps.Judge)
	v.attempt = f.attempt
	done = planned(v, f, begun)
	if v.guarded = done.Silent; v.guarded {
		if why, err := r.lostWithheld(ctx, v); err != nil || why != "" {
			return nil, why, err
		}
	}
	if err := r.note(ctx, v, done); err != nil { // before anything is changed: another recoverer may go on
		return nil, "", err
	}
	if v.guarded {
		if err := r.withhold(ctx, v, f, kept); err != nil {
			return nil, "", err
		}
	}
	k := r.cfg.Store.Shard(v.Shard)
	if err := k.Regrant(ctx, f.attempt, runsOf(v, kept)...); err != nil {
		if hongbao.ClassOf(err) == hongbao.ClassConflict {
			return nil, err.Error(), nil
		}
		return nil, "", err
	}
	for id := range v.here {
		if done.Nobody == 0 {
			break
		}
		if err := k.Revise(ctx, f.attempt, id); err != nil {
			return nil, "", err
		}
	}
	done.Withheld, err = r.countWithheld(ctx, v)
	f.lap(&f.steps.PutBack)
	return done, "", err
}

// planned counts what a restore puts back, with what an earlier run at the attempt has put back.
func planned(v *Verdict, f *facts, begun *Counts) *Counts {
	done := &Counts{First: v.Redis + 1, Last: v.Known()}
	if begun != nil {
		done = &Counts{First: begun.First, Last: begun.Last, Silent: begun.Silent}
	}
	done.Silent = done.Silent || v.guarded
	done.Planned = true
	sources := map[int64]restore.Source{}
	for _, g := range f.known() {
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
	done.Nobody = done.Last - done.First + 1 - int64(len(sources))
	return done
}

// runsOf returns the grants to put back, and the seqs between them that nobody knows, as calls to Regrant.
func runsOf(v *Verdict, kept []restore.Known) (runs []store.Run) {
	next := v.Redis + 1
	for rest := kept; len(rest) > 0; {
		run := runOf(rest)
		rest = rest[len(run):]
		if first := run[0].Seq; first > next {
			runs = append(runs, store.Run{Nobody: stream.SeqRange{First: next, Last: first - 1}, Told: v.guarded})
		}
		next = run[len(run)-1].Seq + 1
		runs = append(runs, store.Run{Grants: run, Generations: v.here[run[0].Campaign].dealt})
	}
	return runs
}

// runOf returns the grants at the front that are of one campaign and one time, with seqs one after the other.
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

// judge returns the grants that Redis has lost, by seq; or why only a person can decide.
func (r *Recoverer) judge(ctx context.Context, v *Verdict, f *facts) (kept []restore.Known, why string, err error) {
	switch {
	case f == nil:
		return nil, "the shard is gone, or its server hides its run_id, or the ledger was not asked", nil
	case v.Late > 0:
		return nil, "an opening went without an event that was seen", nil
	case f.doubt != "":
		return nil, "the topic can't be trusted: " + f.doubt, nil
	case f.told.Broken > 0:
		return nil, "what a process has sent can't be read", nil
	case f.ledger.Others:
		return nil, "the ledger has more than grants there: a refund, an archive or a quarantine", nil
	case len(v.broken) > 0:
		return nil, v.broken[0], nil
	}
	if err := r.readWithheld(ctx, v); err != nil {
		return nil, "", err
	}
	missing, held, why, err := r.missing(ctx, v, f)
	if err != nil || why != "" {
		return nil, why, err
	}
	for i := range missing {
		if _, here := v.here[missing[i].Campaign]; !here {
			return nil, "a grant is of a campaign that Redis does not have: " + nameOf(&missing[i].Grant), nil
		}
	}
	kept, lost := restore.Merge(missing, restore.Claims{
		Intact: v.Redis, Held: held,
		Withheld: func(campaign string, number int64) bool { return v.withheld[campaign][number] },
		Missed:   func(*hongbao.Grant) bool { return false },
		Limit:    func(id string) int64 { return v.here[id].limit },
	})
	if len(lost) > 0 {
		return nil, "two grants contradict each other: " + nameOf(&lost[0].Grant), nil
	}
	if why := agree(kept, missing, v.Redis); why != "" {
		return nil, why, nil
	}
	slices.SortFunc(kept, func(a, b restore.Known) int { return cmp.Compare(a.Seq, b.Seq) })
	kept = moveBehind(kept, v.Known())
	walks := false
	for _, c := range v.here {
		walks = walks || c.places > 1 && c.grants
	}
	walks = walks && v.Redis+int64(len(kept)) < v.Known()
	v.guarded = !f.complete || walks
	switch {
	case !v.guarded || r.cfg.Margin > 0:
		return kept, "", nil
	case walks:
		return nil, "events are missing, and a campaign over several shards is open: its users may have gone on to another", nil
	}
	return nil, "a process that may have told users of grants has not reported, or Redis came back from an old file", nil
}

// moveBehind gives the grants that were named after their seqs were passed over new ones, behind all others.
func moveBehind(kept []restore.Known, known int64) []restore.Known {
	var moved []restore.Known
	for _, g := range kept {
		known = max(known, g.Seq)
		if g.Moved {
			moved = append(moved, g)
		}
	}
	kept = slices.DeleteFunc(kept, func(g restore.Known) bool { return g.Moved })
	for i := range moved {
		moved[i].Seq = known + 1 + int64(i)
	}
	return append(kept, moved...)
}

func nameOf(g *hongbao.Grant) string {
	return fmt.Sprintf("event %d, packet %d of campaign %s", g.Seq, g.Packet, g.Campaign)
}

// agree compares what several know of a grant; it returns a contradiction, or "". redis is the last event of Redis.
func agree(kept, all []restore.Known, redis int64) string {
	type packet struct {
		campaign string
		number   int64
	}
	is := map[packet]*hongbao.Grant{}
	for i := range kept {
		g := &kept[i].Grant
		if kept[i].Moved && g.Seq > redis {
			return "two grants have one seq: " + nameOf(g)
		}
		is[packet{g.Campaign, g.Packet}] = g
	}
	for i := range all {
		g := &all[i].Grant
		if o := is[packet{g.Campaign, g.Packet}]; o == nil || o.Seq != g.Seq || o.Amount != g.Amount {
			return "two say different things about one grant: " + nameOf(g)
		}
	}
	return ""
}

// missing returns the known grants that Redis does not have, and what their users hold.
func (r *Recoverer) missing(ctx context.Context, v *Verdict, f *facts) (
	missing []restore.Known, held []hongbao.Grant, why string, err error) {
	known := f.known()
	users := map[string][]string{}
	for i := range known {
		users[known[i].Campaign] = append(users[known[i].Campaign], known[i].User)
	}
	receipts := map[string]map[string][]hongbao.Receipt{}
	for _, id := range slices.Sorted(maps.Keys(users)) {
		if _, here := v.here[id]; !here {
			continue
		}
		slices.Sort(users[id])
		has, err := r.cfg.Store.Shard(v.Shard).ReceiptsOf(ctx, id, slices.Compact(users[id]))
		if err != nil {
			return nil, nil, "", err
		}
		receipts[id] = has
		for user, list := range has {
			for _, r := range list {
				held = append(held, hongbao.Grant{Campaign: id, User: user, Packet: r.Packet, Amount: r.Amount, Seq: r.Seq,
					RequestID: r.RequestID})
			}
		}
	}
	for i := range known {
		g := &known[i].Grant
		if receipts[g.Campaign] == nil && g.Seq <= v.Redis {
			continue // its campaign was refunded and has left
		}
		has := slices.ContainsFunc(receipts[g.Campaign][g.User], func(r hongbao.Receipt) bool {
			return r.Packet == g.Packet && r.Seq == g.Seq && r.Amount == g.Amount && r.RequestID == g.RequestID
		})
		switch {
		case has && g.Seq > v.Redis:
			return nil, nil, "Redis has the receipt without its event: " + nameOf(g), nil
		case has:
		case g.Seq <= v.Redis && v.withheld[g.Campaign][g.Packet]:
			missing = append(missing, known[i]) // it was named after its seq was passed over
		case slices.ContainsFunc(f.given, func(r stream.SeqRange) bool { return r.Has(g.Seq) }):
		case g.Seq <= v.Redis:
			return nil, nil, "Redis has gone on without it: " + nameOf(g), nil
		default:
			missing = append(missing, known[i])
		}
	}
	return missing, held, "", nil
}

// markTopic sets the done bits of what the topic has: Redis may have lost them, and the publisher would send it again.
func (r *Recoverer) markTopic(ctx context.Context, k *store.Shard, f *facts, last int64) error {
	var events []stream.SeqRange
	seqs := make([]int64, 0, len(f.topic))
	for i := range f.topic {
		if f.topic[i].Seq <= last {
			seqs = append(seqs, f.topic[i].Seq)
		}
	}
	slices.Sort(seqs)
	for _, seq := range slices.Compact(seqs) {
		events = store.AppendSeq(events, seq)
	}
	return k.Mark(ctx, f.attempt, r.cfg.TopicSink, events)
}

// lost reports whether something is to be put back. begun is what a recoverer that died has planned at this attempt. why says that
// only a person can decide.
func (r *Recoverer) lost(ctx context.Context, v *Verdict, f *facts) (lost bool, begun *Counts, why string, err error) {
	if f == nil {
		return v.Lost(), nil, "", nil
	}
	fences, err := r.cfg.Ledger.Fences(ctx, v.Shard)
	if err != nil {
		return false, nil, "", err
	}
	for _, x := range fences {
		if x.Epoch == f.attempt.Epoch && x.Note != "" {
			begun = &Counts{}
			if err := json.Unmarshal([]byte(x.Note), begun); err != nil {
				return false, nil, "", fmt.Errorf("the ledger's note of epoch %d of shard %d: %w", x.Epoch, v.Shard, err)
			}
		}
	}
	if v.Lost() || begun != nil {
		return true, begun, "", nil
	}
	if err := r.readWithheld(ctx, v); err != nil {
		return false, nil, "", err
	}
	// A server that was promoted to and fro may have granted something else under the same numbers.
	missing, _, why, err := r.missing(ctx, v, f)
	return len(missing) > 0, nil, why, err
}

// mend restores what a shard has lost, if it can, and opens it. It returns why a person has to decide.
func (r *Recoverer) mend(ctx context.Context, v *Verdict, f *facts) (why string, err error) {
	k := r.cfg.Store.Shard(v.Shard)
	v.evidence = store.AnyEvidence
	if f != nil {
		v.evidence = f.told.Texts
	}
	var done *Counts
	lost, begun, why, err := r.lost(ctx, v, f)
	if err != nil || why != "" {
		return why, err
	}
	if lost {
		if done, why, err = r.restore(ctx, v, f, begun); err != nil || why != "" {
			return why, err
		}
		z, err := k.Freeze(ctx)
		if err != nil || !z.Frozen {
			return "", errors.Join(err, store.ErrAttemptOver)
		}
		v.state, v.Redis, v.Campaigns = z, z.Seq, nil
		for id, c := range v.here { // none of them is in doubt any more
			if c.added {
				v.dealt[id] = c.dealt
			}
		}
		v.skip = restore.SkipTo(v.Known(), time.Since(f.wrote()))
	}
	if f != nil {
		if err := r.markTopic(ctx, k, f, v.Redis); err != nil {
			return "", err
		}
		v.attempt = f.attempt
		f.lap(&f.steps.Marks)
	}
	if err := r.open(ctx, v, nil); err != nil {
		return "", err
	}
	r.shards[v.Shard].facts = nil
	fields := []zap.Field{zap.Int("shard", v.Shard), zap.Int64("epoch", v.opened), zap.Int64("seq", v.Redis),
		zap.Duration("frozen for", v.For), zap.Bool("every process has reported", f != nil && f.complete)}
	if f != nil {
		f.lap(&f.steps.Open)
		fields = append(fields, zap.Any("steps", f.steps))
	}
	if done == nil {
		r.cfg.Log.Info("a frozen shard is open again, nothing was lost", fields...)
		return "", nil
	}
	done.Took, done.Planned = f.steps, false
	r.cfg.Log.Warn("a frozen shard is open again: what Redis had lost was restored", append(fields,
		zap.String("code", "redis_restored"), zap.Any("restored", done))...)
	if err := r.note(ctx, v, done); err != nil { // the shard is open all the same
		r.cfg.Log.Warn("what was restored could not be noted in the ledger", zap.Int("shard", v.Shard), zap.Error(err))
	}
	return "", nil
}
