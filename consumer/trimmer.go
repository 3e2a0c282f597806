package consumer

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/store"
)

// TrimmerConfig configures a Trimmer. Start from DefaultTrimmerConfig and set the fields that it leaves out; a zero
// value is refused.
type TrimmerConfig struct {
	Redis redis.UniversalClient
	Space hongbao.Space
	// Groups are the consumer groups that must exist.
	Groups []string
	Log    *zap.Logger
	// Pause between two rounds.
	Every time.Duration `knob:"trimmer.every" default:"1s" want:"10ms to 1h"`
	// How long finished events are kept in Redis.
	Retention time.Duration `knob:"trimmer.retention" default:"10m" want:"0s to 720h"`
	// Finished events of a shard that are kept at most.
	MaxEvents int64 `knob:"trimmer.max_events" default:"5000000" want:"0 to 1_000_000_000 events"`
	// How long a consumer with nothing pending is idle before it is removed.
	ForgetAfter time.Duration `knob:"trimmer.forget_after" default:"10m" want:"1s to 720h"`
	// How long the records of requeued dead letters are kept. The records of dropped ones stay.
	Letters time.Duration `knob:"trimmer.letters" default:"720h" want:"1h to 87600h"`
}

// DefaultTrimmerConfig returns every default. It leaves out Redis, Space, Groups and Log.
func DefaultTrimmerConfig() TrimmerConfig { return knob.Defaults[TrimmerConfig]() }

// Trimmer deletes from every shard's stream the entries that all groups have finished and that the retention no
// longer keeps, with the done bits behind them. It also removes the consumers of workers that no longer exist.
// Several trimmers may run. One at a time leads a shard, and two at once do no harm.
type Trimmer struct {
	cfg      TrimmerConfig
	store    *store.Store
	at       []trimming // by shard
	reported []string   // by shard: the problem that was reported last

	name string      // unique to this trimmer
	next []time.Time // by shard: when another trimmer's lead may be over; zero if this one leads
}

// trimming is a trimmer's memory of a shard from round to round. It is valid for one epoch.
type trimming struct {
	epoch  int64
	behind string           // where the last look behind an unfinished entry ended
	since  time.Time        // when these looks began at the front
	floor  int64            // the chunk of the done floor
	full   map[string]int64 // by group: the chunks of done bits before it are full
	groups map[string]*watched

	letters map[string]string // by group: the last read record of a resolved letter
	expire  time.Time         // when the next records are read
}

func newTrimming(epoch int64) trimming {
	return trimming{epoch: epoch, full: map[string]int64{}, groups: map[string]*watched{}, letters: map[string]string{}}
}

// trimLimit is how many entries one call of the script deletes. More would keep Redis busy for too long.
const trimLimit = 2_000

// lookBehind is how many entries behind an unfinished one a call examines, one by one. After each lookAgain the looks
// begin at the front again, for entries that were unfinished before.
const (
	lookBehind = 200
	lookAgain  = time.Minute
)

// maxHeld is how many pending entries a group may have, including what is done in them, before grabs are answered
// busy.
const maxHeld = 20_000

