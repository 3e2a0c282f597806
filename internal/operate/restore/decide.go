package restore

import "time"

// Verdict is what a recoverer has to do next.
type Verdict int

// The verdicts.
const (
	Stay    Verdict = iota // keep the shard frozen: the ledger or the topic does not answer
	Wait                   // keep the shard frozen: witnesses may still report
	Exact                  // restore the known grants, which include every grant that was reported to a user
	Guarded                // restore the known grants, and withhold packets for grants that no source knows
)

// Evidence says how complete the evidence is.
type Evidence struct {
	Ledger, Topic bool // whether they have answered; true if the deployment has none
	Silent        int  // number of processes that have to report and have not
	// Lines reports whether no witness line can be missing. Every copy from which Redis can come back has confirmed
	// each line. Lines is false if Redis came back from a file of unknown age, or is empty.
	Lines bool
	// Waited is the time since the witnesses were asked to report. Patience is its limit.
	Waited, Patience time.Duration
}

// Decide returns the verdict for this evidence.
func Decide(e Evidence) Verdict {
	switch {
	case !e.Ledger || !e.Topic:
		return Stay
	case e.Silent == 0 && e.Lines:
		return Exact
	case e.Waited < e.Patience:
		return Wait
	}
	return Guarded
}

// Line is the witness line of a process. At is when it was written. Sent reports whether the process has sent
// everything to this attempt.
type Line struct {
	At   time.Time
	Sent bool
}

// Silent counts the processes that have to report and have not. wrote is the time of the last entry or witness line
// before the shard froze. A process has to report if its line is not older than Fresh at that time, however long the
// restore takes.
func Silent(lines []Line, wrote time.Time) (n int) {
	for _, l := range lines {
		if !l.Sent && l.At.After(wrote.Add(-Fresh)) {
			n++
		}
	}
	return n
}
