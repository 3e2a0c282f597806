package publish

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Pushed is the part of a claim's payload that a person needs to look for its batch in the topic.
type Pushed struct {
	Topic     string
	Partition int
	// Offset is the end of the log before the batch was sent. If the batch is in the log, it is at this offset or
	// later.
	Offset int64
	Sent   time.Time

	runs []run
}

// ReadPayload parses the payload of a publisher's claim.
func ReadPayload(payload string) (Pushed, error) {
	st, err := parseStored(payload)
	return Pushed{Topic: st.topic, Partition: st.partition, Offset: st.noted, Sent: time.UnixMilli(st.ms).UTC(),
		runs: st.runs}, err
}

// Campaigns returns the campaign of each seq of the batch whose entry is still in the stream.
func (b *Pushed) Campaigns(ctx context.Context, entries Entries, in stream.Opening) (map[int64]string, error) {
	campaigns := make(map[int64]string)
	for _, r := range b.runs {
		list, err := r.read(ctx, entries, in)
		if err != nil {
			return nil, err
		}
		for i := range list {
			for _, g := range list[i].Grants {
				campaigns[g.Seq] = g.Campaign
			}
		}
	}
	return campaigns, nil
}
