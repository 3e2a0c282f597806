package store

import (
	"cmp"
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
	mendScript    = newDrainScript("mend").with(unguarded)
	regrantScript = newDrainScript("regrant", "fields", "marks", "withheld").with(unguarded)
	markScript    = newDrainScript("mark", "bits").with(unguarded)
	reviseScript  = newDrainScript("revise").with(unguarded)
)

// Attempt is an attempt to restore a frozen shard.
type Attempt struct {
	// Epoch is the epoch that the ledger records for the attempt. Floor is the seq up to which Redis certainly had
	// all events when the attempt began. Wrote is the time of the last write to the shard before it froze, in ms; 0
	// if unknown. Neither includes events that a restore has written.
	Epoch, Floor, Wrote int64
	// Token is the server's run id, and History its master_replid.
	Token, History string
}

// String returns the attempt as the key meta stores it.
func (a Attempt) String() string {
	return fmt.Sprintf("%d %d %d %s %s", a.Epoch, a.Floor, a.Wrote, cmp.Or(a.Token, "-"), cmp.Or(a.History, "-"))
}

// parseAttempt parses the result of String. For an empty text it returns the zero Attempt.
func parseAttempt(text string) (a Attempt, err error) {
	if text == "" {
		return a, nil
	}
	words := strings.Split(text, " ")
	if len(words) != 5 {
		return a, fmt.Errorf("attempt %.80q has %d words, want 5", text, len(words))
	}
	for i, into := range []*int64{&a.Epoch, &a.Floor, &a.Wrote} {
		if *into, err = strconv.ParseInt(words[i], 10, 64); err != nil {
			return a, fmt.Errorf("attempt %.80q: %w", text, err)
		}
	}
	a.Token, a.History = strings.TrimPrefix(words[3], "-"), strings.TrimPrefix(words[4], "-")
	return a, nil
}

func (r *replyReader) attempt() Attempt {
	a, err := parseAttempt(r.string())
	r.err = errors.Join(r.err, err)
	return a
}

// ErrAttemptOver says that a newer attempt restores the shard, or that the shard has changed in some other way. The
// failed call changed nothing.
var ErrAttemptOver = hongbao.Outagef(hongbao.ClassTransient, "the shard changed while it was restored; it is tried again")

// Attempt returns the restore attempt that the shard records, or the zero Attempt if there is none.
func (k *Shard) Attempt(ctx context.Context) (Attempt, error) {
	text, err := k.rdb.HGet(ctx, k.Keys.Meta(), mendField).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return Attempt{}, fmt.Errorf("read who restores %s: %w", k.Keys.Meta(), Classify(err))
	}
	a, err := parseAttempt(text)
	if err != nil { // written by another build or by hand: treated as absent
		return Attempt{}, nil //nolint:nilerr // see above
	}
	return a, nil
}

const mendField = "mend"

// Begin records an attempt in the shard. Witnesses then send their evidence to it. was is the state in which the
// caller found the shard.
func (k *Shard) Begin(ctx context.Context, was *Frozen, a Attempt) error {
	return k.runRestoreScript(ctx, mendScript, []string{k.Keys.Meta()}, was.Seq, was.Epoch, a.String())
}

// runRestoreScript calls a script that belongs to an attempt, such as regrant.lua.
func (k *Shard) runRestoreScript(ctx context.Context, s *script, keys []string, args ...any) error {
	reply, err := s.runPlain(ctx, k.rdb, keys, args)
	if err != nil {
		return err
	}
	return s.attemptError(reply)
}

// attemptError turns a reply other than "ok" into an error.
func (s *script) attemptError(reply []string) error {
	switch reply[0] {
	case "ok":
		return nil
	case "changed":
		return fmt.Errorf("script %s: %w", s.name, ErrAttemptOver)
	}
	return hongbao.Errorf(hongbao.ClassConflict, "script %s: a grant can't be restored: %s", s.name, strings.Join(reply, " "))
}

