package recovery

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/base/turn"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Ledger has the methods of the ledger that a Recoverer needs. *ledger.Ledger implements it.
type Ledger interface {
	Deployment(ctx context.Context) (ledger.Deployment, error)
	Shard(ctx context.Context, shard int) (ledger.ShardState, error)
	SetShard(ctx context.Context, shard int, from int64, to ledger.ShardState) error
	AcceptLoss(ctx context.Context, from int64, token string, decision model.AcceptedLoss) error
	AcceptedLosses(ctx context.Context, limit int) ([]model.AcceptedLoss, error)
	HighestSeq(ctx context.Context, shard int) (int64, error)
	HighestSeqIn(ctx context.Context, shard int, seqs stream.SeqRange, before int64) (int64, error)
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

// Journal has the method of the journal that a Recoverer needs.
type Journal interface {
	Record(ctx context.Context, entries ...access.Entry) error
}

// Topic has the methods of the topic that a Recoverer needs. *publish.Log implements it.
type Topic interface {
	// HighestSeq returns the highest seq of the shard among the records sent since this time; 0 if there is none.
	HighestSeq(ctx context.Context, shard int, since time.Time) (int64, error)
	// Fence keeps earlier publishers from sending anything more for the shard, and returns the grants in the topic. With
	// an error it returns those that it has read.
	Fence(ctx context.Context, f stream.TopicFence) (stream.Fenced, error)
	// FenceSince returns the time from which Fence must read the topic. last is the time of the shard's last entry.
	FenceSince(last time.Time) time.Time
}

// Config configures a Recoverer.
type Config struct {
	Store *store.Store
	// Ledger is nil if a person chose to work without the ledger. Then only Accept opens a shard.
	Ledger Ledger
	// Journal gets the pauses of workers; nil if Ledger is nil.
	Journal Journal
	// Topic is nil if the deployment has no topic. TopicSink is the sink that publishes to it.
	Topic     Topic
	TopicSink string
	// Sinks has the deployment's sinks. An opening raises the fences of their claims, and restores their pauses and
	// rate limits.
	Sinks []string
	Log   *zap.Logger
	// Check returns an error for a server whose settings could lose writes. No shard opens on such a server. If Check
	// is nil, every server is accepted.
	Check func(*store.Server) error
	// Gather is how long the recoverer waits for a process that has not sent its evidence. 0 means 5 seconds.
	Gather time.Duration
	// Settle is the shortest wait if Redis was written just before the freeze. A process whose registration as a witness
	// was lost reports within that time, since its watch checks the shard more often. 0 means 1.25 seconds.
	Settle time.Duration
	// Margin covers grants that a silent process may have reported to users and that no other source knows. For each
	// campaign the recoverer withholds as many extra packets as the shard granted in the last Margin. If it is 0, a
	// person decides instead.
	Margin time.Duration
	// Lease is how long the lock of a recoverer that died keeps other recoverers from the shard. 0 means 10 seconds.
	Lease time.Duration
}

// Recoverer opens frozen shards. Every worker runs one; a lock lets one of them at a time work on a shard.
type Recoverer struct {
	cfg    Config
	shards []tending
}

// tending has what a recoverer remembers of a shard between two checks.
type tending struct {
	mu      turn.Lock // held while a shard is opened
	alarmed string    // text of the last alarm
	next    time.Time
	facts   *facts // facts of the current attempt
}

// New returns a Recoverer, with defaults for the durations that are 0.
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

// Run opens the shards that it receives from frozen, until ctx ends. It also records people's decisions in the ledger.
func (r *Recoverer) Run(ctx context.Context, frozen <-chan int) error {
	var others sync.WaitGroup // separate goroutines: a server that hangs does not delay the shards of another one
	others.Go(func() { r.keepControls(ctx) })
	others.Go(func() { r.keepOpenings(ctx) })
	defer others.Wait()
	for {
		select {
		case shard := <-frozen:
			if t := &r.shards[shard]; t.mu.TryLock() {
				others.Go(func() {
					defer t.mu.Unlock()
					if err := r.openFrozen(ctx, shard); err != nil && ctx.Err() == nil {
						r.cfg.Log.Warn("checking a frozen shard failed; the worker tries again", zap.Int("shard", shard), zap.Error(err))
					}
				})
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// lostPause is the pause between two checks of a shard that waits for a person's decision.
const lostPause = 10 * time.Second

// OpenFrozen opens a frozen shard, after it has restored what Redis lost. If only a person can decide about the loss,
// it raises an alarm and leaves the shard frozen.
func (r *Recoverer) OpenFrozen(ctx context.Context, shard int) error {
	t := &r.shards[shard]
	if err := t.mu.LockContext(ctx); err != nil {
		return fmt.Errorf("open shard %d: %w", shard, err)
	}
	defer t.mu.Unlock()
	return r.openFrozen(ctx, shard)
}

// openFrozen does the work of OpenFrozen. The caller holds the shard's lock.
func (r *Recoverer) openFrozen(ctx context.Context, shard int) error {
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
	_, err = r.withRecoveryLock(ctx, shard, func(ctx context.Context) error {
		v := &ShardReport{Shard: shard}
		if err := r.checkServer(ctx, v); err != nil {
			return err
		}
		var f *facts
		if v.Refused == "" { // a refused server needs no further check
			if f, err = r.ask(ctx, shard); err != nil || f == nil && z.Since < r.cfg.Gather && z.Seq >= 0 {
				return err
			}
			if v, err = r.report(ctx, shard, f); err != nil || !v.Frozen {
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
			t.next = time.Now().Add(lostPause + time.Since(began)) // leaves time for Accept between two checks
			return errors.Join(err, r.alarm(ctx, v, why))
		}
		return err
	})
	return err
}

// settingsPause is the pause between two checks of a server whose settings are refused.
const settingsPause = time.Second

// alarmSettings logs that a shard stays frozen because of its server's settings. It logs the same reason only once.
func (r *Recoverer) alarmSettings(v *ShardReport) {
	t := &r.shards[v.Shard]
	if t.alarmed == v.Refused {
		return
	}
	t.alarmed = v.Refused
	r.cfg.Log.Error("ALARM: a shard stays frozen because of the settings of its Redis; it opens once they are right",
		zap.String("code", "shard_frozen"), zap.Int("shard", v.Shard), zap.String("error", v.Refused))
}

// withRecoveryLock runs fn under the shard's recovery lock. It returns false if another process holds the lock. It
// cancels fn's context if the lease is lost.
func (r *Recoverer) withRecoveryLock(ctx context.Context, shard int, fn func(context.Context) error) (bool, error) {
	return r.withLock(ctx, "recover", shard, fn)
}

// withLock runs fn under a named lock of the shard. It returns false if another process holds the lock. It cancels fn's
// context if the lease is lost.
func (r *Recoverer) withLock(ctx context.Context, name string, shard int, fn func(context.Context) error) (bool, error) {
	locks, err := r.cfg.Store.Locks(store.LockConfig{Lease: r.cfg.Lease, Poll: 100 * time.Millisecond})
	if err != nil {
		return false, err
	}
	return locks.Try(ctx, r.cfg.Store.Shard(shard), name, fn)
}

// acceptLock is the name of Accept's lock. While a person holds it, no worker begins to check the shard. Without it a
// person could wait forever: if the ledger hangs, one of many workers always holds the recovery lock.
const acceptLock = "accept"

// accepting reports whether a person's Accept of the shard is under way or waits.
func (r *Recoverer) accepting(ctx context.Context, shard int) (bool, error) {
	return r.cfg.Store.Shard(shard).Locked(ctx, acceptLock)
}

// Reports returns the reports on all shards.
func (r *Recoverer) Reports(ctx context.Context) ([]*ShardReport, error) {
	out := make([]*ShardReport, r.cfg.Store.Len())
	for shard := range out {
		v, err := r.shown(ctx, shard)
		if err != nil {
			return nil, fmt.Errorf("shard %d: %w", shard, err)
		}
		out[shard] = v
	}
	return out, nil
}

// acceptMargin is how long, beyond the lease, Accept waits for a worker that checks the shard. That worker may have
// died.
const acceptMargin = 10 * time.Second

// Accept opens a shard that has lost data, by a person's decision, which the ledger records. Campaigns in doubt stay
// frozen: Redis has lost them, or another source knows more of them than Redis. Accept fails if the shard no longer
// matches the report. It waits for a worker that is checking the shard, and keeps other workers from beginning a
// check.
func (r *Recoverer) Accept(ctx context.Context, v *ShardReport, by stream.Decision) error {
	waiting, cancel := context.WithTimeoutCause(ctx, r.cfg.Lease+acceptMargin, hongbao.Errorf(hongbao.ClassTransient,
		"another worker is still checking shard %d, nothing was changed: run the command again", v.Shard))
	defer cancel()
	poll := func(fn func() (bool, error)) error { return retry.Poll(waiting, 100*time.Millisecond, fn) }
	return poll(func() (bool, error) {
		return r.withLock(ctx, acceptLock, v.Shard, func(ctx context.Context) error {
			return poll(func() (bool, error) {
				return r.withRecoveryLock(ctx, v.Shard, func(ctx context.Context) error { return r.accept(ctx, v, by) })
			})
		})
	})
}

// accept does the work of Accept. The caller holds the shard's locks.
func (r *Recoverer) accept(ctx context.Context, v *ShardReport, by stream.Decision) error {
	now, err := r.shown(ctx, v.Shard)
	if err == nil && r.cfg.Ledger == nil && now.For < r.cfg.Gather { // only callers can report lost events
		retry.Pause(ctx, r.cfg.Gather-now.For)
		now, err = r.shown(ctx, v.Shard)
	}
	if err != nil {
		return err
	}
	if !now.Frozen || now.String() != v.String() {
		return hongbao.Errorf(hongbao.ClassConflict, "shard %d has changed meanwhile: %s; run `hongbao recover` again", v.Shard,
			now)
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
	return r.open(ctx, now, &model.AcceptedLoss{Shard: v.Shard, Decision: by, Lost: now.String()})
}

const maxAccepted = 100

// Accepted returns the latest losses that people have accepted, newest first. Without the ledger it returns none.
func (r *Recoverer) Accepted(ctx context.Context) ([]model.AcceptedLoss, error) {
	if r.cfg.Ledger == nil {
		return nil, nil
	}
	return r.cfg.Ledger.AcceptedLosses(ctx, maxAccepted)
}

// open opens the shard. It raises the epoch in the ledger first, so that no two openings get the same epoch even if
// Redis loses one. decision is nil if no person has accepted a loss.
func (r *Recoverer) open(ctx context.Context, v *ShardReport, decision *model.AcceptedLoss) error {
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
	case decision == nil:
		err = r.cfg.Ledger.SetShard(ctx, v.Shard, state.Epoch, ledger.ShardState{Epoch: epoch, Token: v.state.Token})
	default:
		decision.Epoch = epoch
		err = r.cfg.Ledger.AcceptLoss(ctx, state.Epoch, v.state.Token, *decision)
	}
	if err != nil {
		return err
	}
	v.opened = epoch
	mark := store.Owner{Deployment: has.ID, Founding: has.Founding}
	if err := r.cfg.Store.PutMark(ctx, mark); err != nil { // Redis may have lost the mark, too
		if !hongbao.IsOutage(err) || ctx.Err() != nil {
			return err
		}
		// One node has the mark. If that node is down, the opening of its own shards writes the mark later.
		r.cfg.Log.Warn("the mark of the key prefix can't be written while its node is down; the shard opens without it",
			zap.Int("shard", v.Shard), zap.Error(err))
	}
	if err := r.restoreControls(ctx, v.Shard); err != nil { // before a worker takes events
		return err
	}
	for id, dealt := range v.dealt { // before users grab: a worker deals packets again that Redis may have lost
		if err := r.cfg.Ledger.TopUpsLost(ctx, id, dealt); err != nil {
			return err
		}
	}
	again := &store.Reopening{Was: v.state, Mark: mark, Epoch: epoch, Last: v.skipTo(), Known: v.Known(),
		Accepted: decision != nil || v.guarded, Evidence: v.evidence,
		Sinks: r.cfg.Sinks, Places: map[string]int{}}
	for _, c := range v.Campaigns {
		again.Campaigns = append(again.Campaigns, c.Campaign)
		again.Places[c.Campaign] = c.places
	}
	return r.reopen(ctx, v, again)
}

// reopen opens the shard in Redis, and writes stubs for the refunded campaigns that the shard has lost, so that grabs
// answer ended. It notes the first seq after the opening just before: if Redis loses the opening,
// the next recoverer knows which seqs it skipped.
func (r *Recoverer) reopen(ctx context.Context, v *ShardReport, o *store.Reopening) error {
	if v.attempt.Epoch > 0 {
		v.counts.Next = o.Last + 1
		if err := r.note(ctx, v, v.counts); err != nil {
			return err
		}
	}
	opened, err := r.cfg.Store.Shard(v.Shard).Reopen(ctx, o)
	if err == nil && !opened {
		err = hongbao.Errorf(hongbao.ClassTransient, "shard %d changed meanwhile; the worker tries again", v.Shard)
	}
	if err != nil {
		return err
	}
	for _, c := range v.ended {
		if err := r.cfg.Store.Shard(v.Shard).EndLost(ctx, c); err != nil { // the shard is open even without the stub
			r.cfg.Log.Warn("a campaign that was refunded before Redis lost it has no stub: processes that saw it open answer "+
				"frozen until they restart", zap.String("campaign", c.ID), zap.Error(err))
		}
	}
	return nil
}
