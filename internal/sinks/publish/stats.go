package publish

import "sync/atomic"

// Stats counts what a Publisher has done since New.
type Stats struct {
	Batches    int64 // batches that were sent and completed
	Resends    int64 // requests that repeated an earlier request
	Sessions   int64 // producer ids taken
	TakenOver  int64 // open claims taken over, including this worker's own
	SentAgain  int64 // open claims settled by sending the stored batch again
	FoundInLog int64 // open claims completed because every event was in the log
	LetGo      int64 // open claims released because no event was in the log and no copy could still arrive
	Fences     int64 // fence records sent before a claim was released
	Lost       int64 // claims that another worker had taken over before they could be completed or released
	Refused    int64 // batches that the broker refused because of their content
	Stale      int64 // requests that were not sent because the claim was too old
}

type counters struct {
	batches, resends, sessions, takenOver, sentAgain, foundInLog, releasedMissing, fences, lost, refused, stale atomic.Int64
}

// Stats returns the counts. It may be called at any time.
func (p *Publisher) Stats() Stats {
	c := &p.count
	return Stats{
		Batches: c.batches.Load(), Resends: c.resends.Load(), Sessions: c.sessions.Load(),
		TakenOver: c.takenOver.Load(), SentAgain: c.sentAgain.Load(), FoundInLog: c.foundInLog.Load(),
		LetGo: c.releasedMissing.Load(), Fences: c.fences.Load(), Lost: c.lost.Load(), Refused: c.refused.Load(), Stale: c.stale.Load(),
	}
}
