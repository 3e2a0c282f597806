package sinktest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao"
)

// mistake is a sink with a mistake, the case that must find it, and what the failure must say.
type mistake struct {
	name, found, says string
	change            func(m *memory) hongbao.Handler
}

// in returns a mistake in a part of the sink.
func in(change func(m *memory)) func(*memory) hongbao.Handler {
	return func(m *memory) hongbao.Handler {
		change(m)
		return m
	}
}

// around returns a mistake in Handle, which may call the correct one.
func around(handle func(m *memory, ctx context.Context, b hongbao.Batch) []error) func(*memory) hongbao.Handler {
	return func(m *memory) hongbao.Handler {
		return hongbao.HandlerFunc(func(ctx context.Context, b hongbao.Batch) []error { return handle(m, ctx, b) })
	}
}

// unless returns a classify that is wrong for one error.
func unless(wrong error, is error) func(*memory) hongbao.Handler {
	return in(func(m *memory) {
		m.classify = func(err error) error {
			if errors.Is(err, wrong) {
				return is
			}
			return classify(err)
		}
	})
}

var mistakes = []mistake{
	{"packet is the id, without the campaign", "one batch", "has an error, want nil", in(func(m *memory) {
		m.id = func(_ *hongbao.Batch, g *hongbao.Grant) string { return fmt.Sprint(g.Packet) }
	})},
	{"grants wait in memory for the next call", "one batch", "has no effect at the target", buffers},
	{"the first grant is read before the length", "an empty batch", "Handle panicked", around((*memory).readsFirst)},
	{"no id", "the same batch again", "had its effect 2 times", in(func(m *memory) {
		m.id = func(*hongbao.Batch, *hongbao.Grant) string { return rand.Text() }
	})},
	{"the ids are in the process", "the same batch again", "had its effect 2 times", remembers},
	{"the grants are sorted in place", "the same batch again", "Handle changed grant", around((*memory).sorts)},
	{"a repeat is a conflict", "the same batch again", "a repeat is done at once", around((*memory).refusesRepeats)},
	{"a repeat stands for the whole batch", "batches that overlap", "reported as done, and has no effect",
		around((*memory).skipsBatches)},
	{"unknown ids are found before any is stored", "a grant twice in one batch", "had its effect 2 times",
		around((*memory).readsThenWrites)},
	{"the id is read, and then written", "two workers at once", "had its effect 2 times", in(readThenWrite)},
	{"seq is the id, without the shard", "two shards at once", "", in(func(m *memory) {
		m.id = func(_ *hongbao.Batch, g *hongbao.Grant) string { return fmt.Sprint(g.Seq) }
	})},
	{"the epoch is in the id", "an earlier epoch", "had its effect 2 times", in(func(m *memory) {
		m.id = func(b *hongbao.Batch, g *hongbao.Grant) string { return fmt.Sprint(b.Epoch, g.Campaign, g.Packet) }
	})},
	{"the event is the id", "two grants of one packet", "had its effect, want none", in(func(m *memory) {
		m.id = func(_ *hongbao.Batch, g *hongbao.Grant) string { return g.EventID() }
	})},
	{"the user is in the id", "two grants of one packet in one batch", "want at most one for the packet",
		in(func(m *memory) { m.id = func(_ *hongbao.Batch, g *hongbao.Grant) string { return unit(g) } })},
	{"another user counts as a repeat", "two grants of one packet", "nobody would look at it", unless(errOther, nil)},
	{"only the errors are returned", "a refused grant", "errors for 9 grants", around((*memory).onlyErrors)},
	{"one error stands for the batch", "a refused grant", "the target accepts it, and refuses only number",
		around((*memory).oneForAll)},
	{"the error is at the wrong place", "a refused grant", "the target accepts it, and refuses only number",
		around((*memory).shifted)},
	{"a refused grant is an outage", "a refused grant", "needs class Permanent or Conflict",
		unless(errRefused, hongbao.Outagef(hongbao.ClassTransient, "refused"))},
	{"a refused grant is tried again and again", "a refused grant", "is refused for good: return class Permanent",
		unless(errRefused, hongbao.Errorf(hongbao.ClassTransient, "refused"))},
	{"a refused grant is skipped", "a refused grant alone", "nobody would look at it", unless(errRefused, nil)},
	{"a refused grant stops the shard", "a refused grant alone", "stops the shard",
		unless(errRefused, hongbao.Errorf(hongbao.ClassBroken, "refused"))},
	{"the context is ignored", "a context that is over", "had its effect, want none",
		around((*memory).withoutContext)},
	{"the end of the context is Permanent", "a context that is over", "becomes a dead letter",
		around((*memory).permanentWhenOver)},
	{"the rest is done when the context ends", "a context that ends in the middle", "reported as done, and has no effect",
		around((*memory).stopsSilently)},
	{"a dead worker's claim stays", "workers that die", "claim of a dead worker must end", in(claims)},
	{"an outage is done", "an outage", "reported as done while the target is down", unless(errDown, nil)},
	{"an outage has no Outage", "an outage", "return hongbao.Outagef",
		unless(errDown, hongbao.Errorf(hongbao.ClassTransient, "down"))},
	{"an outage only waits", "an outage", "and all others wait", unless(errDown, hongbao.Waitingf("down"))},
	{"an outage is waited for in the call", "an outage", "has not returned", in(waitsPermanently)},
	{"an outage is Broken", "an outage in the middle", "stops the shard", unless(errDown,
		hongbao.Errorf(hongbao.ClassBroken, "down"))},
	{"a lost request is done", "a lost request", "reported as done, and has no effect", unless(errLost, nil)},
	{"a lost answer is Permanent", "a lost answer", "becomes a dead letter",
		unless(errLost, hongbao.Errorf(hongbao.ClassPermanent, "lost"))},
	{"a lost answer gets another id", "a lost answer", "had its effect 2 times", in(repeatsUnderAnotherID)},
}

// Each mistake is found by its case, which names the case, the grant or the call, and what to do.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			c := caseOf(t, m.found)
			open := func(t *target) hongbao.Handler { return m.change(newMemory(t)) }
			at := newTarget()
			defer at.over.Store(true)
			s := at.subject(open)
			s.Patience = time.Second
			r := record(t, c, s)
			text := r.text.String()
			if !r.failed || !strings.Contains(text, m.says) || !strings.Contains(text, fmt.Sprintf("case %q", m.found)) {
				t.Errorf("want a failure of case %q with %q, got %v: %s", m.found, m.says, r.failed, text)
			}
			t.Log(text)
		})
	}
}

func caseOf(t *testing.T, name string) *testCase {
	t.Helper()
	i := slices.IndexFunc(cases, func(c testCase) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("there is no case %q", name)
	}
	return &cases[i]
}

// Each case finds a mistake. A case that finds none proves nothing.
func TestEveryCaseFindsAMistake(t *testing.T) {
	t.Parallel()
	for _, c := range cases {
		if !slices.ContainsFunc(mistakes, func(m mistake) bool { return m.found == c.name }) {
			t.Errorf("no mistake is planted for case %q", c.name)
		}
	}
}