// NewTrimmer returns a Trimmer, or an error for a wrong configuration.
func NewTrimmer(cfg TrimmerConfig) (*Trimmer, error) {
	errs := knob.Check(&cfg)
	if cfg.Redis == nil || cfg.Log == nil {
		errs = append(errs, errors.New("Redis and Log are required"))
	}
	if err := store.CheckSpace(cfg.Space); err != nil {
		errs = append(errs, err)
	}
	if len(cfg.Groups) == 0 {
		errs = append(errs, errors.New("no groups: a stream without readers can't be trimmed safely"))
	}
	for _, g := range cfg.Groups {
		if err := hongbao.CheckCampaignID(g); err != nil {
			errs = append(errs, fmt.Errorf("group %q: %w", g, err))
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("trimmer: %w", errors.Join(errs...))
	}
	st, err := store.Of(cfg.Redis, cfg.Space)
	if err != nil {
		return nil, err
	}
	n := st.Len()
	return &Trimmer{cfg: cfg, store: st, at: make([]trimming, n), reported: make([]string, n), name: rand.Text(),
		next: make([]time.Time, n)}, nil
}

// trimmerLead is the name of the lead for trimming. No group has such a name.
const trimmerLead = "#trimmer"

// Run trims until ctx ends, each shard for as long as this trimmer leads there.
func (t *Trimmer) Run(ctx context.Context) error {
	for {
		for shard := range t.store.Len() {
			leads, err := t.leads(ctx, shard)
			if leads {
				err = t.Trim(ctx, shard)
			}
			if err != nil && ctx.Err() == nil {
				t.cfg.Log.Warn("trim failed, it is tried again", zap.Int("shard", shard), zap.Error(err))
			}
		}
		if !retry.Pause(ctx, jitter(t.cfg.Every)) {
			return t.endLeads(ctx)
		}
	}
}

// leads reports whether this trimmer leads a shard now. It asks Redis only when another trimmer's lead may be over. A
// trimmer that takes a lead from another one forgets what it remembers from an earlier lead.
func (t *Trimmer) leads(ctx context.Context, shard int) (bool, error) {
	if time.Now().Before(t.next[shard]) {
		return false, nil
	}
	led, err := t.store.Shard(shard).TakeLead(ctx, trimmerLead, t.name, t.lead())
	if err != nil {
		return false, err
	}
	if led > 0 {
		t.next[shard] = time.Now().Add(jitter(led))
		return false, nil
	}
	if !t.next[shard].IsZero() {
		t.at[shard], t.next[shard] = trimming{}, time.Time{}
	}
	return true, nil
}

// lead returns how long a trimmer leads after each round: long enough for its next round, and not for long if it is
// killed.
func (t *Trimmer) lead() time.Duration {
	return min(10*t.cfg.Every, t.cfg.Every+t.cfg.Every/5+30*time.Second)
}

// endLeads lets other trimmers lead at once. If a release fails, the lead ends by itself.
func (t *Trimmer) endLeads(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for shard := range t.store.Len() {
		if !t.next[shard].IsZero() {
			continue
		}
		if err := t.store.Shard(shard).EndLead(ctx, trimmerLead, t.name); err != nil {
			t.cfg.Log.Info("the leads could not be given up, they end when their time is over", zap.Error(err))
			return nil
		}
	}
	return nil
}

// Trim trims one shard once. Two calls for the same shard must not run at once.
func (t *Trimmer) Trim(ctx context.Context, shard int) error {
	_, err := t.trim(ctx, shard)
	return err
}

// trim is Trim. It returns the state of the shard afterwards.
func (t *Trimmer) trim(ctx context.Context, shard int) (out store.Trimmed, err error) {
	k, at := t.store.Shard(shard), &t.at[shard]
	head, err := k.OpenHead(ctx)
	if err != nil {
		return out, err
	}
	ctx = store.WithEpoch(ctx, head.Epoch)
	for ctx.Err() == nil {
		out, err = k.TrimEvents(ctx, store.Trim{
			Retention: t.cfg.Retention, MaxEvents: t.cfg.MaxEvents, Limit: trimLimit, LookBehind: lookBehind, Behind: at.behind,
			MaxHeld: maxHeld, Groups: t.cfg.Groups, Epoch: at.epoch, Full: at.full, Lost: at.lost(),
		})
		if err != nil {
			return out, err
		}
		if out.Epoch != at.epoch {
			*at = newTrimming(out.Epoch)
		}
		if err := t.findLost(ctx, k, at, &out); err != nil {
			return out, err
		}
		t.report(shard, &out)
		if len(out.Missing) > 0 {
			return out, nil
		}
		if err := t.dropBits(ctx, k, &out); err != nil {
			return out, err
		}
		at.floor = max(out.DoneFloor, firstKept(&out)) / store.ChunkEvents
		more := at.lookOn(out.Behind)
		if out.Deleted < trimLimit/2 && !more {
			return out, cmp.Or(t.removeIdle(ctx, k, &out), t.expireLetters(ctx, k, at))
		}
	}
	return out, ctx.Err()
}

// lookOn records where the next look behind an unfinished entry begins. It reports whether this round has more to
// examine.
func (at *trimming) lookOn(behind string) bool {
	if behind != "" {
		at.behind = behind
		return true
	}
	if time.Since(at.since) > lookAgain {
		at.behind, at.since = "", time.Now()
	}
	return false
}

// report logs groups that are missing or that are not declared, once until that changes.
func (t *Trimmer) report(shard int, out *store.Trimmed) {
	var unknown []string
	for _, g := range out.Groups {
		if !slices.Contains(t.cfg.Groups, g.Name) {
			unknown = append(unknown, g.Name)
		}
	}
	trouble := strings.Join(out.Missing, ",") + ";" + strings.Join(unknown, ",")
	if trouble == t.reported[shard] {
		return
	}
	t.reported[shard] = trouble
	log := t.cfg.Log.With(zap.Int("shard", shard))
	if len(out.Missing) > 0 {
		log.Warn("declared groups do not exist, nothing is trimmed: start their workers, or take them out of the "+
			"configuration",
			zap.Strings("groups", out.Missing))
	}
	if len(unknown) > 0 {
		log.Warn("groups that deployment.sinks does not name keep entries in the stream; if a group has no workers any more, remove "+
			"it with XGROUP DESTROY; one of a program of your own may stay",
			zap.Strings("groups", unknown))
	}
}

// dropBits deletes the chunks of done bits of which no event is in the stream any more.
func (t *Trimmer) dropBits(ctx context.Context, k *store.Shard, out *store.Trimmed) error {
	var groups []string
	for _, g := range out.Groups {
		groups = append(groups, g.Name)
	}
	return k.RaiseDoneFloor(ctx, out.DoneFloor/store.ChunkEvents, firstKept(out)/store.ChunkEvents, groups)
}

// firstKept returns the lowest event in the stream, or the next event if the stream is empty.
func firstKept(out *store.Trimmed) int64 {
	if out.FirstKept > 0 {
		return out.FirstKept
	}
	return out.Seq + 1
}

// removeIdle removes the consumers of workers that no longer exist.
func (t *Trimmer) removeIdle(ctx context.Context, k *store.Shard, out *store.Trimmed) error {
	for _, g := range out.Groups {
		names, err := k.RemoveIdleConsumers(ctx, g.Name, "", t.cfg.ForgetAfter)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			t.cfg.Log.Info("removed the consumers of workers that no longer exist", zap.Int("shard", k.Keys.Index()),
				zap.String("group", g.Name), zap.Strings("consumers", names))
		}
	}
	return nil
}

// lettersLimit is how many records of resolved letters one call reads. lettersEvery is how long a trimmer waits after
// it has read all.
const (
	lettersLimit = 200
	lettersEvery = time.Minute
)

// expireLetters deletes records of requeued letters that are too old. Records are in the order of time, so it reads
// each record once.
func (t *Trimmer) expireLetters(ctx context.Context, k *store.Shard, at *trimming) error {
	if time.Now().Before(at.expire) {
		return nil
	}
	more := false
	for _, g := range t.cfg.Groups {
		x, err := k.ExpireLetters(ctx, &store.OldLetters{
			Sink: g, Age: t.cfg.Letters, After: at.letters[g], Limit: lettersLimit,
		})
		if err != nil {
			return err
		}
		at.letters[g] = cmp.Or(x.Last, at.letters[g])
		more = more || x.Read == lettersLimit
	}
	if !more {
		at.expire = time.Now().Add(lettersEvery)
	}
	return nil
}
