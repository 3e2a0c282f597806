package subscriber

import "sync/atomic"

// Stats has the counts of a Subscriber since New.
type Stats struct {
	Done         int64 // events that had their effect
	Repeated     int64 // events whose packet was seen before, and that were dropped
	Foreign      int64 // records of other producers and of other deployments
	Fences       int64 // fence records
	Malformed    int64 // dead letters: records that claim to be grants of this deployment but are malformed
	Refused      int64 // dead letters: events whose effect failed permanently, or too often
	Retries      int64 // retries after a failure of the sink, of an event, or of the write of a dead letter
	Commits      int64 // commits that Kafka confirmed
	CommitErrors int64 // commits that failed; the next commit includes them
	ReadErrors   int64 // errors of reading, after which the worker tried again
}

type counters struct {
	done, repeated, foreign, fences, malformed, refused, retries, commits, commitErrors, readErrors atomic.Int64
}

// Stats returns the counts so far. It is safe for concurrent use.
func (s *Subscriber) Stats() Stats {
	c := &s.count
	return Stats{
		Done: c.done.Load(), Repeated: c.repeated.Load(), Foreign: c.foreign.Load(), Fences: c.fences.Load(),
		Malformed: c.malformed.Load(), Refused: c.refused.Load(), Retries: c.retries.Load(),
		Commits: c.commits.Load(), CommitErrors: c.commitErrors.Load(), ReadErrors: c.readErrors.Load(),
	}
}
