package stream

import "time"

// ClockSkew is the maximum difference between the clocks of Redis, Kafka and the workers that the system tolerates.
const ClockSkew = time.Minute

// WitnessAge limits the age of a process' witness line in a shard. A process with an older line must renew it before it
// reports a grant to a user.
const WitnessAge = 5 * time.Second
