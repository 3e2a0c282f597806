package consumer

import "sync/atomic"

// Stats has the counts of a consumer since it was created. They count grants unless a field says otherwise.
type Stats struct {
	Done   int64 // the handler finished them
	Dead   int64 // became dead letters; a whole entry that can't be read counts as one
	Parked int64 // entries parked for a later attempt
	// entries handed to other workers: at the drain, after a failure, or because they were taken together with an
	// entry that may kill the worker
	HandedBack int64
	Taken      int64 // entries taken from the parking consumers and from other workers
	Skipped    int64 // had their done bit when they came again
	Outages    int64 // times that the sink was found down
	LeasesLost int64 // batches that were cancelled because their lease was lost
	Forged     int64 // entries that no grab and no close wrote, as their numbers show: incidents
	Vanished   int64 // entries deleted from the stream while they were pending: incidents
	Groups     int64 // times that the group was missing and was created again
}

type counters struct {
	done, dead, parked, handedBack, taken, skipped, outages, leasesLost, forged, vanished, groups atomic.Int64
}

// Stats returns the counts. It may be called at any time.
func (c *Consumer) Stats() Stats {
	n := &c.count
	return Stats{
		Done: n.done.Load(), Dead: n.dead.Load(), Parked: n.parked.Load(), HandedBack: n.handedBack.Load(),
		Taken: n.taken.Load(), Skipped: n.skipped.Load(), Outages: n.outages.Load(), LeasesLost: n.leasesLost.Load(),
		Forged: n.forged.Load(), Vanished: n.vanished.Load(), Groups: n.groups.Load(),
	}
}