// Evidence has the grants that witnesses have sent to the attempts to restore the shard. Texts is the number of texts
// that they sent, and Broken the number of unreadable texts.
type Evidence struct {
	Grants        []hongbao.Grant
	Texts, Broken int64
}

const evidencePage = 10_000

// Evidence returns the evidence that witnesses have sent.
func (k *Shard) Evidence(ctx context.Context) (e Evidence, err error) {
	count := k.rdb.HGet(ctx, k.Keys.Meta(), "evidence") // read first: Reopen fails if more texts arrive later
	if err := count.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return e, fmt.Errorf("read what witnesses know of %s: %w", k.Keys.Meta(), Classify(err))
	}
	e.Texts, _ = count.Int64() // absent: 0
	for first := int64(0); ; first += evidencePage {
		texts, err := k.rdb.LRange(ctx, k.Keys.Evidence(), first, first+evidencePage-1).Result()
		if err != nil {
			return e, fmt.Errorf("read what witnesses know of %s: %w", k.Keys.Meta(), Classify(err))
		}
		for _, text := range texts {
			entry, err := stream.ParseEntry(k.Index(), "0-0", []string{grantVersion, text})
			if err != nil {
				e.Broken++
			}
			e.Grants = append(e.Grants, entry.Grants...)
		}
		if len(texts) < evidencePage {
			return e, nil
		}
	}
}

// grantVersion is the version of stream entries with grants.
const grantVersion = "3"

// Run is one step of a restore. It has either grants with consecutive seqs, of one campaign and with the same time,
// or a range of seqs whose grants are unknown.
type Run struct {
	Grants      []hongbao.Grant
	Generations int64
	Unknown     stream.SeqRange // the unknown seqs, if Grants is empty
	// Reported means that a process which sent no evidence may have reported grants in Unknown to users. The range is then
	// recorded as accepted, so a late report of such a grant does not freeze the shard again.
	Reported bool
}

func (r *Run) call(k *Shard, a Attempt) (keys []string, args []any) {
	keys = []string{k.Keys.Meta(), k.Keys.Events()}
	if len(r.Grants) == 0 {
		star := ""
		if r.Reported {
			star = "*"
		}
		return keys, []any{a.String(), r.Unknown.First, r.Unknown.Last, star}
	}
	g, last := &r.Grants[0], &r.Grants[len(r.Grants)-1]
	keys = append(append(keys, k.Keys.Campaign(g.Campaign), k.Keys.Receipts(g.Campaign), k.Keys.Withheld(g.Campaign)),
		k.Keys.Stocks(g.Campaign, r.Generations)...)
	args = []any{a.String(), g.Seq, last.Seq, g.Campaign, cmp.Or(g.Currency, "-"), g.Time.UnixMilli()}
	for i := range r.Grants {
		g := &r.Grants[i]
		args = append(args, g.Packet, int64(g.Amount), g.User, g.RequestID, cmp.Or(g.Trace, "-"))
	}
	return keys, args
}

// regrantsAtOnce is how many runs one pipeline sends; together they have at most 8,192 grants.
const regrantsAtOnce = 64

