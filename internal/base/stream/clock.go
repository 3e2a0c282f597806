package stream

import "time"

// ClockSkew is by how much the clocks of Redis, Kafka and the workers may differ.
const ClockSkew = time.Minute

// WitnessAge is how old the line of a process in a shard may be when it answers a user.
const WitnessAge = 5 * time.Second
