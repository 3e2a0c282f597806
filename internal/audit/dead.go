package audit

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// letter is a dead letter of one grant.
type letter struct {
	id     string
	detail string // empty for those beyond Config.MaxListed
}

// letters is how many dead letters are read at once.
const letters = 500

// readDead reads the dead letters of the sinks. Whether the letter of a grant is a difference is judged later: its sink
// may have the grant by now.
func (r *run) readDead(ctx context.Context) error {
	for _, k := range r.sinks {
		for i, s := range r.shards {
			for from := "-"; ; {
				page, err := r.Redis.XRangeN(ctx, s.Dead(k.group), from, "+", letters).Result()
				if err != nil {
					return fmt.Errorf("dead letters of %s on shard %d: %w", k.group, i, shards.Classify(err))
				}
				for j := range page {
					r.letter(k, s, &page[j])
				}
				if len(page) < letters {
					break
				}
				from = "(" + page[len(page)-1].ID
			}
		}
	}
	return nil
}

func (r *run) letter(k *sink, s *shard, m *redis.XMessage) {
	text := func(name string) string {
		v, _ := m.Values[name].(string) // absent: empty
		return v
	}
	detail := ""
	if len(k.dead[s.Index()]) < r.MaxListed {
		detail = fmt.Sprintf("dead letter %s of %s, entry %.40q: %s after %.20q attempts: %.300q",
			m.ID, s.Dead(k.group), text("entry"), text("class"), text("attempts"), text("reason"))
	}
	if seq := parseSeq(text("seq")); seq > 0 {
		k.dead[s.Index()][seq] = &letter{id: m.ID, detail: detail}
		return
	}
	if !r.partial() {
		r.found(Difference{Kind: DeadLetter, Where: k.group, Detail: detail + "; the whole entry"})
	}
}

// readDecided reads what persons decided about dead letters. A grant whose letter was dropped is not to be in its sink.
func (r *run) readDecided(ctx context.Context) error {
	for _, k := range r.sinks {
		for i, s := range r.shards {
			for from := "-"; ; {
				page, err := shards.Of(r.Redis, s.Keys).DecidedLetters(ctx, k.group, from, "+", letters)
				if err != nil {
					return fmt.Errorf("decided dead letters of %s on shard %d: %w", k.group, i, err)
				}
				for j := range page {
					r.decidedLetter(k, i, page[j].Values)
				}
				if len(page) < letters {
					break
				}
				from = "(" + page[len(page)-1].ID
			}
		}
	}
	return nil
}

// decidedLetter takes in one decided letter. Its own fields come after those of the decision, and the first of a name
// counts.
func (r *run) decidedLetter(k *sink, shard int, fields []string) {
	f := map[string]string{}
	for i := 0; i+1 < len(fields); i += 2 {
		if _, ok := f[fields[i]]; !ok {
			f[fields[i]] = fields[i+1]
		}
	}
	seq := parseSeq(f["seq"])
	if seq == 0 || f["decision"] != shards.Dropped {
		return
	}
	k.dropped[shard][seq] = fmt.Sprintf("dead letter %.40s was dropped by %.128s: %.200q", f["letter"], f["by"], f["why"])
	// field grant is the line of a grant in an entry: packet, amount, user, ...
	if words := strings.Split(f["grant"], " "); k.from == inLedger && len(words) > 2 {
		r.decide(&hongbao.Grant{Campaign: f["entry.c"], Shard: shard, Seq: seq, User: words[2],
			Amount: hongbao.Amount(parseSeq(words[1]))})
	}
}

var claimFormat = regexp.MustCompile(`^\d+ (\d+) [^\n]*\n([^\n]*)\n`)

// readClaims counts the pushes in progress. One whose lease is over and whose events are all finished is a difference:
// no worker will come to finish it.
func (r *run) readClaims(ctx context.Context) error {
	now, err := r.Redis.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("time: %w", shards.Classify(err))
	}
	for _, k := range r.sinks {
		for i, s := range r.shards {
			for cursor := uint64(0); ; {
				pairs, next, err := r.Redis.HScan(ctx, s.Claims(k.group), cursor, "", 100).Result()
				if err != nil {
					return fmt.Errorf("claims of %s on shard %d: %w", k.group, i, shards.Classify(err))
				}
				for j := 0; j+1 < len(pairs); j += 2 {
					r.claim(k, s, pairs[j], pairs[j+1], now)
				}
				if cursor = next; cursor == 0 {
					break
				}
			}
		}
	}
	return nil
}

func (r *run) claim(k *sink, s *shard, id, text string, now time.Time) {
	if id == "#fence" || r.partial() {
		return
	}
	r.report.Total.OpenClaims++
	m := claimFormat.FindStringSubmatch(text)
	if m == nil {
		r.found(Difference{Kind: OpenClaim, Where: s.Claims(k.group), Detail: fmt.Sprintf("claim %.80q can't be read", id)})
		return
	}
	if parseSeq(m[1]) > now.UnixMilli() {
		return
	}
	for run := range strings.SplitSeq(m[2], ",") {
		if !k.finished(s.Index(), run) {
			return // its events are pending: whoever takes them over finishes the claim
		}
	}
	r.found(Difference{Kind: OpenClaim, Where: s.Claims(k.group),
		Detail: fmt.Sprintf("claim %.80q over events %.200q: its lease is over and its events are finished", id, m[2])})
}

// finished tells whether the group had finished all events of a run "first-last".
func (k *sink) finished(shard int, run string) bool {
	a, b, _ := strings.Cut(run, "-")
	first, last := parseSeq(a), parseSeq(b)
	p := &k.at[shard]
	for seq := max(first, p.finished+1); seq <= last; seq++ {
		if !p.done(seq) {
			return false
		}
	}
	return true
}

// deadLetter gives the dead letter of a fact's event, nil if there is none.
func (k *sink) deadLetter(f *fact) *letter {
	return k.dead[f.shard][f.seq]
}
