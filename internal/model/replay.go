package model

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/plural"
)

// ReplayCounts counts the grants by source, and what else the replay found.
type ReplayCounts struct {
	FromStream int64 `json:"from_stream" doc:"Number of grants read from the streams in Redis."`
	FromLedger int64 `json:"from_ledger" doc:"Number of grants read from the ledger, because the stream no longer has them."`
	FromDead   int64 `json:"from_dead_letters" doc:"Number of grants read from dead letters."`
	// FromReceipts counts grants that only receipts have: their entries were deleted before the sink had finished them.
	FromReceipts int64 `json:"from_receipts" doc:"Number of grants that only receipts have, because their stream entries were deleted too early."`
	// NotFound counts seqs for which no source has a grant. They are closes, or grants that are trimmed and not settled
	// because they are in quarantine or dead letters. Seqs that an opening has skipped do not count.
	NotFound int64 `json:"not_found" doc:"Number of seqs without a grant. Each is a close, or a grant that is trimmed from the stream and not settled."`
	// Unreadable counts entries and dead letters that can't be read.
	Unreadable int64 `json:"unreadable" doc:"Number of entries and dead letters that can't be read."`
	// Forged counts entries that contradict their shard's numbers (store.Head.Refute). They are never delivered.
	Forged int64 `json:"forged" doc:"Number of entries that no grab and no close wrote. The replay does not deliver them."`
	// SameSeq counts grants of the ledger that the filter selects and the replay leaves out, because it delivers another
	// grant with the same seq (twins.go).
	SameSeq int64 `json:"same_seq" doc:"Number of selected grants that the replay leaves out, because it delivers another grant with the same seq. A replay with another name can deliver them."`
}

// Add adds the counts of another run.
func (c *ReplayCounts) Add(o *ReplayCounts) {
	c.FromStream += o.FromStream
	c.FromLedger += o.FromLedger
	c.FromDead += o.FromDead
	c.FromReceipts += o.FromReceipts
	c.NotFound += o.NotFound
	c.Unreadable += o.Unreadable
	c.Forged += o.Forged
	c.SameSeq += o.SameSeq
}

// ReplayReport is the progress or the result of one run.
type ReplayReport struct {
	Name    string    `json:"name" doc:"Name of the replay."`
	Target  string    `json:"target" doc:"Target of the replay: 'balance', 'kafka' or topic:NAME."`
	DryRun  bool      `json:"dry_run" doc:"True if this run was a dry run, which delivers nothing."`
	Started time.Time `json:"started" doc:"Time when this run started."`
	Seconds float64   `json:"seconds" doc:"Duration of this run, in seconds."`
	// Finished reports whether everything that the replay covers was processed and nothing failed.
	Finished bool `json:"finished" doc:"True if the run has checked every event of its range, and no delivery failed."`
	// Events counts the events that the replay covers, or the letters. Looked counts those that were processed, and
	// Resumed those of them that earlier runs had processed. After a run that finished, the next run processes
	// everything again.
	Events  int64 `json:"events" doc:"Number of events in the replay's range. For a replay of dead letters: number of letters."`
	Looked  int64 `json:"looked" doc:"Number of events in the range that this run and earlier runs have checked."`
	Resumed int64 `json:"resumed" doc:"Number of events in the range that earlier runs had checked. This run continued after them."`
	// Last is the last seq of each shard that the replay covers; 0 if it covers none.
	Last []int64 `json:"last" doc:"For each shard, the last seq in the replay's range; 0 if the range has no event of the shard."`
	ReplayCounts
	// Matched counts the grants that the filter selects. Before counts those that this replay or the sink had delivered
	// before this run. There counts those that the target already had, although this replay had not delivered them.
	// Delivered counts the grants that this run delivered, and Failed those that it could not deliver. A dry run would
	// deliver Matched - Before - There grants.
	Matched   int64 `json:"matched" doc:"Number of grants that the filter selects."`
	Before    int64 `json:"before" doc:"Number of selected grants that this replay or the sink had delivered before this run."`
	There     int64 `json:"there" doc:"Number of selected grants that the target already had, although this replay had not delivered them."`
	Delivered int64 `json:"delivered" doc:"Number of grants that this run delivered. A dry run would deliver 'matched' - 'before' - 'there'."`
	Refusals
}

// Write prints the report for a person.
func (r *ReplayReport) Write(w io.Writer) error {
	var b strings.Builder
	switch {
	case r.DryRun:
		fmt.Fprintf(&b, "Dry run of replay %s to %s: nothing was written. It would deliver %s of %s; %s were "+
			"delivered before, %s are there.\n", r.Name, r.Target, money.Count(r.Matched-r.Before-r.There),
			plural.Of(r.Matched, "grant"), money.Count(r.Before), money.Count(r.There))
	case r.Finished:
		fmt.Fprintf(&b, "Replay %s to %s is finished: %s delivered now, %s were there, %s delivered before, in %.1f "+
			"s.\n", r.Name, r.Target, plural.Of(r.Delivered, "grant"), money.Count(r.There), money.Count(r.Before), r.Seconds)
	default:
		fmt.Fprintf(&b, "Replay %s to %s is NOT finished: %s delivered now, %s were there, %s delivered before, %s "+
			"failed. Run it again under the same name to continue.\n", r.Name, r.Target, plural.Of(r.Delivered, "grant"),
			money.Count(r.There), money.Count(r.Before), money.Count(r.Failed))
	}
	if r.Resumed > 0 {
		fmt.Fprintf(&b, "It continued after %s that earlier runs had checked.\n", plural.Of(r.Resumed, "event"))
	}
	fmt.Fprintf(&b, "Checked %d of %d: %s of the stream, %d of the ledger, %d of dead letters; %d match.\n",
		r.Looked, r.Events, plural.Of(r.FromStream, "grant"), r.FromLedger, r.FromDead, r.Matched)
	if r.FromReceipts > 0 {
		fmt.Fprintf(&b, "%d of them have no entry any more: the replay read them from receipts.\n", r.FromReceipts)
	}
	if r.NotFound > 0 {
		fmt.Fprintf(&b, "%s without a grant in the stream or the ledger: closes, or grants that are not settled; `hongbao "+
			"audit` shows which.\n", plural.Of(r.NotFound, "seq"))
	}
	if r.Unreadable > 0 {
		fmt.Fprintf(&b, "%d entries or letters can't be read; `hongbao dead list` shows them.\n", r.Unreadable)
	}
	if r.SameSeq > 0 {
		fmt.Fprintf(&b, "%d grants were left out, because another grant with the same seq was delivered. `hongbao audit` "+
			"names them. Deliver them by a replay with another name, and a filter such as --user.\n", r.SameSeq)
	}
	if r.Forged > 0 {
		fmt.Fprintf(&b, "ALARM: %d entries are forged: no grab and no close wrote them. They were skipped; "+
			"find out who can write to Redis. `hongbao audit` names what they claim.\n", r.Forged)
	}
	r.Print(&b)
	_, err := io.WriteString(w, b.String())
	return err
}
