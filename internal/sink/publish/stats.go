package publish

import "sync/atomic"

// Stats counts what a Publisher did since New. It only grows.
type Stats struct {
	Batches    int64 // batches that were sent and completed
	Resends    int64 // requests that repeated the bytes of an earlier one
	Sessions   int64 // producer ids taken
	TakenOver  int64 // open claims found, also this worker's own
	SentAgain  int64 // open claims settled by sending the stored batch again
	FoundInLog int64 // open claims settled by reading the log: every event was there
	LetGo      int64 // open claims settled by reading the log: no event was there, and no copy can come any more
	Fences     int64 // fence records written before a claim was let go
	Lost       int64 // claims that turned out to be taken over when they were to be ended
	Refused    int64 // batches that the broker refused because of their content
	Stale      int64 // sends that were skipped because the claim was too old
}

type counters struct {
	batches, resends, sessions, takenOver, sentAgain, foundInLog, letGo, fences, lost, refused, stale atomic.Int64
}

// Stats returns the counts. It may be called at any time.
func (p *Publisher) Stats() Stats {
	c := &p.count
	return Stats{
		Batches: c.batches.Load(), Resends: c.resends.Load(), Sessions: c.sessions.Load(),
		TakenOver: c.takenOver.Load(), SentAgain: c.sentAgain.Load(), FoundInLog: c.foundInLog.Load(),
		LetGo: c.letGo.Load(), Fences: c.fences.Load(), Lost: c.lost.Load(), Refused: c.refused.Load(), Stale: c.stale.Load(),
	}
}
