package lua

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

//go:embed grab.lua
var grabSource string

var grabScript = newScript("grab", grabSource)

// MaxGrabs is how many grabs one call decides.
const MaxGrabs = hongbao.MaxEntryGrants

// GrabCall is one call of grab.lua: grabs of one campaign on one shard.
type GrabCall struct {
	Campaign string
	// MaxBacklog is how many unfinished events the shard may hold before grabs are answered busy.
	MaxBacklog int64
	// FactNames are the names of the facts that the campaign's limits count by, joined by ",", in the order of the
	// campaign; each grab must have them. ErrFacts tells the right ones.
	FactNames string
	Grabs     []*hongbao.Grab
}

// FactsError says that the campaign's limits count by other facts than the call brought. Nothing was decided.
type FactsError struct{ Names string }

func (e *FactsError) Error() string {
	return fmt.Sprintf("the campaign's limits count by the facts %q", e.Names)
}

// Grab decides the call's grabs in one atomic step. answers[i] belongs to call.Grabs[i]; its room is reused.
//
// The call may be repeated after an error: a grab with a request id gets its receipt again. *FactsError means that
// nothing was decided and the call is to be repeated with other facts.
func Grab(ctx context.Context, rdb redis.Scripter, k Keys, call *GrabCall, answers []hongbao.Answer) ([]hongbao.Answer, error) {
	if len(call.Grabs) < 1 || len(call.Grabs) > MaxGrabs { // an entry with more grants could not be read
		return nil, hongbao.Errorf(hongbao.Permanent, "a call of %d grabs was refused before anything was touched: want 1 to %d",
			len(call.Grabs), MaxGrabs)
	}
	reply, err := grabScript.run(ctx, rdb, GrabKeys(k, call.Campaign), GrabArgs(call))
	if err != nil {
		return nil, err
	}
	return ParseGrabReply(k.shard, call, reply, answers)
}

// GrabKeys are the KEYS of grab.lua.
func GrabKeys(k Keys, campaign string) []string {
	c := k.Campaign(campaign)
	return []string{k.Meta(), k.Events(), c, c + ":stock", c + ":receipts", c + ":counters"}
}

// GrabArgs are the ARGV of grab.lua.
func GrabArgs(call *GrabCall) []any {
	var names []string
	if call.FactNames != "" {
		names = strings.Split(call.FactNames, ",")
	}
	flags, traces := grabFlags(call.Grabs)
	args := make([]any, 3, 3+len(call.Grabs)*(3+len(names)))
	args[0], args[1], args[2] = call.MaxBacklog, call.FactNames, flags
	for _, g := range call.Grabs {
		args = append(args, g.User, g.RequestID)
		if traces {
			args = append(args, g.Trace)
		}
		for _, name := range names {
			args = append(args, g.Facts[name])
		}
	}
	return args
}

// grabFlags tells the script what it need not look for: users who come twice, and traces.
func grabFlags(grabs []*hongbao.Grab) (flags string, traces bool) {
	users := usersSeen.Get().(map[string]struct{}) //nolint:forcetypeassert // the pool holds nothing else
	for _, g := range grabs {
		users[g.User] = struct{}{}
		traces = traces || g.Trace != ""
	}
	if len(users) == len(grabs) {
		flags = "d"
	}
	clear(users)
	usersSeen.Put(users)
	if traces {
		flags += "t"
	}
	return flags, traces
}

var usersSeen = sync.Pool{New: func() any { return make(map[string]struct{}, MaxGrabs) }}

// ParseGrabReply reads the reply of grab.lua.
func ParseGrabReply(shard int, call *GrabCall, reply []string, answers []hongbao.Answer) ([]hongbao.Answer, error) {
	if len(reply) != 2+len(call.Grabs) {
		return nil, fmt.Errorf("script grab answered %d strings for %d grabs", len(reply), len(call.Grabs))
	}
	now, err1 := strconv.ParseInt(reply[0], 10, 64)
	from, err2 := strconv.ParseInt(reply[1], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("script grab answered a time that is none: %w", err)
	}
	if names, ok := strings.CutPrefix(reply[2], "F"); ok {
		return nil, &FactsError{Names: names}
	}
	p := grabParser{shard: shard, from: from, now: time.UnixMilli(now)}
	answers = answers[:0]
	for _, text := range reply[2:] {
		a, err := p.answer(text)
		if err != nil {
			return nil, fmt.Errorf("script grab answered %.80q: %w", text, err)
		}
		answers = append(answers, a)
	}
	return answers, nil
}

