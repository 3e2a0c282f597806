package model

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Acknowledgement records that an operator knows about a difference which the audit reports. It covers only a
// difference with exactly these fields, and it expires.
type Acknowledgement struct {
	Kind     string `json:"kind" doc:"Kind of the difference, such as 'duplicate_in_topic'."`
	Where    string `json:"where" doc:"The place where the audit found the difference."`
	Campaign string `json:"campaign,omitempty" doc:"Id of the campaign. Absent if the difference names none."`
	Packet   int64  `json:"packet,omitempty" doc:"Number of the packet. Absent if the difference names none."`
	Event    string `json:"event,omitempty" doc:"Id of the event, as SHARD-SEQ. Absent if the difference names none."`
	Detail   string `json:"detail" doc:"Detail of the difference, exactly as the audit printed it."`
	By       string `json:"by" doc:"Person or API key that acknowledged the difference."`
	Why      string `json:"why" doc:"The reason for the acknowledgement."`
	// Until is when the acknowledgement expires. From then on the audit counts the difference again.
	Until time.Time `json:"until" doc:"From this time on, the audit counts the difference again."`
}

// ID identifies the difference: it is the SHA-256 of all its fields.
func (a *Acknowledgement) ID() string {
	text, _ := json.Marshal([]any{a.Kind, a.Where, a.Campaign, a.Packet, a.Event, a.Detail}) // never fails
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
