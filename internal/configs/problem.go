package configs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// Problem is one error in the configuration.
type Problem struct {
	// Knob is the knob's name, such as "redis.addrs"; empty for the file as a whole.
	Knob string
	// Source is where the value was set: "FILE:LINE", "environment HONGBAO_...", or "flag --...". It is "default" for a
	// default value, and empty if several values contradict each other.
	Source string
	// Message says what is wrong and what to do, in one line. It never contains a secret.
	Message string
}

func (p Problem) String() string {
	var b strings.Builder
	for _, s := range []string{p.Source, p.Knob} {
		if s != "" {
			b.WriteString(s)
			b.WriteString(": ")
		}
	}
	b.WriteString(p.Message)
	return b.String()
}

// Error lists everything that is wrong with a configuration. Find it with errors.As. A program with such an error exits
// with code 2.
type Error struct{ Problems []Problem }

// Error returns a summary in the first line, and one more line for each problem.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the configuration is refused, problems: %d", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  ")
		b.WriteString(p.String())
	}
	return b.String()
}

// maxProblems is the maximum number of reported problems.
const maxProblems = 200

// problems collects the problems. It remembers which knobs are wrong, so that each mistake is reported only once.
type problems struct {
	found []Problem
	bad   map[string]bool
}

func (p *problems) add(knob, source, format string, args ...any) {
	if p.bad == nil {
		p.bad = map[string]bool{}
	}
	p.bad[knob] = true
	p.contradict(knob, source, format, args...)
}

// contradict adds a problem about a contradiction. Unlike add, it does not mark the knob as wrong, so further
// comparisons still use it.
func (p *problems) contradict(knob, source, format string, args ...any) {
	if len(p.found) < maxProblems {
		p.found = append(p.found, Problem{Knob: oneLine(knob), Source: oneLine(source),
			Message: oneLine(fmt.Sprintf(format, args...))})
	}
}

// fine reports whether none of the knobs has a problem so far. Only valid values can be compared.
func (p *problems) fine(knobs ...string) bool {
	return !slices.ContainsFunc(knobs, func(k string) bool { return p.bad[k] })
}

func (p *problems) err() error {
	if len(p.found) == 0 {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassBroken, "%w", &Error{Problems: p.found})
}

// oneLine escapes line breaks and other characters that are not printable.
func oneLine(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
