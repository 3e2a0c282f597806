package model

import "time"

// Sample has the counters of a campaign at one time. A counter is nil if it could not be read.
type Sample struct {
	At       time.Time `json:"at" doc:"When the counters were read."`
	Granted  *int64    `json:"granted" nullable:"true" doc:"Number of granted packets in Redis; null if it could not be read."`
	Settled  *int64    `json:"settled" nullable:"true" doc:"Number of grants in the ledger; null if it could not be read."`
	Answered *int64    `json:"answered" nullable:"true" doc:"Number of requests that all servers have answered; null if it could not be read."`
	// Frozen says that the campaign was frozen. Redis then has no grants to report.
	Frozen bool `json:"frozen" doc:"Whether the campaign was frozen: every grab was refused."`
	// Down are the sinks to which a worker could not deliver.
	Down []string `json:"down" nullable:"false" doc:"Names of the sinks to which a worker could not deliver."`
}

// Sample returns the counters of a reading of the campaign. Redis knows no grants of a campaign on a frozen shard.
func (l *Live) Sample(at time.Time) Sample {
	s := Sample{At: at, Frozen: l.Status == "frozen"}
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
