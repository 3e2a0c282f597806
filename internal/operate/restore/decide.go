package restore

import "time"

// Decision is what a recoverer has to do next.
type Decision int

// The decisions.
const (
	Wait    Decision = iota // keep the shard frozen: witnesses may still report
	Exact                   // restore the known grants, which include every grant that was reported to a user
	Guarded                 // restore the known grants, and withhold packets for grants that no source knows
)

// Evidence says how complete the evidence is. The ledger and the topic have answered.
type Evidence struct {
	Silent int // number of processes that have to report and have not
	// Lines reports whether no witness line can be missing. Every copy from which Redis can come back has confirmed
	// each line. Lines is false if Redis came back from a file of unknown age, or is empty.
	Lines bool
	// Waited is the time since the witnesses were asked to report. Patience is its limit.
	Waited, Patience time.Duration
}

// Decide returns the decision for this evidence.
func Decide(e Evidence) Decision {
	switch {
	case e.Silent == 0 && e.Lines:
		return Exact
	case e.Waited < e.Patience:
		return Wait
	}
	return Guarded
}

// Doubt is what is unknown of the grants that Redis may have lost.
type Doubt struct {
	// Silent reports whether a process may have reported grants to users, and has not sent them: Decide returned Guarded.
	Silent bool
	// Walks reports whether events without a known grant are missing, and a campaign over several places is open. Its
	// users may have found the place empty, and walked on to another.
	Walks bool
	// Lost reports whether a source knows an event that Redis has lost.
	Lost bool
	// Margin is the time whose grants no other source may know. 0 leaves the decision about a loss to a person.
	Margin time.Duration
}

// Guard says what happens to the packets that users may have been told of, without a source that knows the grants.
type Guard int

// The guards.
const (
	None     Guard = iota // nothing: no user was told of such a packet, or no loss is known and there is no margin
	Withhold              // the recoverer withholds them: for each unknown event one, and the margin
	Ask                   // a person decides
)

// GuardOf returns the guard for this doubt. A silent process is a reason to withhold the margin even if no loss is
// known: if no other source has the grants that it reported to users, no loss can be known.
func GuardOf(d Doubt) Guard {
	switch {
	case !d.Silent && !d.Walks:
		return None
	case d.Margin > 0:
		return Withhold
	case d.Lost:
		return Ask
	}
	return None
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
