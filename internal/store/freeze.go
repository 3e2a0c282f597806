package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var (
	freezeScript = newDrainScript("freeze", "seen").with(unguarded)
	openScript   = newDrainScript("open", "seen", "stub").with(unguarded)
)

// Frozen is the state of a shard after Freeze, which may have left the shard open.
type Frozen struct {
	Frozen bool
	Since  time.Duration // how long ago it froze
	// Seq is the shard's last event and Epoch its epoch, both -1 if Redis does not have the shard.
	Seq, Epoch int64
	// Seen is the latest event that any process has reported.
	Seen Sight
	// Late shows that a process reported an event only after an opening had lost it; 0 for none. It is a seq of the range
	// that the opening skipped: the event's seq, or the range's last if that is lower.
	Late int64
	// Token is the server's run id, and History its master_replid.
	Token, History string
}

// At returns the shard's last event in Redis.
func (z *Frozen) At() Sight { return Sight{Epoch: z.Epoch, Seq: z.Seq} }

func (z *Frozen) why() string {
	switch {
	case z.Seq < 0:
		return "Redis has lost the shard, or it was never founded"
	case z.Late > 0:
		return fmt.Sprintf("the shard was opened without event %d, which was seen before", z.Late)
	case z.Seen.After(z.At()):
		return fmt.Sprintf("Redis went back to event %d of epoch %d, and event %d of epoch %d was seen", z.Seq, z.Epoch,
			z.Seen.Seq, z.Seen.Epoch)
	}
	return "Redis was restarted, or a server took over; a worker opens the shard once it is sure that nothing was lost"
}

// opening has the fields of meta that tell for which server the shard was opened.
type opening struct {
	there, frozen   bool
	opened, history string
	seen            Sight // the latest event that a process reported since the shard froze
	skipped         string
	replicas        int // the highest number of replicas that the primary has had
}

// openingFields are the fields that parseOpening reads, in its order. The fields of a head come first.
var openingFields = slices.Concat(headFields, []string{openedField, historyField, "seen", skippedField, replicasField})

func parseOpening(v []any) opening {
	s := opening{there: v[0] != nil && v[4] != nil, frozen: v[3] != nil}
	s.opened, _ = v[4].(string)
	s.history, _ = v[5].(string) // absent: no history
	seen, _ := v[6].(string)
	s.seen = parseSight(seen) // absent: none
	s.skipped, _ = v[7].(string)
	replicas, _ := v[8].(string)
	s.replicas, _ = strconv.Atoi(replicas) // absent: 0
	return s
}

// openFor reports whether the shard is open for this run of the server, and since the server's last promotion.
func (s *opening) openFor(server *Server) bool {
	promoted := server.promoted()
	return s.there && !s.frozen && s.opened == server.RunID && (promoted == "" || promoted == s.history)
}

// Freeze freezes the shard if the data on its server may be incomplete: the shard was opened for a different server
// or run, the server was promoted since, or this process has seen an event that the shard lacks. It stores the
// latest event that this process has seen. Freeze returns the state of the shard, frozen or open.
func (k *Shard) Freeze(ctx context.Context) (Frozen, error) { return k.freeze(ctx, reasons{}) }

// FreezeBefore is Freeze, and also freezes a shard whose epoch is below epoch. The ledger refuses the events of such a
// shard.
func (k *Shard) FreezeBefore(ctx context.Context, epoch int64) (Frozen, error) {
	return k.freeze(ctx, reasons{before: epoch})
}

const unrestoredField = "unrestored" // run id of the server, and the reason; absent while the shard is open

// SetUnrestored stores why workers can't restore the frozen shard, so that a person has to decide. The reason counts as
// long as the server runs: after a restart workers judge again.
func (k *Shard) SetUnrestored(ctx context.Context, token, why string) error {
	if err := k.rdb.HSet(ctx, k.Keys.Meta(), unrestoredField, token+" "+why).Err(); err != nil {
		return fmt.Errorf("note why shard %d is not restored: %w", k.Index(), Classify(err))
	}
	return nil
}

// Unrestored returns the reason that SetUnrestored has stored for the run of the server; empty if there is none.
func (k *Shard) Unrestored(ctx context.Context, token string) (why string, err error) {
	text, err := k.rdb.HGet(ctx, k.Keys.Meta(), unrestoredField).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("read why shard %d is not restored: %w", k.Index(), Classify(err))
	}
	if run, why, _ := strings.Cut(text, " "); run == token {
		return why, nil
	}
	return "", nil
}

