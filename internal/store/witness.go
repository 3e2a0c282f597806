package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/base/turn"
)

var (
	witnessScript = newDrainScript("witness").with(unguarded)
	leaveScript   = newDrainScript("leave")
	testifyScript = newDrainScript("testify").with(unguarded)
)

const (
	// maxEvidenceTexts and maxEvidenceBytes limit what one call of testify.lua sends.
	maxEvidenceTexts, maxEvidenceBytes = 1000, 1 << 20
)

// witness has the grants of a shard that this process has reported to users, and its registration in the hash
// witnesses. Only a process with a registration may report grants, so that a recoverer knows whom to ask.
type witness struct {
	renewal turn.Lock // serializes the callers that renew the registration

	mu sync.Mutex
	// answers means that this process has reported to a user, so it needs a registration.
	answers  bool
	reported []reported // oldest first
	// repeated has the grants that were remembered once more when the process reported them again. Further reports do
	// not remember them, because users may read a receipt very often.
	repeated map[seqOfEpoch]struct{}
	// dropped is the highest seq of a grant that was forgotten before it was settled.
	dropped      int64
	registration ownRegistration
	wrote        time.Time // when this process last wrote its registration, also on a frozen shard
	copied       bool      // the replicas and the disk have its first registration since it had none, or an old one
	// sent is the epoch of the last restore attempt to which this process sent all its grants, and partly that of the last
	// one to which it sent what it had not forgotten. checkedLate is the last epoch in which checkLate ran.
	sent, partly, checkedLate int64
	replicas                  int64  // the highest number of replicas that the primary has had
	text                      []byte // buffer for the text of an entry
}

// ownRegistration is when this process last wrote its registration (or just before), and the shard's epoch then.
type ownRegistration struct {
	at    time.Time
	epoch int64
}

// young reports whether a recoverer would certainly still wait for this process's evidence.
func (l *ownRegistration) young(epoch int64, now time.Time) bool {
	return l.epoch == epoch && stream.Age(now, l.at) < stream.WitnessAge
}

// answer remembers the receipts that a call is about to return to users. epoch is the epoch of the reply. answer
// returns an error if a recoverer may already have opened the shard without these receipts. The caller then retries
// the grab.
func (p Place) answer(ctx context.Context, call *GrabCall, answers []hongbao.Answer, epoch int64) error {
	if may, late := p.remember(call, answers, epoch); may {
		return nil
	} else if late {
		return p.refuseAnswer(epoch)
	}
	w := &p.state.witness
	if err := w.renewal.LockContext(ctx); err != nil {
		return hongbao.Outagef(hongbao.ClassUnknown, "an answer may be one that Redis has lost: %w", err)
	}
	defer w.renewal.Unlock()
	if may, _ := p.remember(call, answers, epoch); may { // true if another caller has renewed the registration
		return nil
	}
	err := p.witness(ctx, true)
	if err == nil {
		err = p.copyRegistration(ctx)
	}
	if err != nil {
		return hongbao.Outagef(hongbao.ClassUnknown, "an answer may be one that Redis has lost: %w", err)
	}
	if may, _ := p.remember(call, answers, epoch); may {
		return nil
	}
	return p.refuseAnswer(epoch)
}

// remember stores answers and reports whether they may be returned to users. For that, this process needs a young
// registration in their epoch. late reports that a restore attempt already has this process's evidence of that epoch.
func (p Place) remember(call *GrabCall, answers []hongbao.Answer, epoch int64) (may, late bool) {
	w := &p.state.witness
	w.mu.Lock()
	defer w.mu.Unlock()
	late = epoch < p.state.least.Load()
	if may = w.registration.young(epoch, time.Now()) && !late && w.copied; may {
		w.remember(p, call, answers, epoch)
	}
	return may, late
}

// registrationEpoch returns the epoch of this process's registration. If there is no registration, it writes one.
func (k *Shard) registrationEpoch(ctx context.Context) (int64, error) {
	w := &k.state.witness
	epoch := func() int64 {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.registration.epoch
	}
	if e := epoch(); e > 0 {
		return e, nil
	}
	err := k.witness(ctx, true)
	return epoch(), err
}

func (k *Shard) refuseAnswer(epoch int64) error {
	return hongbao.Outagef(hongbao.ClassUnknown, "an answer of epoch %d may be one that Redis has lost, and is not "+
		"returned: %w", epoch, ErrStale)
}

const (
	// copyTime limits how long a process waits for the replicas to have its registration. After that its answers are
	// returned, so that a slow replica does not block users. The primary and the faster replicas have the registration.
	copyTime = 500 * time.Millisecond
	// diskWaits is how often a process waits for copyTime until the registration is on disk. With appendfsync everysec
	// that takes a second at most, two if the disk is busy.
	diskWaits = 4
)

