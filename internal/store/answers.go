package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/model"
)

// It runs on a frozen shard, too: the counts decide nothing.
var answersScript = newScript("answers").with(unguarded)

// AnswersLine is how often one server has given each answer to a campaign's grabs.
type AnswersLine struct {
	Campaign string
	// Name is the name of the line. No other server ever writes a line of this name.
	Name string
	// Last is the At of the last write of the line that Redis has confirmed; 0 if there was none.
	Last   int64
	Counts []model.AnswerCount
}

// What StoreAnswers has done with a line.
const (
	// AnswersStored means that Redis has the counts.
	AnswersStored = "stored"
	// AnswersGone means that Redis does not have the campaign. Nothing was stored.
	AnswersGone = "gone"
	// AnswersFolded means that the line was silent for an hour, and another server has added its counts to those of the
	// ended servers. Nothing was stored: the answers since Last belong into a new line.
	AnswersFolded = "folded"
)

// AnswersReply is the reply of StoreAnswers to one line.
type AnswersReply struct {
	// Did is one of the constants above, and empty with an error.
	Did string
	// At is the time of the call in ms, by the clock of Redis.
	At  int64
	Err error
}

// StoreAnswers stores lines of campaigns whose home is the shard. All go in one pipeline, with the script's text: a
// pipeline can't rely on the server's cache of scripts. A repeat is harmless.
func (k *Shard) StoreAnswers(ctx context.Context, lines []AnswersLine) []AnswersReply {
	text := textsFor("", false).text(answersScript)
	pipe, cmds, replies := k.rdb.Pipeline(), make([]*redis.Cmd, len(lines)), make([]AnswersReply, len(lines))
	for i := range lines {
		l := &lines[i]
		cmds[i] = pipe.Eval(ctx, text, []string{k.Keys.Campaign(l.Campaign), k.Keys.Answers(l.Campaign)}, l.Name, l.Last,
			answersText(l.Counts))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, cmd := range cmds {
		replies[i] = answersReply(cmd)
		if err := replies[i].Err; err != nil {
			replies[i].Err = fmt.Errorf("store the answers to grabs of campaign %s: %w", lines[i].Campaign, err)
		}
	}
	return replies
}

func answersReply(cmd *redis.Cmd) (out AnswersReply) {
	v, err := cmd.Result()
	if err != nil {
		return AnswersReply{Err: Classify(err)}
	}
	reply, err := flatten(answersScript.name, v)
	if err != nil {
		return AnswersReply{Err: err}
	}
	r := replyReader{rest: reply}
	out.Did, out.At = r.string(), r.int64()
	if out.Err = r.done(answersScript); out.Err != nil {
		out.Did = ""
	}
	return out
}

// answersText returns the counts as answers.lua stores them: "granted=5 sold_out=70".
func answersText(counts []model.AnswerCount) string {
	words := make([]string, len(counts))
	for i, c := range counts {
		words[i] = c.Name + "=" + strconv.FormatInt(c.N, 10)
	}
	return strings.Join(words, " ")
}

// Answers returns how often all servers gave each answer to the campaign's grabs. A line that can't be read counts
// nothing.
func (c Campaign) Answers(ctx context.Context) (model.Answers, error) {
	k := c.Home()
	lines, err := k.rdb.HVals(ctx, k.Keys.Answers(c.id)).Result()
	if err != nil {
		return model.Answers{}, fmt.Errorf("read the answers to grabs of campaign %s: %w", c.id, Classify(err))
	}
	sums, names := map[string]int64{}, model.AnswerNames()
	for _, line := range lines {
		for _, word := range strings.Fields(line) {
			name, text, _ := strings.Cut(word, "=")
			if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
				sums[name] += n
			}
		}
	}
	var others []string // answers that only a newer build counts
	for name := range sums {
		if !slices.Contains(names, name) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	out := model.Answers{Counts: []model.AnswerCount{}}
	for _, name := range append(names, others...) {
		if n := sums[name]; n > 0 {
			out.Total += n
			out.Counts = append(out.Counts, model.AnswerCount{Name: name, N: n})
		}
	}
	return out, nil
}
