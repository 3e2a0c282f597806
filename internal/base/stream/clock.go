package stream

import "time"

// ClockSkew is by how much the clocks of Redis, Kafka and the workers may differ.
const ClockSkew = time.Minute

// WitnessAge is the maximum age of a process' witness line in a shard when the process answers a user.
const WitnessAge = 5 * time.Second