// copyRegistration waits for the copies of the shard's registration. The caller must hold w.renewal.
func (k *Shard) copyRegistration(ctx context.Context) error {
	node, err := k.Node(ctx)
	if err != nil {
		return err
	}
	return copyRegistrations(ctx, node, []*Shard{k})
}

// copyRegistrations waits until the replicas and the disk of a server have the first registration of this process on
// each of the server's shards, or the first one after a pause in which the previous one got old. If a replica is
// promoted, or Redis starts from its append-only file, a recoverer then waits for this process. The caller must hold
// the renewal of all shards.
func copyRegistrations(ctx context.Context, node redis.UniversalClient, shards []*Shard) error {
	var waiting []*Shard
	var replicas int64
	for _, k := range shards {
		if has, needs := k.state.witness.uncopied(); needs {
			waiting, replicas = append(waiting, k), max(replicas, has)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	if replicas > 0 {
		if _, err := waitForRegistrations(ctx, node, waiting, "WAIT", replicas); err != nil {
			return err
		}
	}
	for range diskWaits {
		n, err := waitForRegistrations(ctx, node, waiting, "WAITAOF", 1, 0)
		if err != nil {
			return err
		}
		if n > 0 {
			break
		}
	}
	for _, k := range waiting {
		w := &k.state.witness
		w.mu.Lock()
		w.copied = true
		w.mu.Unlock()
	}
	return nil
}

// uncopied reports whether the process has a registration without its copies, and returns the number of replicas.
func (w *witness) uncopied() (replicas int64, needs bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replicas, w.registration.epoch > 0 && !w.copied
}

// waitForRegistrations writes the registrations again, unchanged, and waits for their copies, at most for copyTime. It
// returns how many copies there are, and 1 for WAITAOF on a server that has no such command or no append-only file.
func waitForRegistrations(ctx context.Context, node redis.UniversalClient, shards []*Shard, wait ...any) (int64, error) {
	pipe := node.Pipeline()
	touched := make([]*redis.Cmd, len(shards))
	for i, k := range shards {
		touched[i] = touch(ctx, pipe, k.Keys.Witnesses(), k.store.process) // a WAIT covers the writes before it
	}
	cmd := pipe.Do(ctx, append(wait, copyTime.Milliseconds())...)
	_, _ = pipe.Exec(ctx) // each command has its error
	for i, k := range shards {
		err := touched[i].Err()
		if redis.HasErrorPrefix(err, "Error compiling script") { // miniredis does not know flags, and has no copies
			return 1, nil
		}
		if err != nil {
			return 0, fmt.Errorf("%s for %s: %w", wait[0], k.Keys.Witnesses(), Classify(err))
		}
		lines, err := flatten(touchScript.name, touched[i].Val())
		if err != nil {
			return 0, err
		}
		if lines[0] == "" { // then it may have covered nothing
			return 0, hongbao.Outagef(hongbao.ClassUnknown, "the registration of this process is not on %s: another server "+
				"became the primary meanwhile, or a person deleted it. The next call writes it again", k.Keys.Witnesses())
		}
	}
	var refused redis.Error
	if err := cmd.Err(); wait[0] == "WAITAOF" && errors.As(err, &refused) {
		return 1, nil
	} else if err != nil {
		return 0, fmt.Errorf("%s for the registration of this process: %w", wait[0], Classify(err))
	}
	return firstInt(cmd.Val())
}

// copyRegistrations waits for the copies of the registrations of this process on the server's shards, with one call for
// all of them. It leaves out shards whose copies another goroutine waits for. An error is no harm: the next check of the
// watch tries again, and an answer waits itself.
func (s *Store) copyRegistrations(ctx context.Context, node redis.UniversalClient, shards []int) error {
	var held []*Shard
	for _, i := range shards {
		k := s.Shard(i)
		if _, needs := k.state.witness.uncopied(); needs && k.state.witness.renewal.TryLock() {
			held = append(held, k)
		}
	}
	defer func() {
		for _, k := range held {
			k.state.witness.renewal.Unlock()
		}
	}()
	return copyRegistrations(ctx, node, held)
}

// witness writes the registration of this process if the process reports to users. If the shard is being restored,
// witness sends the reported grants to the restore attempt.
func (k *Shard) witness(ctx context.Context, answers bool) error {
	w := &k.state.witness
	w.mu.Lock()
	w.answers = w.answers || answers
	answers = w.answers
	w.mu.Unlock()
	now := time.Now() // before the write, so that the registration does not seem too young
	reply, err := witnessScript.runPlain(ctx, k.rdb, []string{k.Keys.Meta(), k.Keys.Witnesses()},
		[]any{k.store.process, bit(answers)})
	if err != nil {
		return err
	}
	if reply[0] == "gone" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.registration = ownRegistration{}
		return nil
	}
	r := replyReader{rest: reply}
	open := r.string() == "open"
	epoch, settled, attempt, sent, replicas, absent := r.int64(), r.int64(), r.attempt(), r.int64(), r.int64(), r.int64()
	if err = r.done(witnessScript); err != nil {
		return err
	}
	w.mu.Lock()
	w.replicas, w.sent = replicas, sent
	if answers {
		// A replica or the disk may only have an old registration, or none if Redis has lost it. Then no recoverer would wait
		// for this process.
		w.copied = w.copied && absent == 0 && stream.Age(now, w.wrote) < stream.WitnessAge
		w.wrote = now
	}
	if open {
		if answers { // otherwise no registration was written
			w.registration = ownRegistration{at: now, epoch: epoch}
		}
		w.forget(k.store, epoch, settled, now)
		w.mu.Unlock()
		return nil
	}
	w.registration = ownRegistration{}
	if attempt.Epoch == 0 || attempt.Epoch == sent || attempt.Epoch == w.partly { // new evidence would stop the opening
		w.mu.Unlock()
		return nil
	}
	raise(&k.state.least, attempt.Epoch)
	all := w.dropped <= attempt.Floor
	var texts []any
	for i := range w.reported {
		if w.reported[i].last > attempt.Floor {
			texts = append(texts, w.reported[i].entry)
		}
	}
	w.mu.Unlock()
	if !answers {
		k.state.forgetBefore(attempt.Epoch) // nothing was reported to users
		return nil
	}
	return k.sendEvidence(ctx, attempt.Epoch, texts, all)
}

// sendEvidence sends texts to a restore attempt. all says that they are complete evidence of what the process has
// reported.
func (k *Shard) sendEvidence(ctx context.Context, epoch int64, texts []any, all bool) error {
	for first := true; first || len(texts) > 0; first = false {
		n, bytes := 0, 0
		for n < min(len(texts), maxEvidenceTexts) && bytes < maxEvidenceBytes {
			bytes += len(texts[n].(string)) //nolint:forcetypeassert // witness made them
			n++
		}
		some := texts[:n]
		texts = texts[n:]
		args := append([]any{k.store.process, epoch, bit(all && len(texts) == 0)}, some...)
		reply, err := testifyScript.runPlain(ctx, k.rdb, []string{k.Keys.Meta(), k.Keys.Witnesses(), k.Keys.Evidence()}, args)
		if err != nil {
			return err
		}
		if reply[0] != "ok" {
			return fmt.Errorf("script testify: %w", ErrAttemptOver) // the next attempt asks again
		}
	}
	if all {
		k.state.forgetBefore(epoch)
		return nil
	}
	w := &k.state.witness
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partly = epoch
	return nil
}

// Enter registers a producer that uses this Store. Each Enter needs a Leave. The last Leave deletes this process's
// registration from each shard, so that no recoverer waits for the process. A later answer writes the registration
// again.
func (s *Store) Enter() { s.answering.Add(1) }

// Leave undoes one Enter. It returns an error for a frozen or missing shard, where the registration stays.
func (s *Store) Leave(ctx context.Context) error {
	if s.answering.Add(-1) > 0 {
		return nil
	}
	return errors.Join(Each(s.Len(), AllAtOnce, func(i int) error {
		k := s.shards[i]
		w := &k.state.witness
		if err := w.renewal.LockContext(ctx); err != nil {
			return err
		}
		defer w.renewal.Unlock()
		w.mu.Lock()
		has := w.answers
		w.mu.Unlock()
		if !has {
			return nil
		}
		if _, err := k.run(ctx, leaveScript, []string{k.Keys.Witnesses()}, []any{s.process}); err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.answers, w.copied, w.registration = false, false, ownRegistration{}
		return nil
	})...)
}

// Registration is the registration of a process: when it was last written, and the epoch of the last restore attempt to
// which the process has sent all its evidence.
type Registration struct {
	At   time.Time
	Sent int64
}

// Witnesses returns the registrations of all processes in the shard's hash witnesses.
func (k *Shard) Witnesses(ctx context.Context) ([]Registration, error) {
	texts, err := k.rdb.HVals(ctx, k.Keys.Witnesses()).Result()
	if err != nil {
		return nil, fmt.Errorf("read who watched %s: %w", k.Keys.Meta(), Classify(err))
	}
	registrations := make([]Registration, len(texts))
	for i, text := range texts {
		at, sent, _ := strings.Cut(text, " ")
		registrations[i].At = unixMilli(at)
		registrations[i].Sent, _ = strconv.ParseInt(sent, 10, 64) // unreadable: 0, so the recoverer waits for it
	}
	return registrations, nil
}