// RestoreGrants restores runs, which must be in the order of their seqs. A run that is out of order or already restored
// changes nothing. The error is a Conflict if Redis refuses a grant, for example because its packet is not in the
// stock. Then that run and all later ones change nothing.
func (k *Shard) RestoreGrants(ctx context.Context, a Attempt, runs ...Run) error {
	if len(runs) == 0 {
		return nil
	}
	keys, args := runs[0].call(k, a)
	if err := k.runRestoreScript(ctx, regrantScript, keys, args...); err != nil { // also loads the script for the pipelines below
		return err
	}
	sha := textsFor("", false).sha[regrantScript]
	for some := range slices.Chunk(runs[1:], regrantsAtOnce) {
		pipe := k.rdb.Pipeline()
		for i := range some {
			keys, args := some[i].call(k, a)
			pipe.EvalSha(ctx, sha, keys, args...)
		}
		cmds, _ := pipe.Exec(ctx) // each command has its own error
		for _, cmd := range cmds {
			v, err := cmd.(*redis.Cmd).Result() //nolint:forcetypeassert // each is an EVALSHA
			if err != nil {
				return fmt.Errorf("script regrant on %s: %w", k.Keys.Meta(), regrantScript.classify(k.rdb, err))
			}
			reply, err := flatten(regrantScript.name, v)
			if err == nil {
				err = regrantScript.attemptError(reply)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// markRuns is how many runs one script call marks.
const markRuns = 500

// SetDone sets the done bits of events that a sink has received, and counts them by campaign. It leaves out events in
// open claims of the sink. done is the name of the bits: the sink's, or another one under which its claims keep done
// bits; events without campaigns are not counted.
func (k *Shard) SetDone(ctx context.Context, a Attempt, sink, done string, events []stream.CampaignRange) error {
	for some := range slices.Chunk(events, markRuns) {
		m, campaigns := newCounted(k.Keys, done, []string{k.Keys.Meta(), k.Keys.Claims(sink)}, some)
		args := []any{a.String(), done, campaigns}
		for _, p := range m.pieces {
			args = append(args, p.key, p.first, p.last, p.base, p.campaign)
		}
		if err := k.runRestoreScript(ctx, markScript, m.keys, args...); err != nil {
			return err
		}
	}
	return nil
}

// Revise changes the revision of a campaign. A restore may have returned packets to the stock. The new revision
// invalidates what callers have cached, such as the filter.
func (k *Shard) Revise(ctx context.Context, a Attempt, campaign string) error {
	return k.runRestoreScript(ctx, reviseScript, []string{k.Keys.Meta(), k.Keys.Campaign(campaign), k.Keys.Filter(campaign)}, a.String())
}

// Before describes the shard's data in Redis from before the freeze.
type Before struct {
	// OnePromotion means that there was exactly one promotion since the shard was last opened, and no restart. Then Redis
	// can only have lost the latest writes.
	OnePromotion bool
	// AppendOnly means that the server has an append-only file. Then each process that has answered users waited until its
	// registration was in this file.
	AppendOnly bool
	LastWrite

	// Frozen is when the shard froze.
	Frozen time.Time
	// Attempt is the attempt that is recorded in the shard. Asked is how long ago it began to collect evidence from
	// witnesses.
	Attempt Attempt
	Asked   time.Duration
	// CertainSeq is the last event before Wrote minus the overlap. If the stream no longer has such events, it is the last
	// trimmed event.
	CertainSeq int64
}

// Before describes the data of a frozen shard. Unless there was OnePromotion, writes within overlap before the last
// write may be missing.
func (k *Shard) Before(ctx context.Context, overlap time.Duration) (b Before, err error) {
	conn, err := k.pin(ctx)
	if err != nil {
		return b, err
	}
	defer conn.Close()
	server, err := info(ctx, conn)
	if err != nil {
		return b, err
	}
	v, err := conn.HMGet(ctx, k.Keys.Meta(), openedField, historyField, frozenField, mendField, "asked").Result()
	if err != nil {
		return b, fmt.Errorf("read %s: %w", k.Keys.Meta(), Classify(err))
	}
	opened, _ := v[0].(string)
	history, _ := v[1].(string)
	b.OnePromotion = server.RunID != opened && server.promoted() != "" && server.ReplID2 == history
	b.Frozen, b.AppendOnly = unixMilli(v[2]), server.AppendOnly
	if b.LastWrite, err = k.lastWriteOn(ctx, conn); err != nil {
		return b, err
	}
	mend, _ := v[3].(string)
	b.Attempt, _ = parseAttempt(mend) // unreadable: the zero Attempt
	b.Asked = max(0, b.now.Sub(unixMilli(v[4])))
	// A restarted server can report the history of the file that it loaded. So OnePromotion also requires that the server
	// was up before the last write.
	b.OnePromotion = b.OnePromotion && server.Uptime > b.now.Sub(b.Wrote)
	b.CertainSeq, err = k.lastBefore(ctx, b.Wrote.Add(-overlap))
	return b, err
}

// GrantedIn counts the grants after since, up to until, that the stream has. It goes by the entries' own times, because
// ids stay ahead after Redis' clock was. From the newest entry on it reads back to the first someEntries entries
// without such a grant.
func (k *Shard) GrantedIn(ctx context.Context, since, until time.Time) (n int64, err error) {
	for end := "+"; ; {
		page, err := k.rdb.XRevRangeN(ctx, k.Keys.Events(), end, "-", someEntries).Result()
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", k.Keys.Events(), Classify(err))
		}
		was := n
		for _, m := range page {
			if e, ok := k.readable(m); ok && e.Kind == stream.EntryGrant && e.Time.After(since) && !e.Time.After(until) {
				n += int64(len(e.Grants))
			}
		}
		if n == was || len(page) < someEntries {
			return n, nil
		}
		end = "(" + page[len(page)-1].ID
	}
}

// lastBefore returns the last event up to a time, by the entries' ids: these are never earlier than the write. If the
// stream has no event that old, it returns the last trimmed event.
func (k *Shard) lastBefore(ctx context.Context, at time.Time) (int64, error) {
	until := strconv.FormatInt(max(at.UnixMilli(), 0), 10)
	e, found, err := k.firstEntry(k.rdb.XRevRangeN(ctx, k.Keys.Events(), until, "-", someEntries))
	if err != nil || found {
		return e.Last(), err
	}
	e, found, err = k.firstEntry(k.rdb.XRangeN(ctx, k.Keys.Events(), "-", "+", someEntries))
	if err == nil && !found {
		return k.LastSeq(ctx)
	}
	return e.Seq - 1, err
}

// someEntries is how many entries are read at once, and the limit in the search for a readable one.
const someEntries = 100

// firstEntry returns the first readable entry of the reply.
func (k *Shard) firstEntry(cmd *redis.XMessageSliceCmd) (e stream.Entry, found bool, err error) {
	messages, err := cmd.Result()
	if err != nil {
		return e, false, fmt.Errorf("read %s: %w", k.Keys.Events(), Classify(err))
	}
	for _, m := range messages {
		if e, ok := k.readable(m); ok {
			return e, true, nil
		}
	}
	return e, false, nil
}

// readable parses an entry, and reports whether it could.
func (k *Shard) readable(m redis.XMessage) (e stream.Entry, ok bool) {
	for version, value := range m.Values {
		text, _ := value.(string)
		if e, err := stream.ParseEntry(k.Index(), m.ID, []string{version, text}); err == nil {
			return e, true
		}
	}
	return e, false
}

// unixMilli parses a time in ms. It returns the Unix epoch if v is nil.
func unixMilli(v any) time.Time {
	text, _ := v.(string)
	ms, _ := strconv.ParseInt(text, 10, 64) // absent: 0
	return time.UnixMilli(ms)
}

// ReceiptsOf returns the receipts of users in a campaign. It also works on a frozen shard.
func (p Place) ReceiptsOf(ctx context.Context, users []string) (map[string][]hongbao.Receipt, error) {
	receipts := map[string][]hongbao.Receipt{}
	for some := range slices.Chunk(users, MaxGrabs) {
		pipe := p.rdb.Pipeline()
		fields := p.Keys.askFields(ctx, pipe, p.Campaign, "from")
		texts := pipe.HMGet(ctx, p.Keys.Receipts(p.Campaign), some...)
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, fmt.Errorf("read receipts of campaign %s: %w", p.Campaign, Classify(err))
		}
		f, err := fields()
		if err == nil {
			err = f.Need("from")
		}
		if err != nil {
			return nil, err
		}
		for i, user := range some {
			text, _ := texts.Val()[i].(string)
			if text == "" {
				continue
			}
			if receipts[user], err = ParseReceipts(p.Index(), f.From.UnixMilli(), text); err != nil {
				return nil, err
			}
		}
	}
	return receipts, nil
}
