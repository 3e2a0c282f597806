package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var (
	claimScript    = newDrainScript("claim", "bits")
	completeScript = newDrainScript("complete", "bits")
	releaseScript  = newScript("release")
)

// ClaimCall has the arguments of Claim.
type ClaimCall struct {
	Sink, ID, Owner string
	// Done is the sink whose done bits show earlier pushes; empty means Sink.
	Done string
	// Trimmed makes events below the done floor count as done, because trimming deletes their bits. It is for the
	// done bits of a consumer group; see Group.FinishedEvents.
	Trimmed bool
	Lease   time.Duration
	// TakeLive means that claims of live owners are taken over too. Set it only for sinks where a second push of the
	// same claim is harmless.
	TakeLive bool
	Events   []stream.SeqRange
	Payload  string
}

// Claim asks for the right to push events; see stream.ClaimAnswer. If it fails after the script ran, the script's
// changes remain.
//
// A server that was demoted and promoted again keeps its scripts and its run id. Meanwhile it may have lost claims.
// Until a worker freezes the shard on that server, the script may grant or hand over claims wrongly. So after the
// script, Claim checks that the shard is still open for its server.
func (k *Shard) Claim(ctx context.Context, c *ClaimCall) (stream.ClaimAnswer, error) {
	done := c.Done
	if done == "" {
		done = c.Sink
	}
	k.saw(ctx, c.Events...)
	m := newMarks(k.Keys, done, []string{k.Keys.Claims(c.Sink), k.Keys.Meta()}, c.Events)
	take, trimmed := "ended", ""
	if c.TakeLive {
		take = "any"
	}
	if c.Trimmed {
		trimmed = "trimmed"
	}
	args := []any{c.ID, c.Owner, c.Lease.Milliseconds(), take, c.Payload, FormatEvents(c.Events), trimmed}
	for _, p := range m.pieces {
		args = append(args, p.key, p.first, p.last, p.base)
	}
	reply, err := k.run(ctx, claimScript, m.keys, args)
	if err != nil {
		return stream.ClaimAnswer{}, err
	}
	a, err := parseAnswer(reply)
	if err == nil && (a.Granted() || len(a.Open) > 0) {
		err = k.stillOpen(ctx)
	}
	return a, err
}

func parseAnswer(reply []string) (a stream.ClaimAnswer, err error) {
	r := replyReader{rest: reply}
	if r.string() == "granted" {
		a.Fence = r.int64()
		return a, r.done(claimScript)
	}
	a.LiveClaims = r.int()
	for range r.int() {
		a.Done = append(a.Done, stream.SeqRange{First: r.int64(), Last: r.int64()})
	}
	for r.err == nil && len(r.rest) > 0 {
		o := stream.Claim{ID: r.string(), Fence: r.int64()}
		o.Events, err = parseEvents(r.string())
		r.err = errors.Join(r.err, err)
		o.Payload = r.string()
		a.Open = append(a.Open, o)
	}
	return a, r.done(claimScript)
}

// stillOpen returns an error if the shard's server is not the one for which the shard was opened; see askOpen.
func (k *Shard) stillOpen(ctx context.Context) error {
	node, err := k.Node(ctx)
	if err != nil {
		return err
	}
	pipe := node.Pipeline()
	open := k.askOpen(ctx, pipe)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("ask whether shard %d is open for its server: %w", k.Keys.Index(), Classify(err))
	}
	return open()
}

// Also is a second sink whose done bits Complete sets. The zero value is none.
type Also struct {
	Sink string
	// Letters marks only the claim's events that became dead letters of the first sink after the claim was made.
	Letters bool
}

// Complete ends a claim whose push arrived. arrived are the claim's events, or those of them that the sink has, with
// their campaigns. Complete sets their done bits of sink and of the sink in also, if that is not the zero value, counts
// the newly finished grants of sink by campaign, and removes the claim. The error is stream.ErrFenced if the claim was taken over or has already ended. A claim that Redis has lost is also completed,
// unless a newer claim covers some of its events. Redis loses a claim if the key is deleted or the data go back in time.
func (g Group) Complete(ctx context.Context, c *stream.Claim, arrived []stream.CampaignRange, also Also) error {
	seqs := stream.Seqs(arrived)
	g.shard.saw(ctx, seqs...)
	k := g.shard.Keys
	m, campaigns := newCounted(k, g.name, []string{k.Claims(g.name), k.Meta()}, arrived)
	more := marks{keys: m.keys, chunks: map[int64]int{}} // has the same events as m, in the same order
	if also.Sink != "" {
		for _, r := range arrived {
			more.add(k, also.Sink, 0, r.SeqRange)
		}
	}
	args := []any{c.ID, c.Fence, FormatEvents(seqs), g.name, campaigns}
	for i, p := range m.pieces {
		letters := 0
		if also.Letters {
			letters = more.pieces[i].key
		}
		args = append(args, p.key, p.first, p.last, p.base, p.campaign, letters)
	}
	if !also.Letters {
		for _, p := range more.pieces {
			args = append(args, p.key, p.first, p.last, p.base, 0, 0)
		}
	}
	reply, err := g.shard.run(ctx, completeScript, more.keys, args)
	return fenced(completeScript, c, reply, err)
}

// Release ends a claim whose push was certainly not sent. The error is stream.ErrFenced if the claim was taken over
// or no longer exists.
func (g Group) Release(ctx context.Context, c *stream.Claim) error {
	reply, err := g.shard.run(ctx, releaseScript, []string{g.shard.Keys.Claims(g.name)}, []any{c.ID, c.Fence})
	return fenced(releaseScript, c, reply, err)
}

func fenced(s *script, c *stream.Claim, reply []string, err error) error {
	if err != nil {
		return err
	}
	if len(reply) == 0 || reply[0] != "ok" {
		return fmt.Errorf("script %s: claim %s with fence %d: %w", s.name, c.ID, c.Fence, stream.ErrFenced)
	}
	return nil
}

// FormatEvents returns events as scripts and claims have them, "first-last,first-last".
func FormatEvents(events []stream.SeqRange) string {
	var b strings.Builder
	for i, r := range events {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(r.First, 10))
		b.WriteByte('-')
		b.WriteString(strconv.FormatInt(r.Last, 10))
	}
	return b.String()
}

// parseEvents parses the result of FormatEvents.
func parseEvents(s string) ([]stream.SeqRange, error) {
	var out []stream.SeqRange
	for _, part := range strings.Split(s, ",") {
		r, err := parseRange(part)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func parseRange(s string) (r stream.SeqRange, err error) {
	a, b, _ := strings.Cut(s, "-")
	var errs [2]error
	r.First, errs[0] = strconv.ParseInt(a, 10, 64)
	r.Last, errs[1] = strconv.ParseInt(b, 10, 64)
	if errs[0] != nil || errs[1] != nil || r.Last < r.First {
		return r, fmt.Errorf("%.40q is not a range of events", s)
	}
	return r, nil
}
