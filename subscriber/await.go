package subscriber

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// sayAgain is how often Run logs that its topic is still missing.
const sayAgain = time.Minute

// awaitTopic waits until the topic exists or ctx ends. If a member joined the group earlier, it would get no
// partition, and would not notice when the topic is created. Also, kafka-go would make the broker create the topic
// with the broker's defaults.
func (s *session) awaitTopic(ctx context.Context) {
	var said time.Time
	for wait := newBackoff(s.cfg); ctx.Err() == nil; {
		err := s.log.exists(ctx)
		if err == nil {
			if !said.IsZero() {
				s.cfg.Log.Info("the topic is there", zap.String("topic", s.cfg.Topic))
			}
			return
		}
		if ctx.Err() == nil && time.Since(said) >= sayAgain {
			said = time.Now()
			message := "the broker did not say whether the topic exists; asking again"
			if errors.Is(err, kafka.UnknownTopicOrPartition) {
				message = "the topic does not exist: waiting for it; `hongbao init` creates it if kafka.create_topic is true"
			}
			s.cfg.Log.Warn(message, zap.String("topic", s.cfg.Topic), zap.String("group", s.cfg.Group), zap.Error(err))
		}
		retry.Pause(ctx, wait.NextBackOff())
	}
}
