package consumer

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/store"
)

// TrimmerConfig configures a Trimmer. Start from DefaultTrimmerConfig and set the fields that have no default;
// NewTrimmer rejects a zero TrimmerConfig.
type TrimmerConfig struct {
	// Deployment is where the events are. Its log gets the alarms.
	Deployment *deployment.Deployment
	// Groups are the consumer groups that must exist. While one is missing, nothing is trimmed.
	Groups []string
	// MayLag are those of Groups that never make producers answer busy, however far they are behind. Redis keeps the
	// events that wait for them.
	MayLag []string
	// Debts has the events that each group owes to its sink. It is nil if nothing is recorded: then each group owes every
	// event, and an event that was deleted before a group got it counts as lost.
	Debts Debts
	// Wait between two rounds of the trimmer, which deletes finished events.
	Every time.Duration `knob:"trimmer.every" default:"1s" want:"10ms to 1h"`
	// How long Redis keeps a finished event.
	Retention time.Duration `knob:"trimmer.retention" default:"10m" want:"0s to 720h"`
	// The most finished events of a shard that Redis keeps.
	MaxEvents int64 `knob:"trimmer.max_events" default:"5000000" want:"0 to 1_000_000_000 events"`
	// How long a consumer without pending entries may do nothing before the trimmer removes it from its group.
	ForgetAfter time.Duration `knob:"trimmer.forget_after" default:"10m" want:"1s to 720h"`
	// How long Redis keeps the record of a requeued or dropped dead letter. Of a dropped one it then keeps, permanently,
	// the decision and the packet, without the user.
	Letters time.Duration `knob:"trimmer.letters" default:"720h" want:"1h to 87600h"`
}

// DefaultTrimmerConfig returns a TrimmerConfig with all defaults. Deployment and Groups have none.
func DefaultTrimmerConfig() TrimmerConfig { return knob.Defaults[TrimmerConfig]() }

// Trimmer deletes stream entries that all groups have finished and whose retention is over, and then their done bits.
// It also removes the consumers of workers that no longer exist. Several trimmers may run: one of them has the lead of
// a shard, and two at once would do no harm.
type Trimmer struct {
	cfg      TrimmerConfig
	log      *zap.Logger
	store    *store.Store
	at       []trimming // by shard
	reported []string   // by shard: the last logged problem
	failing  []bool     // by shard: whether the last attempt failed

	name string      // identifies this trimmer as a leader
	next []time.Time // by shard: when another trimmer's lead may have ended; zero if this trimmer leads
}

// trimming is what a trimmer remembers about a shard from round to round. It is valid for one epoch.
type trimming struct {
	epoch  int64
	behind string           // the next LookBehind starts after this entry
	since  time.Time        // when LookBehind last started at the front of the stream
	floor  int64            // the chunk of the done floor
	full   map[string]int64 // by group: all chunks of done bits before this chunk are full
	groups map[string]*watched
	others []string // undeclared groups that must exist; nil until Debts has answered
	// removed are the sinks that were removed. Their done bits and resolved letters are deleted like those of a group.
	removed []string

	letters map[string]string // by group: the last resolved letter whose record was read
	expire  time.Time         // when the next records are read
}

func newTrimming(epoch int64) trimming {
	return trimming{epoch: epoch, full: map[string]int64{}, groups: map[string]*watched{}, letters: map[string]string{}}
}

// trimLimit limits the entries that one script call deletes, so that it does not block Redis for long.
const trimLimit = 2_000

// lookBehind limits how many entries behind an unfinished entry one script call examines. After lookAgain the
// examination restarts at the front of the stream, for entries that have been finished since.
const (
	lookBehind = 200
	lookAgain  = time.Minute
)