// reasons are reasons to freeze a shard that the caller knows. The zero value has none.
type reasons struct {
	// late is an event that an opening skipped. The caller found it in skipped, the field of meta. It does not count if
	// the field has changed since.
	late    lateEvent
	skipped string
	before  int64 // freeze a shard of a lower epoch
}

// freeze does the work of Freeze and FreezeBefore.
func (k *Shard) freeze(ctx context.Context, why reasons) (Frozen, error) {
	conn, err := k.pin(ctx)
	if err != nil {
		return Frozen{}, err
	}
	defer conn.Close()
	server, err := info(ctx, conn)
	if err != nil {
		return Frozen{}, err
	}
	return freezeOn(ctx, conn, k, &server, why)
}

func freezeOn(ctx context.Context, conn *redis.Conn, k *Shard, server *Server, why reasons) (Frozen, error) {
	args := []any{server.RunID, k.state.known().String(), server.promoted(), why.late.skipped, why.skipped, why.before}
	reply, err := freezeScript.runPlain(ctx, conn, []string{k.Keys.Meta()}, args)
	if err != nil {
		return Frozen{}, err
	}
	r := replyReader{rest: reply}
	z := Frozen{Frozen: r.string() == "frozen", Since: time.Duration(r.int64()) * time.Millisecond, Seq: -1, Epoch: -1,
		Token: server.RunID, History: server.ReplID}
	for _, into := range []*int64{&z.Seq, &z.Epoch} {
		if text := r.string(); text != "" {
			*into, err = strconv.ParseInt(text, 10, 64)
			r.err = errors.Join(r.err, err)
		}
	}
	z.Seen, z.Late = Sight{Epoch: r.int64(), Seq: r.int64()}, r.int64()
	return z, r.done(freezeScript)
}

// Skipped returns the seqs that openings of the shard have skipped. The stream has no events with these seqs.
func (k *Shard) Skipped(ctx context.Context) (runs []stream.SeqRange, err error) {
	s, err := k.Skips(ctx)
	return rangesOf(s.ranges), err
}

func rangesOf(list []skippedRange) (seqs []stream.SeqRange) {
	for i := range list {
		seqs = append(seqs, list[i].SeqRange)
	}
	return seqs
}

// Skips returns the ranges that openings of the shard have skipped.
func (k *Shard) Skips(ctx context.Context) (s Skips, err error) {
	v, err := k.rdb.HMGet(ctx, k.Keys.Meta(), skippedField, epochField).Result()
	if err != nil {
		return s, fmt.Errorf("read the skipped seqs of %s: %w", k.Keys.Meta(), Classify(err))
	}
	text, _ := v[0].(string)
	epoch, _ := v[1].(string)
	s.epoch, _ = strconv.ParseInt(epoch, 10, 64) // absent: 0
	if s.ranges, err = parseSkipped(text); err != nil {
		return s, hongbao.Errorf(hongbao.ClassBroken, "%s, field %s: %w; someone changed it by hand: put the ranges back",
			k.Keys.Meta(), skippedField, err)
	}
	return s, nil
}

const skippedField = "skipped"

// Skips are the ranges of seqs that the openings of a shard have skipped. It also has the ranges of an attempt to
// restore the shard, whose epoch is later than the shard's.
type Skips struct {
	ranges []skippedRange // in ascending order
	epoch  int64          // the shard's
}

// skippedRange is a range of seqs that the opening of an epoch, or an attempt, has skipped. accepted means that an
// operator has accepted the possible loss of events in the range.
type skippedRange struct {
	stream.SeqRange

	epoch    int64
	accepted bool
}

// Accepted reports whether an event of an epoch was skipped, and an operator has accepted that loss.
func (s *Skips) Accepted(epoch, seq int64) bool {
	if r, lost := s.lost(epoch, stream.SeqRange{First: seq, Last: seq}); lost {
		return r.accepted
	}
	return slices.ContainsFunc(s.ranges, func(r skippedRange) bool {
		return r.epoch > s.epoch && r.accepted && r.Has(seq)
	})
}

// Place returns the seq that says whether Redis' last event is before or after an event of an epoch. It is the event's
// seq. But if an opening has lost the event, it is at most the last one that this opening has skipped.
func (s *Skips) Place(epoch, seq int64) int64 {
	if r, lost := s.lost(epoch, stream.SeqRange{First: seq, Last: seq}); lost {
		return min(seq, r.Last)
	}
	return seq
}

