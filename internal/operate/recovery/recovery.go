package recovery

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Ledger is what a Recoverer needs of the ledger. *ledger.Ledger implements it.
type Ledger interface {
	Deployment(ctx context.Context) (ledger.Deployment, error)
	Shard(ctx context.Context, shard int) (ledger.ShardState, error)
	SetShard(ctx context.Context, shard int, from int64, to ledger.ShardState) error
	AcceptLoss(ctx context.Context, from int64, token string, word ledger.AcceptedLoss) error
	AcceptedLosses(ctx context.Context, limit int) ([]ledger.AcceptedLoss, error)
	HighestSeq(ctx context.Context, shard int) (int64, error)
	HighestSeqIn(ctx context.Context, shard int, seqs stream.SeqRange) (int64, error)
	EventsIn(ctx context.Context, shard int, seqs stream.SeqRange) (ledger.Events, error)
	Fence(ctx context.Context, f ledger.Fence) error
	Fences(ctx context.Context, shard int) ([]ledger.FenceRow, error)
	NoteOpening(ctx context.Context, shard int, epoch int64, note string) error
	LostEvents(ctx context.Context, shard int, above int64) (ledger.Lost, error)
	EachCampaign(ctx context.Context, after string) iter.Seq2[*ledger.StoredCampaign, error]
	TopUpsLost(ctx context.Context, campaign string, dealt int64) error
	KeepControls(ctx context.Context, list ...stream.Control) error
	Controls(ctx context.Context) ([]stream.Control, error)
}

// Topic is what a Recoverer needs of the topic. *publish.Log implements it.
type Topic interface {
	// HighestSeq returns the highest event of the shard that was sent since a time, 0 if none was.
	HighestSeq(ctx context.Context, shard int, since time.Time) (int64, error)
	// Fence makes the topic reject what earlier claims would still send, and returns what the topic has.
	Fence(ctx context.Context, f stream.TopicFence) (stream.Fenced, error)
	// FenceSince returns the time from which Fence must read, for a shard whose last entry is of the given time.
	FenceSince(last time.Time) time.Time
}

// Config of a Recoverer.
type Config struct {
	Store *store.Store
	// Ledger is nil if a person chose to work without it. Then only Accept opens a shard.
	Ledger Ledger
	// Topic is nil if the deployment has none. TopicSink is the sink of its publishers.
	Topic     Topic
	TopicSink string
	// Sinks are those of the deployment: their claims get new fences, and their pauses and bounds are kept.
	Sinks []string
	Log   *zap.Logger
	// Check refuses a server whose settings may lose what it grants: no shard opens there. nil refuses none.
	Check func(*store.Server) error
	// Gather is how long the recoverer waits for a process that has not sent what it knows. 0 for five seconds.
	Gather time.Duration
	// Settle is the shortest wait if Redis was written just before the freeze: a process whose line is lost reports
	// within one look of its watch. 0 for 1.25 seconds.
	Settle time.Duration
	// Margin is for a silent process that may have reported grants that no one else has seen. As many packets of each
	// campaign are withheld as the shard granted in the last Margin. 0 leaves such a loss to a person.
	Margin time.Duration
	// Lease is how long a shard is kept for a recoverer that died. 0 for ten seconds.
	Lease time.Duration
}

// Recoverer opens frozen shards. One runs in every worker; at most one at a time works on a shard.
type Recoverer struct {
	cfg    Config
	shards []tending
}

// tending is what a recoverer remembers of a shard between two checks.
type tending struct {
	mu      sync.Mutex
	alarmed string // the text of the last alarm
	next    time.Time
	facts   *facts // of the last attempt
}

// New returns a Recoverer.
func New(cfg Config) *Recoverer {
	if cfg.Gather == 0 {
		cfg.Gather = restore.Patience
	}
	if cfg.Settle == 0 {
		cfg.Settle = 1250 * time.Millisecond
	}
	cfg.Settle = min(cfg.Settle, cfg.Gather)
	if cfg.Lease == 0 {
		cfg.Lease = 10 * time.Second
	}
	return &Recoverer{cfg: cfg, shards: make([]tending, cfg.Store.Len())}
}

