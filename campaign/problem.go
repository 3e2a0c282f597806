package campaign

import (
	"fmt"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// maxProblems is how many problems one SpecError lists; those above it are left out.
const maxProblems = 100

// Problem is one thing that is wrong with a specification.
type Problem struct {
	// Path is the place of the problem: "split.tiers[3].amount"; empty for the text as a whole.
	Path string
	// Code is the kind of problem, from the table in the package's comment. It is stable.
	Code string
	// Message says what was wrong and what to do, in one line without control characters.
	Message string
}

func (p Problem) String() string {
	if p.Path == "" {
		return p.Code + ": " + p.Message
	}
	return p.Path + ": " + p.Code + ": " + p.Message
}

// SpecError lists every problem of a specification. Find it with errors.As; its class is Permanent.
type SpecError struct{ Problems []Problem }

// Error returns a line that says what was refused, then one line a problem.
func (e *SpecError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the campaign's specification is refused, problems: %d", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  ")
		b.WriteString(p.String())
	}
	return b.String()
}

// problems collects the problems and their paths, so that one mistake is reported once.
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

// fine reports whether none of the paths has a problem so far: only then does it make sense to compare them.
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
