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
	freezeScript = newDrainScript("freeze").with(unguarded)
	openScript   = newDrainScript("open", "stub").with(unguarded)
)

// Frozen is the state of a shard after Freeze, which may have left the shard open.
type Frozen struct {
	Frozen bool
	Since  time.Duration // how long ago it froze
	// Seq is the shard's last event and Epoch its epoch, both -1 if Redis does not have the shard.
	Seq, Epoch int64
	// Seen is the seq of the highest event that any process has reported. Late is the seq of an event that was
	// reported only after an opening had skipped it; 0 for none.
	Seen, Late int64
	// Token is the server's run id, and History its master_replid.
	Token, History string
}

func (z *Frozen) why() string {
	switch {
	case z.Seq < 0:
		return "Redis has lost the shard, or it was never founded"
	case z.Late > 0:
		return fmt.Sprintf("the shard was opened without event %d, which was seen before", z.Late)
	case z.Seen > z.Seq:
		return fmt.Sprintf("Redis went back to event %d, and event %d was seen", z.Seq, z.Seen)
	}
	return "Redis was restarted, or a server took over; a worker opens the shard once it is sure that nothing was lost"
}

// opening has the fields of meta that tell for which server the shard was opened.
type opening struct {
	there, frozen   bool
	opened, history string
	seen            int64 // the highest event that a process reported since the shard froze
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
	s.seen, _ = strconv.ParseInt(seen, 10, 64) // absent: 0
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
// highest seq that this process has seen. Freeze returns the state of the shard, frozen or open.
func (k *Shard) Freeze(ctx context.Context) (Frozen, error) { return k.freeze(ctx, 0, "") }

// freeze is Freeze with the seq of a late event: a process had seen it before an opening skipped it; 0 for none.
// skipped is the field of meta in which the caller found that. late does not count if the field has changed since.
func (k *Shard) freeze(ctx context.Context, late int64, skipped string) (Frozen, error) {
	conn, err := k.pin(ctx)
	if err != nil {
		return Frozen{}, err
	}
	defer conn.Close()
	server, err := info(ctx, conn)
	if err != nil {
		return Frozen{}, err
	}
	return freezeOn(ctx, conn, k, &server, late, skipped)
}

func freezeOn(ctx context.Context, conn *redis.Conn, k *Shard, server *Server, late int64, skipped string) (
	Frozen, error) {
	args := []any{server.RunID, k.state.seen.Load(), server.promoted(), late, skipped}
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
	z.Seen, z.Late = r.int64(), r.int64()
	return z, r.done(freezeScript)
}

// Skipped returns the seqs that openings of the shard have skipped. The stream has no events with these seqs.
func (k *Shard) Skipped(ctx context.Context) (runs []stream.SeqRange, err error) {
	list, err := k.skippedRanges(ctx)
	for i := range list {
		runs = append(runs, list[i].SeqRange)
	}
	return runs, err
}

// GivenUp returns the skipped seqs whose loss an operator has accepted.
func (k *Shard) GivenUp(ctx context.Context) (runs []stream.SeqRange, err error) {
	list, err := k.skippedRanges(ctx)
	for i := range list {
		if list[i].accepted {
			runs = append(runs, list[i].SeqRange)
		}
	}
	return runs, err
}

func (k *Shard) skippedRanges(ctx context.Context) ([]skippedRange, error) {
	text, err := k.skipped(ctx)
	if err != nil {
		return nil, err
	}
	list, err := parseSkipped(text)
	if err != nil {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "%s, field %s: %w; someone changed it by hand: put the ranges back",
			k.Keys.Meta(), skippedField, err)
	}
	return list, nil
}

const skippedField = "skipped"

// skippedRange is a range of seqs that an opening has skipped. accepted means that an operator has accepted the
// possible loss of events in the range.
type skippedRange struct {
	stream.SeqRange

	accepted bool
}

// parseSkipped reads "101-65535,65600-131071*": a star marks an accepted range.
func parseSkipped(text string) (list []skippedRange, err error) {
	if text == "" {
		return nil, nil
	}
	runs, err := parseRanges(strings.ReplaceAll(text, "*", ""))
	if err != nil {
		return nil, err
	}
	for i, part := range strings.Split(text, ",") {
		list = append(list, skippedRange{runs[i], strings.HasSuffix(part, "*")})
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
	Mark  Mark
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
	args := []any{o.Was.Token, number(o.Was.Seq), number(o.Was.Epoch), o.Epoch, o.Last, o.Known, o.Was.Seen, o.Was.History,
		o.Was.Late, bit(o.Accepted), unrecorded, o.Evidence, len(o.Sinks)}
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
