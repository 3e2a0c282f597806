package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var grabScript = newScript("grab", "fields").with(inline).sentOnce()

// MaxGrabs is the most grabs that one call decides.
const MaxGrabs = stream.MaxEntryGrants

// GrabCall is one call of grab.lua: grabs at one place.
type GrabCall struct {
	// Currency is the campaign's currency, which goes into the entry; it may be empty.
	Currency string
	// MaxBacklog is how many unfinished events the shard may have before grabs are answered busy. The script does not
	// check at each event: above 1,000 it checks every MaxBacklog/1,000 events, but at least every 255.
	MaxBacklog int64
	// FactNames are the names of the facts that the campaign's limits count by, joined by "," in the campaign's
	// order. Each grab must have these facts. A call with wrong names fails with FactsError, which has the right
	// ones.
	FactNames string
	// Terms are the campaign's terms as Redis last returned them. Grab updates Terms. A caller that passes them to
	// its next call saves a round trip, until a day or an hour of the limits ends.
	Terms *LimitPeriods
	Grabs []*hongbao.Grab
	// Generation is the generation whose stock the grabs are granted from; 0 means the first. A place where that
	// generation is not complete yet answers OutcomeRefilling.
	Generation int64
	// TimesElsewhere has, for each grab, the times of its user's receipts on other places. They count against the limits
	// by user. It is nil if no user has receipts elsewhere.
	TimesElsewhere [][]time.Time
}

// FactsError says that the call does not have the facts that the campaign's limits count by. No grab was decided.
// Names has the right names, in the format of GrabCall.FactNames.
type FactsError struct{ Names string }

func (e *FactsError) Error() string {
	return fmt.Sprintf("the campaign's limits count by the facts %q", e.Names)
}

// Grab decides the call's grabs in one atomic step. answers[i] in the result belongs to call.Grabs[i]. Grab reuses
// the memory of the answers that the caller passes.
//
// For a campaign with several places or generations, OutcomeSoldOut means only that this place has no packets left of
// call.Generation. The answer then has the user's receipts on this place, if any. An answer with
// OutcomeAlreadyGranted also has the receipts on this place. It has none if the user's only receipt is on a different
// place; see GrabCall.TimesElsewhere.
//
// The caller may repeat the call after an error: a grab with a request id gets its receipt again. After *FactsError
// the caller repeats the call with the right facts. If a day or an hour of the limits has ended since the last call,
// Grab fetches the new terms and tries again.
func (p Place) Grab(ctx context.Context, call *GrabCall, answers []hongbao.Answer) ([]hongbao.Answer, error) {
	if len(call.Grabs) < 1 || len(call.Grabs) > MaxGrabs { // readers reject an entry with more grants
		return nil, hongbao.Errorf(hongbao.ClassPermanent,
			"a call of %d grabs was refused before anything was touched: want 1 to %d",
			len(call.Grabs), MaxGrabs)
	}
	if call.MaxBacklog < 0 {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "a call of grabs was refused before anything was touched: its bound "+
			"of the backlog is %d events", call.MaxBacklog)
	}
	if call.Generation < 0 || call.Generation > MaxGenerations || call.TimesElsewhere != nil && len(call.TimesElsewhere) != len(call.Grabs) {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "a call of %d grabs was refused before anything was touched: it "+
			"asks for generation %d and has %d users' receipts", len(call.Grabs), call.Generation, len(call.TimesElsewhere))
	}
	if call.Terms == nil || call.Terms.factNames != call.FactNames {
		call.Terms = noTerms
	}
	for range 3 { // the first try may get new terms, the second one only if a period has just ended
		args := p.grabArgs(call)
		reply, err := p.run(ctx, grabScript, p.grabKeys(call), args)
		if errors.Is(err, ErrFrozen) {
			return allFrozen(len(call.Grabs), answers), nil
		}
		if err != nil {
			return nil, err
		}
		if len(reply) == 1 {
			answers, head, err := ParseGrabReply(p.Index(), call, reply[0], answers)
			if err == nil {
				p.state.saw(head.Epoch, head.Seq)
				noteExpiring(answers, call.Terms)
				err = p.answer(ctx, call, answers, head.Epoch)
			}
			return answers, err
		}
		terms, err := parseTerms(reply)
		if err != nil {
			return nil, err
		}
		if terms.factNames != call.FactNames {
			return nil, &FactsError{Names: terms.factNames}
		}
		call.Terms = terms
	}
	return nil, hongbao.Outagef(hongbao.ClassTransient,
		"campaign %s: the periods of its limits changed three times under way; nothing happened, "+
			"try again", p.Campaign)
}

