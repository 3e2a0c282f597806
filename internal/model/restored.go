package model

import (
	"time"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// AcceptedLoss is an operator's decision that a shard continues although Redis has lost some of its data.
type AcceptedLoss struct {
	Shard int `json:"shard"`
	// Epoch is the epoch in which the shard continues.
	Epoch int64 `json:"epoch"`
	stream.Decision
	// Lost describes the loss as far as it was known.
	Lost string `json:"lost"`
	// At is when the decision was recorded, by the clock of the process that recorded it.
	At time.Time `json:"at"`
}

// RestoreCounts counts the grants that a restore put back, by the first source that knew them. It also counts the
// events that no source knew, and the packets withheld for these events.
type RestoreCounts struct {
	Ledger    int   `json:"ledger"`
	Topic     int   `json:"topic"`
	Witnesses int   `json:"witnesses"`
	Unknown   int64 `json:"nobody"`
	// Silent reports whether a silent process may have reported grants that no source knows. Withheld counts the
	// packets that are withheld for these grants, or will be once a lost top-up is dealt again.
	Silent   bool  `json:"silent,omitempty"`
	Withheld int64 `json:"withheld,omitempty"`
	// Margin is the number of packets of each campaign that this opening withheld in addition to those for known and
	// unknown events.
	Margin int64 `json:"margin,omitempty"`
	// First and Last are the first and the last seq that Redis lost. They are 0 if no loss is known.
	First int64 `json:"first_seq"`
	Last  int64 `json:"last_seq"`
	// Planned is true if the note was written before the shard was open.
	Planned bool `json:"planned,omitempty"`
	// Next is the first seq after the opening. It is 0 until the opening begins.
	Next int64        `json:"next_seq,omitempty"`
	Took OpeningSteps `json:"took"`
}

// Opened reports whether the shard may have been opened. A recoverer may have died between the last note and the
// opening.
func (c *RestoreCounts) Opened() bool { return c.Next > 0 }

// Changed reports whether the opening put back or withheld something.
func (c *RestoreCounts) Changed() bool { return c.First > 0 || c.Margin > 0 }

// Restored is an opening that restored what Redis had lost.
type Restored struct {
	Shard int       `json:"shard"`
	Epoch int64     `json:"epoch"`
	At    time.Time `json:"at"`
	RestoreCounts
}

// Withheld counts the packets of a campaign that restores have withheld and about which a person can decide.
type Withheld struct {
	Campaign string
	Packets  int64
}

// OpeningSteps has the duration of each step of an opening in ms, over all attempts. Witnesses and Topic run
// concurrently.
type OpeningSteps struct {
	Ledger    int64 `json:"fence_ledger_ms"`
	Witnesses int64 `json:"hear_ms"`
	Topic     int64 `json:"fence_topic_ms"`
	Judge     int64 `json:"judge_ms"`
	PutBack   int64 `json:"put_back_ms"`
	Marks     int64 `json:"mark_ms"`
	Open      int64 `json:"open_ms"`
}

// Total returns the sum of the steps.
func (s *OpeningSteps) Total() time.Duration {
	return time.Duration(s.Ledger+max(s.Witnesses, s.Topic)+s.Judge+s.PutBack+s.Marks+s.Open) * time.Millisecond
}