// lost returns the range with which an opening has skipped any of these events of an epoch. An opening has lost the
// events of earlier epochs at and after its first seq, except those that it put back: they lie between its ranges.
// Those above its ranges count as lost by the last range.
func (s *Skips) lost(epoch int64, events stream.SeqRange) (r skippedRange, lost bool) {
	for rest := s.ranges; len(rest) > 0; {
		opening := rest
		if next := slices.IndexFunc(rest, func(r skippedRange) bool { return r.epoch != rest[0].epoch }); next > 0 {
			opening = rest[:next]
		}
		rest = rest[len(opening):]
		if opening[0].epoch <= epoch || opening[0].epoch > s.epoch || events.Last < opening[0].First {
			continue
		}
		for _, r := range opening {
			if events.First <= r.Last && r.First <= events.Last {
				return r, true
			}
		}
		last := opening[len(opening)-1]
		return last, events.Last > last.Last
	}
	return r, false
}

// parseSkipped reads "101-65535@2,65600-131071@3*": an @ precedes the epoch of the opening, and a star marks an
// accepted range.
func parseSkipped(text string) (list []skippedRange, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		r := skippedRange{}
		part, r.accepted = strings.CutSuffix(part, "*")
		seqs, epoch, _ := strings.Cut(part, "@")
		if r.SeqRange, err = parseRange(seqs); err != nil {
			return nil, err
		}
		if r.epoch, err = parseDigits(epoch); err != nil {
			return nil, fmt.Errorf("%.80q is no skipped range: want \"first-last@epoch\"", part)
		}
		list = append(list, r)
	}
	return list, nil
}

func (k *Shard) skipped(ctx context.Context) (string, error) {
	text, err := k.rdb.HGet(ctx, k.Keys.Meta(), skippedField).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("read the skipped seqs of %s: %w", k.Keys.Meta(), Classify(err))
	}
	return text, nil
}

// AnyEvidence as Reopening.Evidence opens a shard even if witnesses have sent more than the caller has read.
const AnyEvidence = 1<<53 - 1

// Reopening has the arguments of Reopen.
type Reopening struct {
	// Was is the state in which the caller found the shard. The shard does not open if its state has changed since.
	Was Frozen
	// Mark is the owner of the shard. Reopen writes it if Redis has lost the shard.
	Mark  Owner
	Epoch int64 // the new epoch
	// Last is the last skipped seq. Known is the highest known seq.
	Last, Known int64
	// Accepted reports that an operator has accepted the loss.
	Accepted bool
	// Unrecorded are the openings that are not in the ledger, including this one. It is empty if this opening is in
	// the ledger.
	Unrecorded []Unrecorded
	// Evidence is the number of witness reports that the caller has read. The shard does not open if Redis has more
	// reports.
	Evidence int64
	// Sinks are the sinks whose claims get new fences.
	Sinks []string
	// Campaigns are the campaigns that stay frozen. Places has the number of shards of each campaign; a campaign that
	// is absent has one.
	Campaigns []string
	Places    map[string]int
}

// Reopen opens a frozen shard for its present server. It returns false if the state of the shard is no longer o.Was.
// Reopen is idempotent.
func (k *Shard) Reopen(ctx context.Context, o *Reopening) (bool, error) {
	keys := []string{k.Keys.Meta(), k.Keys.Events(), k.Keys.Evidence()}
	for _, sink := range o.Sinks {
		keys = append(keys, k.Keys.Claims(sink))
	}
	for _, id := range o.Campaigns {
		keys = append(keys, k.Keys.Campaign(id))
	}
	number := func(n int64) string {
		if n < 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	conn, err := k.pin(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	server, err := info(ctx, conn)
	if err != nil {
		return false, err
	}
	if server.RunID != o.Was.Token {
		return false, nil
	}
	unrecorded, err := unrecordedText(o.Unrecorded)
	if err != nil {
		return false, err
	}
	args := []any{o.Was.Token, number(o.Was.Seq), number(o.Was.Epoch), o.Epoch, o.Last, o.Known, o.Was.Seen.String(),
		o.Was.History, o.Was.Late, bit(o.Accepted), unrecorded, o.Evidence, len(o.Sinks)}
	for _, id := range o.Campaigns {
		args = append(args, max(o.Places[id], 1))
	}
	args = append(args, deploymentField, o.Mark.Deployment, shardsField, k.store.Len(), foundingField, o.Mark.Founding,
		"shard", k.Keys.Index())
	reply, err := openScript.runPlain(ctx, conn, keys, args)
	if err != nil {
		return false, err
	}
	k.state.frozen.Store(0)
	if server.Replicas > 0 {
		// The wait makes it likelier that a failover keeps the opening. Its result does not matter: if the opening is
		// lost, the shard is opened again with a later epoch.
		_ = conn.Wait(ctx, server.Replicas, time.Second).Err()
	}
	return one(openScript, reply, func(s string) (bool, error) { return s == "open", nil })
}
