package campaign

import (
	"fmt"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// maxProblems limits the problems in a SpecError; further problems are left out.
const maxProblems = 100

// Problem is a mistake in a specification.
type Problem struct {
	// Path is the position of the mistake, such as "split.tiers[3].amount". It is empty for the text as a whole.
	Path string
	// Code is the kind of mistake, from the table in the package comment. Codes never change their meaning.
	Code string
	// Message says what is wrong and what to do. It is one line without control characters.
	Message string
}

func (p Problem) String() string {
	if p.Path == "" {
		return p.Code + ": " + p.Message
	}
	return p.Path + ": " + p.Code + ": " + p.Message
}

// SpecError has all problems of a specification. Get it with errors.As; its class is Permanent.
type SpecError struct{ Problems []Problem }

// Error returns a heading and one line per problem.
func (e *SpecError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the campaign's specification is invalid, problems: %d", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  ")
		b.WriteString(p.String())
	}
	return b.String()
}

// problems collects problems and their paths, so that each mistake is reported only once.
type problems struct {
	found []Problem
	bad   map[string]bool
}

func (p *problems) add(path, code, format string, args ...any) {
	if p.bad == nil {
		p.bad = make(map[string]bool)
	}
	p.bad[path] = true
	if len(p.found) < maxProblems {
		p.found = append(p.found, Problem{Path: path, Code: code, Message: fmt.Sprintf(format, args...)})
	}
}

// fine reports whether no problem was found at any of the paths. Otherwise their values can't be compared.
func (p *problems) fine(paths ...string) bool {
	for _, path := range paths {
		if p.bad[path] {
			return false
		}
	}
	return true
}

func (p *problems) err() error {
	if len(p.found) == 0 {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "%w", &SpecError{Problems: p.found})
}