type grabParser struct {
	shard int
	from  int64
	now   time.Time
}

var grabOutcomes = map[byte]hongbao.Outcome{
	'a': hongbao.AlreadyGranted, 'l': hongbao.LimitReached, 's': hongbao.SoldOut,
	'n': hongbao.NotStarted, 'e': hongbao.Ended, 'p': hongbao.Paused, 'u': hongbao.UnknownCampaign,
	'r': hongbao.Refilling, 'b': hongbao.Busy, 'f': hongbao.Frozen,
}

func (p *grabParser) answer(text string) (hongbao.Answer, error) {
	if text == "" {
		return hongbao.Answer{}, errors.New("it is empty")
	}
	var err error
	if text[0] >= '0' && text[0] <= '9' {
		a := hongbao.Answer{Outcome: hongbao.Granted, Time: p.now}
		a.Receipts, err = ParseReceipts(p.shard, p.from, text)
		return a, err
	}
	a := hongbao.Answer{Outcome: grabOutcomes[text[0]], Time: p.now}
	switch a.Outcome {
	case "":
		return a, errors.New("no such outcome")
	case hongbao.AlreadyGranted:
		if text == "a" {
			return a, errors.New("already granted, and no receipt")
		}
		a.Receipts, err = ParseReceipts(p.shard, p.from, text[1:])
	case hongbao.LimitReached:
		a.Limit, err = parseLimitHit(text[1:])
	case hongbao.NotStarted:
		a.Starts = time.UnixMilli(p.from)
	default: // the outcome is all there is to say
	}
	return a, err
}

func parseLimitHit(text string) (*hongbao.LimitHit, error) {
	f := strings.Split(text, ":")
	if len(f) != 4 {
		return nil, errors.New("want by:per:max:ms")
	}
	most, err1 := strconv.ParseInt(f[2], 10, 64)
	ms, err2 := strconv.ParseInt(f[3], 10, 64)
	hit := &hongbao.LimitHit{Limit: hongbao.Limit{By: f[0], Per: hongbao.Period(f[1]), Max: most}}
	if ms > 0 {
		hit.Resets = time.UnixMilli(ms)
	}
	return hit, errors.Join(err1, err2)
}

// ParseReceipts reads a user's receipts as Redis keeps them: packet:amount:seq:ms since the window's start:request id,
// separated by one space. from is the window's start in unix ms.
func ParseReceipts(shard int, from int64, text string) ([]hongbao.Receipt, error) {
	out := make([]hongbao.Receipt, 0, 1)
	for more := text != ""; more; {
		var one string
		one, text, more = strings.Cut(text, " ")
		r := hongbao.Receipt{Shard: shard}
		var n [4]int64
		for i := range n {
			digits, rest, ok := strings.Cut(one, ":")
			v, err := parseDigits(digits)
			if !ok || err != nil {
				return nil, fmt.Errorf("receipt %.80q can't be read: want packet:amount:seq:ms:request id", one)
			}
			n[i], one = v, rest
		}
		r.Packet, r.Amount, r.Seq, r.Time = n[0], hongbao.Amount(n[1]), n[2], time.UnixMilli(from+n[3])
		r.RequestID = one
		out = append(out, r)
	}
	return out, nil
}

// parseDigits reads what a script writes: digits only, without a leading zero, below 2^53.
func parseDigits(s string) (int64, error) {
	if s == "" || s[0] < '0' || s[0] > '9' || len(s) > 1 && s[0] == '0' {
		return 0, fmt.Errorf("%.30q is not a whole number in plain digits", s)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n > int64(hongbao.MaxAmount) {
		err = fmt.Errorf("%d is above %d", n, hongbao.MaxAmount)
	}
	return n, err
}