// NewTrimmer returns a Trimmer, or an error that names every problem of the configuration.
func NewTrimmer(cfg TrimmerConfig) (*Trimmer, error) {
	errs := knob.Check(&cfg)
	if cfg.Deployment == nil {
		errs = append(errs, errors.New("Deployment is required"))
	}
	if len(cfg.Groups) == 0 {
		errs = append(errs, errors.New("no groups: a stream without readers can't be trimmed safely"))
	}
	for _, g := range cfg.Groups {
		if err := hongbao.CheckCampaignID(g); err != nil {
			errs = append(errs, fmt.Errorf("group %q: %w", g, err))
		}
	}
	for _, g := range cfg.MayLag {
		if !slices.Contains(cfg.Groups, g) {
			errs = append(errs, fmt.Errorf("MayLag has group %q, which Groups lacks", g))
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("trimmer: %w", errors.Join(errs...))
	}
	st := cfg.Deployment.Store()
	n := st.Len()
	return &Trimmer{cfg: cfg, log: cfg.Deployment.Log(), store: st, at: make([]trimming, n), reported: make([]string, n),
		failing: make([]bool, n), name: rand.Text(), next: make([]time.Time, n)}, nil
}

// trimmerLead is the name of the trimmers' lead. No group can have this name.
const trimmerLead = "#trimmer"

// Run trims all shards on which this trimmer has the lead, every cfg.Every, until ctx ends.
func (t *Trimmer) Run(ctx context.Context) error {
	for {
		t.trimAll(ctx)
		if !retry.Pause(ctx, jitter(t.cfg.Every)) {
			return t.endLeads(ctx)
		}
	}
}

// trimAll trims the shards on which this trimmer has the lead. It logs only the first of several failures of a shard: a
// frozen shard has its own alarm, and fails each time until it is open again.
func (t *Trimmer) trimAll(ctx context.Context) {
	for shard := range t.store.Len() {
		leads, err := t.leads(ctx, shard)
		if leads {
			err = t.Trim(ctx, shard)
		}
		if err != nil && ctx.Err() == nil && !t.failing[shard] {
			t.log.Warn("trim failed; trying again until it succeeds", zap.Int("shard", shard), zap.Error(err))
		}
		t.failing[shard] = err != nil
	}
}

// leads reports whether this trimmer has the lead of a shard, and takes the lead if it is free. It does not ask Redis
// while another trimmer certainly leads. When it takes over the lead, it discards what it remembers from an earlier
// lead.
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

// lead returns how long the lead lasts after a round: long enough for the next round, but short enough for a takeover
// if the trimmer is killed.
func (t *Trimmer) lead() time.Duration {
	return min(10*t.cfg.Every, t.cfg.Every+t.cfg.Every/5+30*time.Second)
}

// endLeads releases the leads, so that other trimmers can take over at once. If a release fails, the lead expires by
// itself.
func (t *Trimmer) endLeads(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for shard := range t.store.Len() {
		if !t.next[shard].IsZero() {
			continue
		}
		if err := t.store.Shard(shard).EndLead(ctx, trimmerLead, t.name); err != nil {
			t.log.Info("the leads could not be released; they expire by themselves", zap.Error(err))
			return nil
		}
	}
	return nil
}

// Trim trims one shard once. Calls for the same shard must not overlap.
func (t *Trimmer) Trim(ctx context.Context, shard int) error {
	_, err := t.trim(ctx, shard)
	return err
}

// trim does the work of Trim, and returns the state of the shard afterwards.
func (t *Trimmer) trim(ctx context.Context, shard int) (out store.Trimmed, err error) {
	k, at := t.store.Shard(shard), &t.at[shard]
	head, err := k.OpenHead(ctx)
	if err != nil {
		return out, err
	}
	k = k.At(head.Epoch)
	for ctx.Err() == nil {
		if out, err = t.delete(ctx, k, at); err != nil {
			return out, err
		}
		if err := t.findLost(ctx, k, at, &out); err != nil {
			return out, err
		}
		missing := len(out.Missing)
		if out.Missing, err = t.endRemoved(ctx, k, at, out.Missing); err != nil {
			return out, err
		}
		if t.report(shard, &out); len(out.Missing) > 0 {
			return out, nil
		}
		if missing > 0 {
			continue
		}
		for i := range out.Groups {
			at.expect(t.cfg.Groups, out.Groups[i].Name)
		}
		if err := t.dropBits(ctx, k, at, &out); err != nil {
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

// delete deletes entries. It deletes none while it can't know which groups must exist.
func (t *Trimmer) delete(ctx context.Context, k *store.Shard, at *trimming) (out store.Trimmed, err error) {
	call := store.Trim{
		Retention: t.cfg.Retention, MaxEvents: t.cfg.MaxEvents, Limit: trimLimit, LookBehind: lookBehind, Behind: at.behind,
		Groups: t.cfg.Groups, MayLag: t.cfg.MayLag, Epoch: at.epoch, Full: at.full, Never: at.never(),
	}
	var unknown error
	if call.Others, unknown = t.others(ctx, k, at); unknown != nil { // the backlog is counted all the same
		call.Retention, call.MaxEvents = keepAll, math.MaxInt64
	}
	if out, err = k.TrimEvents(ctx, call); err == nil && out.Epoch != at.epoch {
		others, removed := at.others, at.removed
		*at = newTrimming(out.Epoch)
		at.others, at.removed = others, removed
	}
	return out, cmp.Or(err, unknown)
}

// lookOn records where the next examination behind an unfinished entry starts, and reports whether this round must
// examine more.
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

// report logs missing and undeclared groups, once for each change.
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
	log := t.log.With(zap.Int("shard", shard))
	if len(out.Missing) > 0 {
		log.Warn("declared groups do not exist, so nothing is trimmed: start their workers, or remove the groups from the "+
			"configuration",
			zap.Strings("groups", out.Missing))
	}
	if len(unknown) > 0 {
		log.Warn("groups that deployment.sinks does not name keep entries in the stream; if a group has no workers any more, "+
			"remove it with `hongbao sink remove`; a group of your own program may stay",
			zap.Strings("groups", unknown))
	}
}

// dropBits deletes the chunks of done bits that belong to no event in the stream.
func (t *Trimmer) dropBits(ctx context.Context, k *store.Shard, at *trimming, out *store.Trimmed) error {
	groups := slices.Clone(at.removed)
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

func (t *Trimmer) removeIdle(ctx context.Context, k *store.Shard, out *store.Trimmed) error {
	for _, g := range out.Groups {
		names, err := k.Group(g.Name).RemoveIdleConsumers(ctx, "", t.cfg.ForgetAfter)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			t.log.Info("removed the consumers of workers that no longer exist", zap.Int("shard", k.Keys.Index()),
				zap.String("group", g.Name), zap.Strings("consumers", names))
		}
	}
	return nil
}

// lettersLimit is how many records of resolved letters one call reads. lettersEvery is the pause after all records
// have been read.
const (
	lettersLimit = 200
	lettersEvery = time.Minute
)

// expireLetters deletes the records of requeued letters that are older than Config.Letters, and the user in those of
// dropped letters. The records are ordered by time, so each record is read only once.
func (t *Trimmer) expireLetters(ctx context.Context, k *store.Shard, at *trimming) error {
	if time.Now().Before(at.expire) {
		return nil
	}
	more := false
	for _, g := range slices.Concat(t.cfg.Groups, at.removed) {
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
