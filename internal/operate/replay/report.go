package replay

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/operate/delivery"
)

// Counts are the sources of the grants, and what else the replay found.
type Counts struct {
	FromStream int64 `json:"from_stream" doc:"Grants read from the stream."`
	FromLedger int64 `json:"from_ledger" doc:"Grants read from the ledger: the stream no longer has them."`
	FromDead   int64 `json:"from_dead_letters" doc:"Grants read from dead letters."`
	// FromReceipts are grants that only receipts have: their entries were deleted before the sink had finished them.
	FromReceipts int64 `json:"from_receipts" doc:"Grants that only receipts have: their entries were deleted too early."`
	// NotFound are seqs that neither the stream nor the ledger has as a grant: closes, and grants that are not settled (in
	// quarantine, dead letters) and no longer in the stream. Seqs that an opening of the shard has skipped are not among
	// them.
	NotFound int64 `json:"not_found" doc:"Seqs without a grant: closes, and trimmed ones that are not settled."`
	// Unreadable are entries and dead letters that can't be read.
	Unreadable int64 `json:"unreadable" doc:"Entries and dead letters that can't be read."`
	// Forged are entries that contradict their shard's numbers: see store.Head.Refute. They are never delivered.
	Forged int64 `json:"forged" doc:"Entries that no grab and no close wrote: never delivered."`
	// SameSeq are grants of the ledger that share their seq with another one: Redis went back in time. They are not
	// replayed, because the event's name is taken; the audit lists them.
	SameSeq int64 `json:"same_seq" doc:"Grants of the ledger with the seq of another one: left out."`
}

func (c *Counts) add(o *Counts) {
	c.FromStream += o.FromStream
	c.FromLedger += o.FromLedger
	c.FromDead += o.FromDead
	c.FromReceipts += o.FromReceipts
	c.NotFound += o.NotFound
	c.Unreadable += o.Unreadable
	c.Forged += o.Forged
	c.SameSeq += o.SameSeq
}

// Report is the progress of a run of a replay.
type Report struct {
	Name    string    `json:"name" doc:"The replay's name."`
	Target  string    `json:"target" doc:"Target of the replay."`
	DryRun  bool      `json:"dry_run" doc:"True: nothing was written."`
	Started time.Time `json:"started" doc:"Start of this run."`
	Seconds float64   `json:"seconds" doc:"Duration of this run, in seconds."`
	// Finished says that everything that it covers was checked, and nothing failed.
	Finished bool `json:"finished" doc:"True if everything was looked at, and nothing failed."`
	// Events is how many events the replay covers; for dead letters, how many letters. Looked is how many of them were
	// checked. Resumed of these were checked by earlier runs, and this run continued after them. After a run that reaches
	// the end without a failure, the next one checks everything again.
	Events  int64 `json:"events" doc:"Events that the replay covers; with dead, letters."`
	Looked  int64 `json:"looked" doc:"Number of these events that were looked at."`
	Resumed int64 `json:"resumed" doc:"Number of these that earlier runs had looked at: this run continued after them."`
	// Last is the last seq that it covers, by shard; 0 where it covers none.
	Last []int64 `json:"last" doc:"Last seq that the replay covers, by shard; 0 if it covers none."`
	Counts
	// Matched are the grants that the filter selects. Before of them were delivered before this run, by this replay or
	// by the sink. The target had There of them although this replay did not deliver them. It got Delivered in this
	// run, and Failed could not be delivered. In a dry run, Matched - Before - There would be delivered.
	Matched   int64 `json:"matched" doc:"Grants that the filter picks."`
	Before    int64 `json:"before" doc:"Grants delivered before this run, by this replay or by the sink."`
	There     int64 `json:"there" doc:"Grants that the target already had, although this replay did not deliver them."`
	Delivered int64 `json:"delivered" doc:"Grants delivered by this run; a dry run would deliver matched - before - there."`
	delivery.Refusals
}

// Write prints the report for a person.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	switch {
	case r.DryRun:
		fmt.Fprintf(&b, "Dry run of replay %s to %s: nothing was written. It would deliver %d of %d grants; %d were "+
			"delivered before, %d are there.\n",
			r.Name, r.Target, r.Matched-r.Before-r.There, r.Matched, r.Before, r.There)
	case r.Finished:
		fmt.Fprintf(&b, "Replay %s to %s is finished: %d grants delivered now, %d were there, %d delivered before, in %.1f "+
			"s.\n",
			r.Name, r.Target, r.Delivered, r.There, r.Before, r.Seconds)
	default:
		fmt.Fprintf(&b, "Replay %s to %s is NOT finished: %d grants delivered now, %d were there, %d delivered before, %d "+
			"failed. Run it again under the same name to continue.\n", r.Name, r.Target, r.Delivered, r.There, r.Before, r.Failed)
	}
	if r.Resumed > 0 {
		fmt.Fprintf(&b, "It continued after %d events that earlier runs had checked.\n", r.Resumed)
	}
	fmt.Fprintf(&b, "Checked %d of %d: %d grants of the stream, %d of the ledger, %d of dead letters; %d match.\n",
		r.Looked, r.Events, r.FromStream, r.FromLedger, r.FromDead, r.Matched)
	if r.FromReceipts > 0 {
		fmt.Fprintf(&b, "%d of them have no entry any more: the replay read them from receipts.\n", r.FromReceipts)
	}
	if r.NotFound > 0 {
		fmt.Fprintf(&b, "%d seqs are no grant of the stream or the ledger: closes, or grants that are not settled; `hongbao "+
			"audit` shows which.\n", r.NotFound)
	}
	if r.Unreadable > 0 {
		fmt.Fprintf(&b, "%d entries or letters can't be read; `hongbao dead list` shows them.\n", r.Unreadable)
	}
	if r.SameSeq > 0 {
		fmt.Fprintf(&b, "%d grants share their seq with another one and were left out; `hongbao audit` names them.\n",
			r.SameSeq)
	}
	if r.Forged > 0 {
		fmt.Fprintf(&b, "ALARM: %d entries are forged: no grab and no close wrote them. They were skipped; "+
			"find out who can write to Redis. `hongbao audit` names what they claim.\n", r.Forged)
	}
	r.Print(&b)
	_, err := io.WriteString(w, b.String())
	return err
}
