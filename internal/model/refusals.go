package model

import (
	"fmt"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// Refusals has the grants that the sink refused, as reports show them.
type Refusals struct {
	// Failed counts the refused grants.
	Failed int64 `json:"failed" doc:"Number of grants that the sink refused. Of a drop: number of letters that stay, because an open claim has their grants."`
	// Failures has the first 100 refused grants.
	Failures []Failure `json:"failures" doc:"The first 100 of these grants, with the reasons."`
}

// Failure is a grant that the sink refused.
type Failure struct {
	// Letter is the ID of the dead letter; empty if the grant does not come from one.
	Letter string `json:"letter,omitempty" doc:"Id of the dead letter with the grant. Absent if the grant does not come from a dead letter."`
	Event  string `json:"event" doc:"Id of the grant's event, as SHARD-SEQ."`
	Class  string `json:"class" doc:"Class of the sink's error: 'unknown', 'transient', 'permanent', 'conflict' or 'broken'."`
	Error  string `json:"error" doc:"Text of the sink's error."`
}

const maxFailures = 100

// Add adds a refused grant. letter is the ID of its dead letter, or empty.
func (r *Refusals) Add(letter string, g *hongbao.Grant, err error) {
	if r.Failed++; len(r.Failures) < maxFailures {
		r.Failures = append(r.Failures, Failure{letter, g.EventID(), hongbao.ClassOf(err).String(), err.Error()})
	}
}

// Print prints the listed refusals, one in a line.
func (r *Refusals) Print(b *strings.Builder) {
	for _, f := range r.Failures {
		fmt.Fprintf(b, "  failed: event %s %s (%s): %.500q\n", f.Event, f.Letter, f.Class, f.Error)
	}
	if n := r.Failed - int64(len(r.Failures)); n > 0 {
		fmt.Fprintf(b, "  and %d more\n", n)
	}
}
