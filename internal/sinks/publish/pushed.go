package publish

import "time"

// Pushed is the part of a claim's payload that a person needs to look for its batch in the topic.
type Pushed struct {
	Topic     string
	Partition int
	// Offset is the end of the log before the batch was sent. If the batch is in the log, it is at this offset or
	// later.
	Offset int64
	Sent   time.Time
}

// ReadPayload parses the payload of a publisher's claim.
func ReadPayload(payload string) (Pushed, error) {
	st, err := parseStored(payload)
	return Pushed{Topic: st.topic, Partition: st.partition, Offset: st.noted, Sent: time.UnixMilli(st.ms).UTC()}, err
}
