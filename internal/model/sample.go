package model

import "time"

// Sample has the counters of a campaign at one time: grants in Redis, settled grants in the ledger, and answers of all
// servers. A counter is nil if it could not be read.
type Sample struct {
	At                         time.Time
	Granted, Settled, Answered *int64
}

// Sample returns the counters of a reading of the campaign. Redis knows no grants of a campaign on a frozen shard.
func (l *Live) Sample(at time.Time) Sample {
	s := Sample{At: at}
	if l.Known() {
		s.Granted = new(l.Granted) // a copy: samples outlive the reading
	}
	if !l.LedgerUnread {
		s.Settled = new(l.Settled)
	}
	if l.Answers != nil {
		s.Answered = new(l.Answers.Total)
	}
	return s
}
