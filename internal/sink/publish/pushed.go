package publish

import "time"

// Pushed is what a claim's payload says about its batch, for a person who looks for it in the topic.
type Pushed struct {
	Topic     string
	Partition int
	// Offset is the end of the log before the batch was sent: the batch is at this offset or after it.
	Offset int64
	Sent   time.Time
}

// ReadPayload reads the payload of a claim of the publisher.
func ReadPayload(payload string) (Pushed, error) {
	st, err := parseStored(payload)
	return Pushed{Topic: st.topic, Partition: st.partition, Offset: st.noted, Sent: time.UnixMilli(st.ms).UTC()}, err
}
