package model

import (
	"fmt"
	"io"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/base/plural"
)

// The decisions about a dead letter.
const (
	LetterRequeued = "requeued" // the letter's grant was then delivered to the sink
	LetterDropped  = "dropped"  // the letter's grant will not be delivered
)

// LetterReport is the result of deciding about letters.
type LetterReport struct {
	Decision string `json:"decision" doc:"What was decided: 'requeued' or 'dropped'."`
	DryRun   bool   `json:"dry_run" doc:"True if this was a dry run, which changes nothing."`
	// Matched counts the selected letters, and Resolved those that this call requeued or dropped. Unreadable counts
	// letters that can't be requeued. Gone counts letters that another decision resolved first.
	Matched    int64 `json:"matched" doc:"Number of selected letters."`
	Resolved   int64 `json:"resolved" doc:"Number of letters that this call requeued or dropped; 0 in a dry run."`
	Unreadable int64 `json:"unreadable" doc:"Number of letters that can't be requeued, because they can't be read. Drop such letters."`
	// Forged and InDoubt count the selected letters of class conflict: entries that no grab wrote, and grants that the
	// sink may have. In sink balance such a grant is a credit that a remote balance system may have booked.
	Forged  int64 `json:"forged" doc:"Number of selected letters with a forged entry, which no grab wrote. Drop such letters."`
	InDoubt int64 `json:"in_doubt" doc:"Number of selected letters of class 'conflict' with a grant. In sink 'balance' a remote balance system may have booked such a credit: ask its owners before you drop the letter."`
	Gone    int64 `json:"gone" doc:"Number of letters that another decision resolved first. A requeue has delivered them nevertheless."`
	// Next is the parameter After of a call that continues the work. It is empty if this call has processed everything, or
	// if ids were given.
	Next optional.Text `json:"next" nullable:"true" doc:"If the call ended too early: the value to send as the parameter 'after', to continue there. Null if no work is left."`
	Refusals
}

// Passed notes that all selected letters up to this one are resolved or were refused.
func (r *LetterReport) Passed(id string) {
	if r.Next != "" {
		r.Next = optional.Text(id)
	}
}

// Count counts selected letters.
func (r *LetterReport) Count(letters []Letter) {
	r.Matched += int64(len(letters))
	for i := range letters {
		switch x := &letters[i]; {
		case x.Class != hongbao.ClassConflict.String():
		case x.Seq == 0:
			r.Forged++
		default:
			r.InDoubt++
		}
	}
}

// Add adds the counts of another sink's report.
func (r *LetterReport) Add(o *LetterReport) {
	r.Matched += o.Matched
	r.Resolved += o.Resolved
	r.Unreadable += o.Unreadable
	r.Forged += o.Forged
	r.InDoubt += o.InDoubt
	r.Gone += o.Gone
	r.Failed += o.Failed
	r.Failures = append(r.Failures, o.Failures...)
}

// Write prints the report for a person.
func (r *LetterReport) Write(w io.Writer) error {
	var b strings.Builder
	if r.DryRun {
		fmt.Fprintf(&b, "Dry run: nothing was written. %s would be %s.\n", plural.Of(r.Matched-r.Unreadable, "letter"), r.Decision)
	} else {
		fmt.Fprintf(&b, "%s of %s %s %s.\n", money.Count(r.Resolved), plural.Of(r.Matched, "letter"), plural.Verb(r.Matched, "was", "were"),
			r.Decision)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return r.WriteRest(w)
}

// WriteRest prints what Write prints after its first line: what was not decided.
func (r *LetterReport) WriteRest(w io.Writer) error {
	var b strings.Builder
	if r.Decision == LetterDropped && r.Forged+r.InDoubt > 0 {
		fmt.Fprintf(&b, "Of these, class conflict: %s, and %s.\n", plural.Of(r.Forged, "forged entry"), plural.Of(r.InDoubt, "grant"))
	}
	if r.Decision == LetterDropped && r.InDoubt > 0 {
		b.WriteString("In sink balance a remote balance system may have booked such a grant. A drop returns its money to the sponsor, also if the " +
			"user has it:\nask the owners first, see docs/remote-balance.md#when-a-person-has-to-decide. `hongbao dead list --class " +
			"conflict` names each.\n")
	}
	if r.Unreadable > 0 {
		fmt.Fprintf(&b, "%d can't be read, so there is nothing to deliver: look at them with `hongbao dead show`, then drop "+
			"them.\n", r.Unreadable)
	}
	if r.Gone > 0 {
		fmt.Fprintf(&b, "%d were decided before: another decision ended them first; `hongbao journal` names it.", r.Gone)
		if r.Decision == LetterRequeued {
			b.WriteString(" They were delivered all the same.")
		}
		b.WriteByte('\n')
	}
	r.Print(&b)
	if r.Next != "" {
		fmt.Fprintf(&b, "The command ended too early. Run the same command with --after %s to continue.\n", r.Next)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