// allFrozen returns the answers to a call that a frozen shard refused.
func allFrozen(n int, answers []hongbao.Answer) []hongbao.Answer {
	now := time.Now()
	answers = answers[:0]
	for range n {
		answers = append(answers, hongbao.Answer{Outcome: hongbao.OutcomeFrozen, Time: now})
	}
	return answers
}

// noteExpiring records that the counters of the current periods have an expiry. The script sets it with a grant, and
// later calls can skip that for a minute.
func noteExpiring(answers []hongbao.Answer, terms *LimitPeriods) {
	for i := range answers {
		a := &answers[i]
		if a.Outcome == hongbao.OutcomeGranted && a.Receipts[0].Time.Equal(a.Time) { // a grant by this call, not a repeated one
			if now := time.Now(); now.UnixNano() >= terms.expiring.Load() {
				terms.expiring.Store(now.Add(time.Minute).UnixNano()) // a promoted server may lack it
			}
			return
		}
	}
}

func (p Place) grabKeys(call *GrabCall) []string {
	k, c := p.Keys, p.Keys.Campaign(p.Campaign)
	keys := make([]string, 5, 5+len(call.Terms.byFact))
	keys[0], keys[1], keys[2], keys[3], keys[4] = k.Meta(), k.Events(), c, k.StockOf(p.Campaign, call.Generation),
		c+":receipts"
	for _, limit := range call.Terms.byFact {
		keys = append(keys, k.Counters(p.Campaign, limit.counters))
	}
	return keys
}

// lookAtBacklog divides MaxBacklog into parts. The script checks the backlog once per part, so the backlog exceeds
// the bound by at most one part.
const lookAtBacklog = 1000

// grabArgs returns the ARGV of grab.lua, with the latest event that this process has seen.
func (p Place) grabArgs(call *GrabCall) []any {
	n, terms, seen := len(call.Grabs), call.Terms, p.state.known()
	distinct, traces := common(call.Grabs)
	generation := byte(0)
	if terms.walks() {
		generation = byte(max(call.Generation, 1))
	}
	head := make([]byte, 0, 49+len(terms.byFact)*(8+n)+len(terms.texts))
	head = append(head, byte(n), byte(terms.byUser), byte(len(terms.byFact)),
		bit(distinct), bit(traces), bit(terms.oneEach), bit(time.Now().UnixNano() >= terms.expiring.Load()),
		generation, bit(call.TimesElsewhere != nil), byte(min(max(call.MaxBacklog/lookAtBacklog, 1), 255)))
	head = appendNumber(head, seen.Epoch, 7)
	head = appendNumber(head, seen.Seq, 7)
	for _, ms := range []int64{terms.from, terms.since, terms.until} {
		head = appendNumber(head, ms, 6)
	}
	head = appendNumber(head, call.MaxBacklog, 7)
	args := make([]any, 3, 3+(3+len(terms.byFact))*n)
	args[1], args[2] = p.Campaign+" "+cmp.Or(call.Currency, "-"), terms.revision
	for _, g := range call.Grabs {
		args = append(args, &g.User) // a pointer, because a string in an interface allocates
	}
	for _, g := range call.Grabs {
		args = append(args, &g.RequestID)
	}
	if traces {
		for _, g := range call.Grabs {
			if g.Trace == "" {
				args = append(args, &noTrace)
			} else {
				args = append(args, &g.Trace)
			}
		}
	}
	for _, times := range call.TimesElsewhere {
		args = append(args, terms.sinceStart(times))
	}
	for i := range terms.byFact {
		head, args = terms.byFact[i].values(call.Grabs, head, args)
	}
	args[0] = append(head, terms.texts...)
	return args
}

