package sinktest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hongbao-project/hongbao"
)

func correct(t *target) hongbao.Handler { return newMemory(t) }

// A correct sink passes every case, and none is skipped.
func TestCorrectSink(t *testing.T) {
	t.Parallel()
	Run(t, func(testing.TB) Subject { return newTarget().subject(correct) })
}

// A log has both grants of a packet. Its subject says so.
func TestByEvent(t *testing.T) {
	t.Parallel()
	events := func(t *target) hongbao.Handler {
		m := newMemory(t)
		m.id = func(_ *hongbao.Batch, g *hongbao.Grant) string { return g.EventID() }
		return m
	}
	Run(t, func(testing.TB) Subject {
		s := newTarget().subject(events)
		s.ByEvent = true
		return s
	})
	s := newTarget().subject(correct)
	s.ByEvent = true
	r := record(t, caseOf(t, "two grants of one packet"), s)
	if !r.failed {
		t.Error("a log without the second event passes")
	}
}

// quarantine returns a sink that puts refused grants aside.
func quarantine(t *target) hongbao.Handler {
	m := newMemory(t)
	m.book = func(ctx context.Context, id string, g hongbao.Grant) error {
		return t.request(ctx, func() error {
			if t.book(id, g) != nil {
				t.put[unit(&g)] = true
			}
			return nil
		})
	}
	return m
}

// A grant that was put aside is done. Only the hook Aside shows that somebody looks at it.
func TestAside(t *testing.T) {
	t.Parallel()
	Run(t, func(testing.TB) Subject {
		at := newTarget()
		s := at.subject(quarantine)
		s.Aside = at.aside
		return s
	})
	r := record(t, caseOf(t, "a refused grant"), newTarget().subject(quarantine))
	if !strings.Contains(r.text.String(), "tell the suite by Subject.Aside") {
		t.Errorf("want a failure without the hook, got: %s", &r.text)
	}
}

// doubting returns a sink that never repeats what may have happened: a claim without a result is in doubt.
func doubting(t *target) hongbao.Handler {
	m := newMemory(t)
	m.book = func(ctx context.Context, id string, g hongbao.Grant) error {
		t.mu.Lock()
		asked := t.claims[id]
		_, known := t.booked[id]
		t.claims[id] = true
		t.mu.Unlock()
		if asked && !known {
			return errDoubt
		}
		err := t.request(ctx, func() error { return t.book(id, g) })
		if err != nil && !errors.Is(err, errLost) {
			t.mu.Lock()
			defer t.mu.Unlock()
			delete(t.claims, id)
		}
		return err
	}
	m.classify = func(err error) error {
		if errors.Is(err, errDoubt) || errors.Is(err, errLost) {
			return hongbao.Undecidedf("%w", err)
		}
		return classify(err)
	}
	return m
}

// A sink without a repeat passes if its subject says so.
func TestMayDoubt(t *testing.T) {
	t.Parallel()
	Run(t, func(testing.TB) Subject {
		s := newTarget().subject(doubting)
		s.MayDoubt = true
		return s
	})
	r := record(t, caseOf(t, "a lost request"), newTarget().subject(doubting))
	if !r.failed {
		t.Error("a sink that loses a request passes")
	}
}

// Cases without their hook are skipped, and say which one is missing.
func TestMissingHooks(t *testing.T) {
	t.Parallel()
	s := newTarget().subject(correct)
	s = Subject{Open: s.Open, Effects: s.Effects}
	skipped := map[string]int{}
	for i := range cases {
		r := record(t, &cases[i], s)
		if r.failed {
			t.Errorf("case %q: %s", cases[i].name, &r.text)
		}
		if r.skipped {
			skipped[r.text.String()]++
		}
	}
	want := map[string]int{}
	for _, hook := range []string{"Poison", "Down", "Lose"} {
		want["the Subject has no hook "+hook+", which this case needs\n"] = 2
	}
	if len(skipped) != len(want) {
		t.Errorf("want %v, got %v", want, skipped)
	}
	for text, n := range want {
		if skipped[text] != n {
			t.Errorf("want %v, got %v", want, skipped)
		}
	}
}

// A subject that answers wrongly is named, and not the sink.
func TestWrongSubject(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(s *Subject){
		"Subject needs Open and Effects":  func(s *Subject) { s.Effects = nil },
		"Open returned nil":               func(s *Subject) { s.Open = noHandler },
		"Effects returned 0 numbers":      func(s *Subject) { s.Effects = noNumbers },
		"Grants returned 0 grants for 20": func(s *Subject) { s.Grants = noGrants },
		"return grants of the shard":      func(s *Subject) { s.Grants = ofShard(7) },
		"has no effect at the target":     func(s *Subject) { s.Effects = none },
	} {
		s := newTarget().subject(correct)
		change(&s)
		r := record(t, caseOf(t, "one batch"), s)
		if !strings.Contains(r.text.String(), want) {
			t.Errorf("want %q, got: %s", want, &r.text)
		}
	}
}

func noHandler(testing.TB) hongbao.Handler { return nil }

func noNumbers(testing.TB, []hongbao.Grant) []int { return nil }

func noGrants(testing.TB, int, int) []hongbao.Grant { return nil }

func none(_ testing.TB, grants []hongbao.Grant) []int { return make([]int, len(grants)) }

func ofShard(shard int) func(testing.TB, int, int) []hongbao.Grant {
	return func(_ testing.TB, _, n int) []hongbao.Grant {
		return (&maker{name: "other", last: map[int]int64{}}).grants(shard, n)
	}
}
