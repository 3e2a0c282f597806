package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/guard"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

const (
	// maxCounted bounds how many campaigns a server counts at a time. It does not count the answers of one more.
	maxCounted = 10_000
	// answersEvery is how often a server stores new counts, and the time limit of such a call. answersAgain is how often
	// it stores unchanged counts again, because Redis may have lost them.
	answersEvery, answersAgain = time.Second, 10 * time.Second
	// answersKept is how long a server remembers the counts of a campaign after its last answer. It is shorter than the
	// hour after which lua/answers.lua folds a line.
	answersKept = 10 * time.Minute
	// answersAtOnce bounds of how many campaigns of a shard the counts are stored in one second.
	answersAtOnce = 100
)

// answerCounts counts how this server answers grabs, by campaign, and stores the counts in Redis every second. Readers add up
// the counts of all servers. No grab waits for Redis. It is safe for concurrent use.
type answerCounts struct {
	store  *store.Store
	server string // the unique name of this process
	log    *zap.Logger

	mu    sync.Mutex
	of    map[string]*counted // by campaign
	lines int                 // how many lines this server has begun

	failed bool // the last round could not store something; only run uses it
}

// counted are the answers to the grabs of one campaign. All counts are in the order of countedNames.
type counted struct {
	line   string // the name of the line in Redis
	counts []int64
	// stored are the counts that Redis has confirmed, and last is the time of this write by its clock, in ms. last is 0
	// if Redis has confirmed nothing.
	stored []int64
	last   int64
	// changed is the time of the last round with new counts, and tried that of the last round that sent the counts.
	changed, tried time.Time
	sent           bool // no answer was counted since the counts were sent
}

var countedNames = model.AnswerNames()

func newAnswers(st *store.Store, server string, log *zap.Logger) *answerCounts {
	return &answerCounts{store: st, server: server, log: log, of: map[string]*counted{}}
}

// decided counts an answer with an outcome.
func (a *answerCounts) decided(campaign string, outcome hongbao.Outcome) {
	a.add(campaign, string(outcome), 1, true)
}

// undecided counts a grab that ended with an error, unless the grab was malformed.
func (a *answerCounts) undecided(campaign string, err error) {
	switch hongbao.ClassOf(err) {
	case hongbao.ClassTransient, hongbao.ClassBroken:
		a.refused(campaign, model.AnswerUnavailable, 1)
	case hongbao.ClassUnknown:
		a.refused(campaign, model.AnswerUnknown, 1)
	case hongbao.ClassPermanent, hongbao.ClassConflict:
	}
}

// refused counts n grabs that got a problem of this code.
func (a *answerCounts) refused(campaign, code string, n int) { a.add(campaign, code, n, false) }

// add counts n answers. Callers can make up the names of campaigns: so only an outcome shows that there is a campaign.
func (a *answerCounts) add(campaign, name string, n int, exists bool) {
	i := slices.Index(countedNames, name)
	if i < 0 { // unknown_campaign, or a problem of the request
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.of[campaign]
	if c == nil {
		if !exists || len(a.of) >= maxCounted {
			return
		}
		a.lines++
		c = &counted{line: fmt.Sprint(a.server, "/", a.lines), counts: make([]int64, len(countedNames)),
			stored: make([]int64, len(countedNames))}
		a.of[strings.Clone(campaign)] = c // clone: campaign is a substring of the request
	}
	c.counts[i] += int64(n)
	c.sent = false
}

// run stores the counts every second until ctx ends, and then once more.
func (a *answerCounts) run(ctx context.Context) {
	for more := true; more; {
		more = retry.Pause(ctx, answersEvery)
		err := guard.Call(a.log, func() error { return a.round(context.WithoutCancel(ctx), time.Now()) })
		switch {
		case err == nil:
		case hongbao.IsOutage(err):
			a.log.Debug("the counts of answers can't be stored in Redis now", zap.Error(err))
		case !a.failed:
			a.log.Warn("the counts of answers can't be stored in Redis; this is tried again", zap.Error(err))
		}
		a.failed = err != nil
	}
}

// sending is a line that is being stored, with the counts of the line.
type sending struct {
	of     *counted
	line   store.AnswersLine
	counts []int64
}

// round stores the counts that are due. It returns one of the errors: an outage only if there is no other.
func (a *answerCounts) round(ctx context.Context, now time.Time) (failed error) {
	ctx, cancel := context.WithTimeout(ctx, answersEvery)
	defer cancel()
	due := a.due(now)
	errs := store.Each(len(due), store.AllAtOnce, func(i int) (failed error) {
		if len(due[i]) == 0 {
			return nil
		}
		lines := make([]store.AnswersLine, len(due[i]))
		for n := range lines {
			lines[n] = due[i][n].line
		}
		for n, reply := range a.store.Shard(i).StoreAnswers(ctx, lines) {
			a.note(&due[i][n], &reply)
			failed = worse(failed, reply.Err)
		}
		return failed
	})
	for _, err := range errs {
		failed = worse(failed, err)
	}
	return failed
}

// worse returns the error that a person should see.
func worse(a, b error) error {
	if a == nil || hongbao.IsOutage(a) && b != nil {
		return b
	}
	return a
}

// due returns the lines to store, by the shard of the campaign's home. It forgets campaigns without answers for a while.
func (a *answerCounts) due(now time.Time) [][]sending {
	due := make([][]sending, a.store.Len())
	a.mu.Lock()
	defer a.mu.Unlock()
	for campaign, c := range a.of {
		if !c.sent {
			c.changed = now
		} else if now.Sub(c.changed) >= answersKept {
			delete(a.of, campaign) // another answer begins another line
			continue
		}
		if !c.sent || now.Sub(c.tried) >= answersAgain {
			home := a.store.Home(campaign).Index()
			due[home] = append(due[home], sending{of: c, line: store.AnswersLine{Campaign: campaign}})
		}
	}
	for i := range due {
		slices.SortFunc(due[i], func(x, y sending) int {
			return cmp.Or(x.of.tried.Compare(y.of.tried), strings.Compare(x.of.line, y.of.line))
		})
		due[i] = due[i][:min(len(due[i]), answersAtOnce)]
		for n := range due[i] {
			due[i][n].take(now)
		}
	}
	return due
}

// take copies the counts. The caller holds the lock.
func (s *sending) take(now time.Time) {
	c := s.of
	c.tried, c.sent = now, true
	s.counts, s.line.Name, s.line.Last = slices.Clone(c.counts), c.line, c.last
	for i, n := range s.counts {
		if n > 0 {
			s.line.Counts = append(s.line.Counts, model.AnswerCount{Name: countedNames[i], N: n})
		}
	}
}

// note processes the reply to a line.
func (a *answerCounts) note(s *sending, reply *store.AnswersReply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := s.of
	switch reply.Did {
	case store.AnswersStored:
		c.stored, c.last = s.counts, reply.At
	case store.AnswersGone: // if the campaign comes back, Redis has no line
		clear(c.stored)
		c.last = 0
	case store.AnswersFolded: // Redis has the stored counts among those of the ended servers
		for i := range c.counts {
			c.counts[i] -= c.stored[i]
		}
		c.stored, c.last, c.sent = make([]int64, len(c.counts)), 0, false
	default:
		c.sent = false
	}
}
