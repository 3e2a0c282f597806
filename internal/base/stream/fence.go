package stream

import (
	"time"

	"github.com/hongbao-project/hongbao"
)

// TopicFence tells Log.Fence (package publish) what to fence for a shard, and which part of the topic to read.
type TopicFence struct {
	Shard int
	// Since is the time of the first record to read; Log.FenceSince computes it. The zero time means the start of the
	// log.
	Since time.Time
	// Claims are the shard's open claims in Redis.
	Claims []Claim
}

// Fenced is the result of Log.Fence for a shard.
type Fenced struct {
	// Grants are the distinct grants of the shard in the topic, in ascending order of seq. Two grants with the same seq
	// differ in another field.
	Grants []hongbao.Grant
	// Records is the number of records that were read. Producers is the number of producer ids that this call fenced.
	Records, Producers int
	// Doubt is empty if the result is certain. Otherwise it says why the topic may have unknown events of the shard, or
	// may still get some. A claim or a record may be unreadable, or the log may have gone back in time.
	Doubt string
}
