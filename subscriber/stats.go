package subscriber

import "sync/atomic"

// Stats counts the work of a Subscriber since New. It only grows.
type Stats struct {
	Done         int64 // events that had their effect
	Repeated     int64 // events that had it before and were dropped
	Foreign      int64 // records of other producers and of other deployments
	Fences       int64 // fence records
	Malformed    int64 // dead letters: records that claim to be ours and can't be read
	Refused      int64 // dead letters: events whose effect failed permanently, or too often
	TooOld       int64 // dead letters: events below what the position remembers
	Retries      int64 // failures that were waited out: of the sink, of an event, of a dead letter's write
	Commits      int64 // commits that Kafka confirmed
	CommitErrors int64 // abandoned commits; the next one covers them
	ReadErrors   int64 // errors of the reader that were waited out
}

type counters struct {
	done, repeated, foreign, fences, malformed, refused, tooOld, retries, commits, commitErrors, readErrors atomic.Int64
}

// Stats returns the counts. It may be called at any time.
func (s *Subscriber) Stats() Stats {
	c := &s.count
	return Stats{
		Done: c.done.Load(), Repeated: c.repeated.Load(), Foreign: c.foreign.Load(), Fences: c.fences.Load(),
		Malformed: c.malformed.Load(), Refused: c.refused.Load(), TooOld: c.tooOld.Load(), Retries: c.retries.Load(),
		Commits: c.commits.Load(), CommitErrors: c.commitErrors.Load(), ReadErrors: c.readErrors.Load(),
	}
}
