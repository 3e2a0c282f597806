package stream

import "time"

// ClockSkew is the maximum difference between the clocks of Redis, Kafka and the workers that the system tolerates.
const ClockSkew = time.Minute

// WitnessAge limits the age of a process' witness line in a shard. A process with an older line must renew it before it
// reports a grant to a user.
const WitnessAge = 5 * time.Second

// Age returns the time from then to now, by the clock that says more: the monotonic clock stops while the machine sleeps,
// and the wall clock can be set back. What a lease allows must count by it.
func Age(now, then time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}