// Run tends the shards that a watch has found frozen, until ctx ends. It repairs each shard once, and copies people's
// decisions about campaigns and sinks to the ledger.
func (r *Recoverer) Run(ctx context.Context, frozen <-chan int) error {
	var others sync.WaitGroup // separate goroutines: a server that hangs does not delay the shards of another one
	others.Go(func() { r.repairAll(ctx) })
	others.Go(func() { r.keepControls(ctx) })
	others.Go(func() { r.keepOpenings(ctx) })
	defer others.Wait()
	for {
		select {
		case shard := <-frozen:
			if t := &r.shards[shard]; t.mu.TryLock() {
				others.Go(func() {
					defer t.mu.Unlock()
					if err := r.tend(ctx, shard); err != nil && ctx.Err() == nil {
						r.cfg.Log.Warn("checking a frozen shard failed; the worker tries again", zap.Int("shard", shard), zap.Error(err))
					}
				})
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// lostPause is how long until a shard that has lost something is checked again: a person must decide.
const lostPause = 10 * time.Second

// Tend opens a frozen shard, and first puts back what Redis has lost. If a person has to decide about the loss, it
// raises the alarm.
func (r *Recoverer) Tend(ctx context.Context, shard int) error {
	t := &r.shards[shard]
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.tend(ctx, shard)
}

// tend is Tend for a caller that has the shard's lock in this process.
func (r *Recoverer) tend(ctx context.Context, shard int) error {
	t := &r.shards[shard]
	z, err := r.cfg.Store.Shard(shard).Freeze(ctx)
	if err != nil || !z.Frozen {
		return err
	}
	if time.Now().Before(t.next) {
		return nil
	}
	if first, err := r.accepting(ctx, shard); err != nil || first {
		return err
	}
	began := time.Now()
	_, err = r.alone(ctx, shard, func(ctx context.Context) error {
		v := &Verdict{Shard: shard}
		if err := r.checkServer(ctx, v); err != nil {
			return err
		}
		var f *facts
		if v.Refused == "" { // otherwise the ledger and the topic do not matter
			if f, err = r.ask(ctx, shard); err != nil || f == nil && z.Since < r.cfg.Gather && z.Seq >= 0 {
				return err
			}
			if v, err = r.verdict(ctx, shard, f); err != nil || !v.Frozen {
				return err
			}
		}
		if v.Refused != "" {
			t.next = time.Now().Add(settingsPause)
			r.alarmSettings(v)
			return nil
		}
		why, err := r.restoreAndOpen(ctx, v, f)
		if why != "" {
			t.next = time.Now().Add(lostPause + time.Since(began)) // leaves Accept some time between two checks
			r.alarm(v, why)
		}
		return err
	})
	return err
}

// settingsPause is how long until the settings of a refused server are checked again.
const settingsPause = time.Second

// alarmSettings logs why a shard stays frozen although nothing may be lost. It logs the same reason only once.
func (r *Recoverer) alarmSettings(v *Verdict) {
	t := &r.shards[v.Shard]
	if t.alarmed == v.Refused {
		return
	}
	t.alarmed = v.Refused
	r.cfg.Log.Error("ALARM: a shard stays frozen because of the settings of its Redis; it opens once they are right",
		zap.String("code", "shard_frozen"), zap.Int("shard", v.Shard), zap.String("error", v.Refused))
}

// alarm logs a loss and why it is not restored, and logs it again only if one of them changes.
func (r *Recoverer) alarm(v *Verdict, why string) {
	what := v.String() + "; it is not restored: " + why
	t := &r.shards[v.Shard]
	if t.alarmed == what {
		return
	}
	t.alarmed = what
	r.cfg.Log.Error("ALARM: Redis went back in time and the shard stays frozen; let no one write to this Redis, keep its "+
		"files, and run `hongbao recover`",
		zap.String("code", "redis_went_back"), zap.Int("shard", v.Shard), zap.String("lost", what))
}

// alone runs fn, unless another worker works on this shard: then it returns false. fn's context ends if the lease is
// lost.
func (r *Recoverer) alone(ctx context.Context, shard int, fn func(context.Context) error) (bool, error) {
	return r.under(ctx, "recover", shard, fn)
}

// under runs fn under a lock of the shard, unless another process has it: then it returns false. fn's context ends if
// the lease is lost.
func (r *Recoverer) under(ctx context.Context, name string, shard int, fn func(context.Context) error) (bool, error) {
	locks, err := r.cfg.Store.Locks(store.LockConfig{Lease: r.cfg.Lease, Poll: 100 * time.Millisecond})
	if err != nil {
		return false, err
	}
	return locks.Try(ctx, r.cfg.Store.Shard(shard), name, fn)
}

// acceptLock is the lock of Accept. While a person holds it, no worker begins to check the shard. Otherwise, with many
// workers and a ledger that hangs, one of them would always work on the shard.
const acceptLock = "accept"

// accepting reports whether an Accept waits for the shard, or works on it.
func (r *Recoverer) accepting(ctx context.Context, shard int) (bool, error) {
	n, err := r.cfg.Store.Redis().Exists(ctx, r.cfg.Store.Shard(shard).Keys.Lock(acceptLock)).Result()
	return n > 0, store.Classify(err)
}

// Verdicts returns the verdict on every shard.
func (r *Recoverer) Verdicts(ctx context.Context) ([]*Verdict, error) {
	out := make([]*Verdict, r.cfg.Store.Len())
	for shard := range out {
		v, err := r.verdict(ctx, shard, nil)
		if err != nil {
			return nil, fmt.Errorf("shard %d: %w", shard, err)
		}
		out[shard] = v
	}
	return out, nil
}

// acceptMargin is how long Accept waits, beyond the lease, for a worker that checks the shard: that worker may have
// died.
const acceptMargin = 10 * time.Second

// Accept opens a shard that has lost something, by a person's decision, which the ledger keeps. Campaigns that Redis
// has lost stay frozen, and so do campaigns of which another source knows more than Redis. Accept refuses a shard that
// no longer matches the verdict. It waits for a worker that checks the shard; meanwhile no other worker begins a check.
func (r *Recoverer) Accept(ctx context.Context, v *Verdict, by stream.Decision) error {
	waiting, cancel := context.WithTimeoutCause(ctx, r.cfg.Lease+acceptMargin, hongbao.Errorf(hongbao.ClassTransient,
		"another worker is still checking shard %d, nothing was changed: run this again", v.Shard))
	defer cancel()
	poll := func(fn func() (bool, error)) error { return retry.Poll(waiting, 100*time.Millisecond, fn) }
	return poll(func() (bool, error) {
		return r.under(ctx, acceptLock, v.Shard, func(ctx context.Context) error {
			return poll(func() (bool, error) {
				return r.alone(ctx, v.Shard, func(ctx context.Context) error { return r.accept(ctx, v, by) })
			})
		})
	})
}

// accept is Accept for a caller that has the lock of the shard.
func (r *Recoverer) accept(ctx context.Context, v *Verdict, by stream.Decision) error {
	now, err := r.verdict(ctx, v.Shard, nil)
	if err == nil && r.cfg.Ledger == nil && now.For < r.cfg.Gather { // only callers can say what was lost
		retry.Pause(ctx, r.cfg.Gather-now.For)
		now, err = r.verdict(ctx, v.Shard, nil)
	}
	if err != nil {
		return err
	}
	if !now.Frozen || now.String() != v.String() {
		return hongbao.Errorf(hongbao.ClassConflict, "shard %d has changed meanwhile: %s; look again", v.Shard, now)
	}
	if now.Refused != "" {
		return hongbao.Errorf(hongbao.ClassBroken, "shard %d stays frozen: %s", v.Shard, now.Refused)
	}
	if r.cfg.Ledger == nil {
		return r.openBlind(ctx, now, by)
	}
	if err := r.keepTopic(ctx, now); err != nil {
		return err
	}
	now.evidence = store.AnyEvidence
	return r.open(ctx, now, &ledger.AcceptedLoss{Shard: v.Shard, Decision: by, Lost: now.String()})
}

// keepTopic prevents events that the topic has from being sent again after an accepted loss, unless the topic
// contradicts Redis. It fences the topic, and waits for witnesses meanwhile: one that reports no more than the person
// was shown changes nothing.
func (r *Recoverer) keepTopic(ctx context.Context, v *Verdict) error {
	f, err := r.ask(ctx, v.Shard)
	if err != nil || f == nil {
		return err
	}
	k := r.cfg.Store.Shard(v.Shard)
	z, err := k.Freeze(ctx)
	if err != nil {
		return err
	}
	if z.Seen <= v.Known() {
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

// maxAccepted is how many losses Accepted lists.
const maxAccepted = 100

// Accepted lists the last losses that people have accepted, the newest first. There are none without the ledger.
func (r *Recoverer) Accepted(ctx context.Context) ([]ledger.AcceptedLoss, error) {
	if r.cfg.Ledger == nil {
		return nil, nil
	}
	return r.cfg.Ledger.AcceptedLosses(ctx, maxAccepted)
}

// open opens the shard. The ledger's epoch rises first, so no epoch comes twice even if Redis loses it again. word is
// nil if nothing was lost.
func (r *Recoverer) open(ctx context.Context, v *Verdict, word *ledger.AcceptedLoss) error {
	has, err := r.cfg.Ledger.Deployment(ctx)
	if err != nil {
		return err
	}
	state, err := r.cfg.Ledger.Shard(ctx, v.Shard)
	if err != nil {
		return err
	}
	if state.Epoch, err = r.record(ctx, v, state.Epoch); err != nil {
		return err
	}
	epoch := max(v.Epoch, state.Epoch) + 1
	switch {
	case v.attempt.Epoch > 0 && v.attempt.Epoch != state.Epoch:
		return store.ErrAttemptOver
	case v.attempt.Epoch > 0:
		epoch = v.attempt.Epoch
	case word == nil:
		err = r.cfg.Ledger.SetShard(ctx, v.Shard, state.Epoch, ledger.ShardState{Epoch: epoch, Token: v.state.Token})
	default:
		word.Epoch = epoch
		err = r.cfg.Ledger.AcceptLoss(ctx, state.Epoch, v.state.Token, *word)
	}
	if err != nil {
		return err
	}
	v.opened = epoch
	k := r.cfg.Store.Shard(v.Shard)
	mark := store.Mark{Deployment: has.ID, Founding: has.Founding}
	if err := r.cfg.Store.PutMark(ctx, mark); err != nil { // Redis may have lost that too
		if !hongbao.IsOutage(err) || ctx.Err() != nil {
			return err
		}
		// The mark is on one node, whose own shards open after this one and write it again.
		r.cfg.Log.Warn("the mark of the key prefix can't be written while its node is down; the shard opens without it",
			zap.Int("shard", v.Shard), zap.Error(err))
	}
	if err := r.restoreControls(ctx, v.Shard); err != nil { // before a worker may take anything
		return err
	}
	for id, dealt := range v.dealt { // before users can grab: a worker deals again what Redis may have lost
		if err := r.cfg.Ledger.TopUpsLost(ctx, id, dealt); err != nil {
			return err
		}
	}
	again := &store.Reopening{Was: v.state, Mark: mark, Epoch: epoch, Last: v.skipTo(), Known: v.Known(),
		Accepted: word != nil || v.guarded, Evidence: v.evidence,
		Sinks: r.cfg.Sinks, Places: map[string]int{}}
	for _, c := range v.Campaigns {
		again.Campaigns = append(again.Campaigns, c.Campaign)
		again.Places[c.Campaign] = c.places
	}
	opened, err := k.Reopen(ctx, again)
	if err == nil && !opened {
		err = hongbao.Errorf(hongbao.ClassTransient, "shard %d changed meanwhile; the worker tries again", v.Shard)
	}
	return err
}
