package stream

import "time"

// ClockSkew is the maximum difference between the clocks of Redis, Kafka and the workers that the system tolerates.
const ClockSkew = time.Minute

// WitnessAge limits the age of a process' witness line in a shard. A process with an older line must renew it before it
// reports a grant to a user.
const WitnessAge = 5 * time.Second

// LastWrite returns the time of the last write to a shard, or the Unix epoch if that is unknown. It errs to the earlier
// side, since a stored time may come from a clock that was ahead. watched is when a process last wrote its witness line,
// or the shard was opened. newest is the last entry's own time, since its id stays ahead after a correction. A process
// grants only with a young line. So an entry that is much later than watched says nothing, and neither does any time
// after until: the freeze, or now if the shard is open.
func LastWrite(watched, newest, until time.Time) time.Time {
	switch {
	case watched.After(until):
		return time.UnixMilli(0)
	case newest.After(watched) && !newest.After(watched.Add(WitnessAge)) && !newest.After(until):
		return newest
	}
	return watched
}

// Age returns the time from then to now, by the clock that says more: the monotonic clock stops while the machine sleeps,
// and the wall clock can be set back. What a lease allows must count by it.
func Age(now, then time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}
