// Package franz is an example of a reader of the topic with franz-go in place of package subscriber. Any Kafka client
// that reads the headers of records works. You may copy this package, because it uses public packages only.
package franz

import (
	"context"
	"errors"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hongbao-project/hongbao/topic"
)

// ReadGrants reads the grants of source, /hongbao/<deployment>, from the beginning of a topic until fn returns false or
// ctx ends. It does not drop copies: put a unique key on (campaign, packet) in the store of your effect.
func ReadGrants(ctx context.Context, brokers []string, name, source string, fn func(topic.Event) bool) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if err := errors.Join(ctx.Err(), fetches.Err()); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			var headers []kafka.Header
			for _, h := range r.Headers {
				headers = append(headers, kafka.Header{Key: h.Key, Value: h.Value})
			}
			e, err := topic.DecodeMessage(headers, r.Key, r.Value)
			if errors.Is(err, topic.ErrForeign) {
				continue // another producer's record, or a fence
			}
			if err != nil {
				return err
			}
			if e.Source != source {
				continue // another deployment's grant
			}
			if !fn(e) {
				return nil
			}
		}
	}
}
