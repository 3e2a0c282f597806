package sinktest

import (
	"github.com/hongbao-project/hongbao"
)

// mostReports limits the grants that one check reports. The others fail for the same reason.
const mostReports = 3

// report is one failure of a grant.
type report struct {
	r     *run
	count int
}

// add reports a failure of a grant. The text says what is wrong and what to do.
func (p *report) add(g *hongbao.Grant, format string, args ...any) {
	p.r.Helper()
	if p.count++; p.count > mostReports {
		return
	}
	p.r.Errorf("case %q: %s "+format, append([]any{p.r.name, label(g)}, args...)...)
}

// end reports how many grants were not reported, and ends the case after a failure: what follows would only repeat it.
func (p *report) end() {
	p.r.Helper()
	if p.count > mostReports {
		p.r.Errorf("case %q: and %d more grants", p.r.name, p.count-mostReports)
	}
	if p.count > 0 {
		p.r.FailNow()
	}
}

// effects returns how often each grant had its effect.
func (r *run) effects(grants []hongbao.Grant) []int {
	r.Helper()
	counts := r.Effects(r.TB, grants)
	if len(counts) != len(grants) {
		r.Fatalf("case %q: Effects returned %d numbers for %d grants: return one for each grant", r.name, len(counts),
			len(grants))
	}
	return counts
}

// aside returns which grants the target has put aside.
func (r *run) aside(grants []hongbao.Grant) []bool {
	r.Helper()
	if r.Aside == nil {
		return make([]bool, len(grants))
	}
	list := r.Aside(r.TB, grants)
	if len(list) != len(grants) {
		r.Fatalf("case %q: Aside returned %d results for %d grants: return one for each grant", r.name, len(list),
			len(grants))
	}
	return list
}

// wantDone checks that a call of Handle has returned nil for each grant.
func (r *run) wantDone(grants []hongbao.Grant, errs []error, why string) {
	r.Helper()
	p := report{r: r}
	for i, err := range errs {
		if err != nil {
			p.add(&grants[i], "has an error, want nil: %s. %s", why, describe(err))
		}
	}
	p.end()
}

// wantOnce checks that each grant has had its effect exactly once.
func (r *run) wantOnce(grants []hongbao.Grant) {
	r.Helper()
	p := report{r: r}
	for i, n := range r.effects(grants) {
		switch {
		case n > 1:
			p.add(&grants[i], "had its effect %d times, want once: store the effect together with an id of campaign and packet "+
				"that is unique at the target", n)
		case n < 1:
			p.add(&grants[i], "was done, and has no effect at the target: return nil only after the target has confirmed the "+
				"effect, and take nothing but campaign and packet for the id")
		}
	}
	p.end()
}

// wantNone checks that no grant has had its effect.
func (r *run) wantNone(grants []hongbao.Grant, why string) {
	r.Helper()
	p := report{r: r}
	counts := r.effects(grants)
	for i := range grants {
		if counts[i] > 0 {
			p.add(&grants[i], "had its effect, want none: %s", why)
		}
	}
	p.end()
}

// wantTruth checks what a call of Handle has said, at the moment when it has returned: a grant that is done has its
// effect, and no grant has more than one.
func (r *run) wantTruth(grants []hongbao.Grant, errs []error) {
	r.Helper()
	aside := r.aside(grants)
	p := report{r: r}
	for i, n := range r.effects(grants) {
		switch {
		case n > 1:
			p.add(&grants[i], "had its effect %d times, want at most once: store the effect together with an id of campaign "+
				"and packet that is unique at the target", n)
		case n == 0 && errs[i] == nil && !aside[i]:
			p.add(&grants[i], "is reported as done, and has no effect at the target: return nil only after the target has "+
				"confirmed the effect")
		}
	}
	p.end()
}

// wantRetry checks that each grant is done or comes again: a failure of the sink must make no dead letter.
func (r *run) wantRetry(grants []hongbao.Grant, errs []error, cause string) {
	r.Helper()
	p := report{r: r}
	for i, err := range errs {
		switch k := kindOf(err); {
		case k == stops:
			p.add(&grants[i], "stops the shard because of %s. Return class Transient if nothing happened, otherwise Unknown. %s",
				cause, describe(err))
		case k == final && !r.MayDoubt:
			p.add(&grants[i], "becomes a dead letter because of %s. Return class Transient if nothing happened, otherwise "+
				"Unknown. %s", cause, describe(err))
		}
	}
	p.end()
}

// wantSettled checks the results of deliver, and the effects: each grant is done once. If the sink may doubt, a grant
// may be a dead letter instead, and then has its effect at most once.
func (r *run) wantSettled(grants []hongbao.Grant, results []error) {
	r.Helper()
	p := report{r: r}
	finished := make([]hongbao.Grant, 0, len(grants))
	for i, err := range results {
		switch {
		case err == nil:
			finished = append(finished, grants[i])
		case !r.MayDoubt:
			p.add(&grants[i], "becomes a dead letter, although the target accepts it. %s", describe(err))
		}
	}
	p.end()
	r.wantTruth(grants, results)
	r.wantOnce(finished)
}

// wantRefused checks a grant that the target refuses: it has no effect, and is a dead letter or put aside.
func (r *run) wantRefused(g *hongbao.Grant, err error) {
	r.Helper()
	one := []hongbao.Grant{*g}
	r.wantNone(one, "the target refuses it, or has another grant of its packet")
	p := report{r: r}
	switch k := kindOf(err); {
	case k == done && !r.aside(one)[0]:
		p.add(g, "is refused, and reported as done: nobody would look at it. Return class Permanent or Conflict, or put the "+
			"grant aside and tell the suite by Subject.Aside")
	case k != done && k != final && !(k == counted && r.MayDoubt):
		p.add(g, "is refused for good: return class Permanent or Conflict, without Outage and Waiting. %s", describe(err))
	}
	p.end()
}
