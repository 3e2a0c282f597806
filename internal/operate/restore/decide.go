package restore

import "time"

// Verdict is what a recoverer does next.
type Verdict int

// The verdicts.
const (
	Stay    Verdict = iota // frozen: the ledger or the topic does not answer
	Wait                   // frozen: witnesses may still report
	Exact                  // restore what is known: it includes every packet that users know of
	Guarded                // restore what is known, and withhold a margin for what no one remembers
)

// Evidence is how complete the evidence is.
type Evidence struct {
	Ledger, Topic bool // answered, or the deployment has none
	Silent        int  // processes that must report, and have not
	// Lines reports that no witness line can be missing: each line was confirmed by every copy that Redis could come
	// back from. It is false for a server that came back from a file of unknown age, and for an empty one.
	Lines bool
	// Waited is the time since the witnesses were asked, and Patience its limit.
	Waited, Patience time.Duration
}

// Decide returns the verdict that the evidence allows.
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

// Line is the witness line of a process: when it was written, and whether the process has sent everything that it knows
// to this attempt.
type Line struct {
	At   time.Time
	Sent bool
}

// Silent returns how many processes must report and have not. wrote is the time of the youngest line or entry before
// the shard froze; lines do not age while a restore waits.
func Silent(lines []Line, wrote time.Time) (n int) {
	for _, l := range lines {
		if !l.Sent && l.At.After(wrote.Add(-Fresh)) {
			n++
		}
	}
	return n
}