// appendNumber appends a non-negative number in the given number of bytes, big-endian.
func appendNumber(to []byte, n int64, bytes int) []byte {
	for bytes--; bytes >= 0; bytes-- {
		to = append(to, byte(n>>(8*bytes)))
	}
	return to
}

// noTrace is sent for a grab without a traceparent if another grab of the call has one.
var noTrace = "-"

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// values appends the limit's maximum and the distinct values of its fact to the arguments. For each grab it appends
// the index of the grab's value.
func (l *factLimit) values(grabs []*hongbao.Grab, head []byte, args []any) ([]byte, []any) {
	seen := valuesSeen.Get().(map[string]byte) //nolint:forcetypeassert // the pool holds nothing else
	head = appendNumber(head, l.most, 7)
	size := len(head)
	head = append(head, 0)
	for _, g := range grabs {
		v := g.Facts[l.name]
		index, ok := seen[v]
		if !ok {
			index = byte(len(seen) + 1)
			seen[v] = index
			args = append(args, l.field+v)
		}
		head = append(head, index)
	}
	head[size] = byte(len(seen))
	clear(seen)
	valuesSeen.Put(seen)
	return head, args
}

var valuesSeen = sync.Pool{New: func() any { return make(map[string]byte, MaxGrabs) }}

// common reports whether all users are distinct, and whether any grab has a trace. The script uses this to skip work.
func common(grabs []*hongbao.Grab) (distinct, traces bool) {
	if len(grabs) == 1 {
		return true, grabs[0].Trace != ""
	}
	users := usersSeen.Get().(map[string]struct{}) //nolint:forcetypeassert // the pool holds nothing else
	for _, g := range grabs {
		users[g.User] = struct{}{}
		traces = traces || g.Trace != ""
	}
	distinct = len(users) == len(grabs)
	clear(users)
	usersSeen.Put(users)
	return distinct, traces
}

var usersSeen = sync.Pool{New: func() any { return make(map[string]struct{}, MaxGrabs) }}

// ParseGrabReply parses a reply of grab.lua that has answers. The returned head has the shard's last seq after the
// call, and its epoch.
func ParseGrabReply(shard int, call *GrabCall, reply string, answers []hongbao.Answer) (
	[]hongbao.Answer, Head, error) {
	var head [4]int64
	rest := reply
	for i := range head {
		var text string
		var more bool
		var err error
		text, rest, more = strings.Cut(rest, "\t")
		if i == 1 && text == "" && more && call.Terms != nil { // empty: unchanged since the caller's terms
			head[i] = call.Terms.from
			continue
		}
		if head[i], err = strconv.ParseInt(text, 10, 64); err != nil || !more {
			return nil, Head{}, fmt.Errorf("script grab answered %.80q: want a time, the window's start, a seq, an epoch and "+
				"answers", reply)
		}
	}
	if n := strings.Count(rest, "\t") + 1; n != len(call.Grabs) {
		return nil, Head{}, fmt.Errorf("script grab returned %d answers for %d grabs", n, len(call.Grabs))
	}
	p := grabParser{shard: shard, now: time.UnixMilli(head[0]), from: head[1], seq: head[2], call: call}
	answers = answers[:0]
	i := 0
	for text := range strings.SplitSeq(rest, "\t") {
		a, err := p.answer(text, i)
		if err != nil {
			return nil, Head{}, fmt.Errorf("script grab answered %.80q: %w", text, err)
		}
		answers = append(answers, a)
		i++
	}
	return answers, Head{Seq: p.seq, Epoch: head[3]}, nil
}

type grabParser struct {
	shard int
	from  int64
	seq   int64 // the last assigned seq
	now   time.Time
	call  *GrabCall
}

