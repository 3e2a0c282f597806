package consumer

import "sync/atomic"

// Stats has the counts of a consumer since it was created. Unless its comment says otherwise, a field counts grants.
type Stats struct {
	Done   int64 // finished by the handler
	Dead   int64 // dead letters; an unreadable entry counts as one
	Parked int64 // counts entries: parked for a later attempt
	// counts entries: returned to the other workers during the drain, after a failure, or because another entry of the
	// same batch may crash the worker
	HandedBack int64
	Taken      int64 // counts entries: reclaimed from the parking consumers and from other workers
	Skipped    int64 // already had their done bits when they were delivered again
	Outages    int64 // counts outages of the sink
	LeasesLost int64 // counts batches: cancelled because the lease was lost
	Forged     int64 // counts entries: forged, as their numbers show; an incident
	Vanished   int64 // counts entries: deleted from the stream while pending; an incident
	Groups     int64 // how often the consumer group was missing and was created again
}

type counters struct {
	done, dead, parked, handedBack, taken, skipped, outages, leasesLost, forged, vanished, groups atomic.Int64
}

// Stats returns the counts so far. It is safe for concurrent use.
func (c *Consumer) Stats() Stats {
	n := &c.count
	return Stats{
		Done: n.done.Load(), Dead: n.dead.Load(), Parked: n.parked.Load(), HandedBack: n.handedBack.Load(),
		Taken: n.taken.Load(), Skipped: n.skipped.Load(), Outages: n.outages.Load(), LeasesLost: n.leasesLost.Load(),
		Forged: n.forged.Load(), Vanished: n.vanished.Load(), Groups: n.groups.Load(),
	}
}
