package stream

import "time"

// ClockSkew is by how much the clocks of Redis, Kafka and the workers may differ.
const ClockSkew = time.Minute