var grabOutcomes = map[byte]hongbao.Outcome{
	'a': hongbao.OutcomeAlreadyGranted, 'l': hongbao.OutcomeLimitReached, 's': hongbao.OutcomeSoldOut,
	'n': hongbao.OutcomeNotStarted, 'e': hongbao.OutcomeEnded, 'p': hongbao.OutcomePaused,
	'u': hongbao.OutcomeUnknownCampaign,
	'b': hongbao.OutcomeBusy, 'f': hongbao.OutcomeFrozen, 'r': hongbao.OutcomeRefilling,
}

// answer parses the answer to the call's grab with index i.
func (p *grabParser) answer(text string, i int) (hongbao.Answer, error) {
	if text == "" {
		return hongbao.Answer{}, errors.New("it is empty")
	}
	if text[0] >= '0' && text[0] <= '9' {
		return p.granted(text, p.call.Grabs[i].RequestID)
	}
	var err error
	if text[0] == '=' {
		a := hongbao.Answer{Outcome: hongbao.OutcomeGranted, Time: p.now}
		if a.Receipts, err = ParseReceipts(p.shard, p.from, text[1:]); err == nil && len(a.Receipts) != 1 {
			err = fmt.Errorf("a repeat, and %d receipts", len(a.Receipts))
		}
		return a, err
	}
	a := hongbao.Answer{Outcome: grabOutcomes[text[0]], Time: p.now}
	switch a.Outcome {
	case "":
		return a, errors.New("no such outcome")
	case hongbao.OutcomeAlreadyGranted:
		if text == "a" && (p.call.TimesElsewhere == nil || len(p.call.TimesElsewhere[i]) == 0) {
			return a, errors.New("already granted, and no receipt")
		}
		fallthrough
	case hongbao.OutcomeSoldOut:
		if len(text) > 1 {
			a.Receipts, err = ParseReceipts(p.shard, p.from, text[1:])
		}
	case hongbao.OutcomeLimitReached:
		a.Limit, err = p.call.Terms.hit(text[1:])
	case hongbao.OutcomeNotStarted:
		a.Starts = time.UnixMilli(p.from)
	default: // no fields besides the outcome
	}
	return a, err
}

// granted parses the answer "packet amount": the call has granted this packet.
func (p *grabParser) granted(text, request string) (hongbao.Answer, error) {
	number, value, _ := strings.Cut(text, " ")
	packet, err1 := parseDigits(number)
	amount, err2 := parseDigits(value)
	if err := errors.Join(err1, err2); err != nil {
		return hongbao.Answer{}, err
	}
	p.seq++
	return hongbao.Answer{Outcome: hongbao.OutcomeGranted, Time: p.now, Receipts: []hongbao.Receipt{{
		Shard: p.shard, Seq: p.seq, Packet: packet, Amount: hongbao.Amount(amount), Time: p.now, RequestID: request,
	}}}, nil
}

// ParseReceipts parses a user's receipts as Redis stores them: lines of "packet amount seq ms request-id", where ms
// counts from the start of the campaign's window. from is that start in Unix ms.
func ParseReceipts(shard int, from int64, text string) ([]hongbao.Receipt, error) {
	out := make([]hongbao.Receipt, 0, 1)
	for more := text != ""; more; {
		var one string
		one, text, more = strings.Cut(text, "\n")
		r := hongbao.Receipt{Shard: shard}
		whole := one
		var n [4]int64
		for i := range n {
			digits, rest, ok := strings.Cut(one, " ")
			v, err := parseDigits(digits)
			if !ok || err != nil {
				return nil, fmt.Errorf("receipt %.80q can't be read: want \"packet amount seq ms request-id\"", whole)
			}
			n[i], one = v, rest
		}
		r.Packet, r.Amount, r.Seq, r.Time = n[0], hongbao.Amount(n[1]), n[2], time.UnixMilli(from+n[3])
		if r.RequestID = one; strings.Contains(one, " ") {
			return nil, fmt.Errorf("receipt %.80q can't be read: it has more than five fields", whole)
		}
		out = append(out, r)
	}
	return out, nil
}

// parseDigits parses a number in the form that scripts write: digits only, no leading zero, below 2^53.
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
