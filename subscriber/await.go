package subscriber

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// sayAgain is how often Run logs that its topic is still missing.
const sayAgain = time.Minute

// awaitTopic waits until the topic exists or ctx ends. If a member joined the group earlier, it would get no partition,
// and kafka-go would make the broker create the topic with the broker's defaults.
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

// balancer notes whether the topic had no partition when this member assigned the partitions of its group. Then no
// member has one, and kafka-go would not notice that the topic is made again.
type balancer struct {
	kafka.GroupBalancer
	without *atomic.Bool
}

// AssignGroups implements kafka.GroupBalancer.
func (b balancer) AssignGroups(members []kafka.GroupMember, partitions []kafka.Partition) kafka.GroupMemberAssignments {
	b.without.Store(len(partitions) == 0)
	return b.GroupBalancer.AssignGroups(members, partitions)
}

// rejoinPause limits how often a member joins again while brokers do not agree whether the topic exists.
const rejoinPause = time.Second

// rejoin ends a generation without partitions once the topic exists. Then the group assigns its partitions.
func (s *session) rejoin(gen *kafka.Generation) {
	gen.Start(func(ctx context.Context) {
		retry.Pause(ctx, rejoinPause)
		s.awaitTopic(ctx)
	})
}
