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
	// Source is the place of the value: "FILE:LINE", "environment HONGBAO_...", "flag --..."; "default" for a value
	// that no user set; empty for a contradiction of several.
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

// Error lists everything that is wrong with a configuration. Find it with errors.As; a program ends with exit code 2.
type Error struct{ Problems []Problem }

// Error returns a first line that the configuration is refused, and one line for each problem.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the configuration is refused, problems: %d", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  ")
		b.WriteString(p.String())
	}
	return b.String()
}

// maxProblems bounds the list; further problems are left out.
const maxProblems = 200

// problems collects the problems. It remembers the wrong knobs, so that one mistake is reported once.
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

// contradict adds a problem for a contradiction. Unlike add, it keeps the knob valid for other comparisons.
func (p *problems) contradict(knob, source, format string, args ...any) {
	if len(p.found) < maxProblems {
		p.found = append(p.found, Problem{Knob: oneLine(knob), Source: oneLine(source),
			Message: oneLine(fmt.Sprintf(format, args...))})
	}
}

// fine reports whether all the knobs have been valid so far. Only then can they be compared.
func (p *problems) fine(knobs ...string) bool {
	return !slices.ContainsFunc(knobs, func(k string) bool { return p.bad[k] })
}

func (p *problems) err() error {
	if len(p.found) == 0 {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassBroken, "%w", &Error{Problems: p.found})
}

// oneLine escapes characters that could end the line or control a terminal.
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
