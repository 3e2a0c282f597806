package stream

import (
	"time"

	"github.com/hongbao-project/hongbao"
)

// TopicFence is what Fence needs to know of a shard.
type TopicFence struct {
	Shard int
	// Since is the time from which the partition is read: Log.FenceSince. The zero time is the beginning of the log.
	Since time.Time
	// Claims are the open claims that Redis has of the shard.
	Claims []Claim
}

// Fenced is the result of Fence.
type Fenced struct {
	// Grants are the shard's, each once, rising by seq. Two of one seq differ in something else.
	Grants []hongbao.Grant
	// Records is the number of records read. Producers is how many producer ids this call has fenced.
	Records, Producers int
	// Doubt says why events of the shard may be unknown, or may still be sent: a claim or a record that can't be read,
	// or a log that went back. It is empty for none.
	Doubt string
}
