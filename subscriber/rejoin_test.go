package subscriber

import (
	"context"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The group rebalances while its topic is gone, so nobody gets a partition. Once the topic is made again, a member reads
// it.
func TestRebalanceWithoutTheTopic(t *testing.T) {
	onBoth(t, func(t *testing.T, d *kafkaFixture) {
		book := newBook()
		first, second := start(t, d.config(book.funcSink(t))), start(t, d.config(book.funcSink(t)))
		testkit.Eventually(t, soon, func() bool { return d.members(t) == 2 }, "both are members")
		d.deleteTopic(t)
		require.NoError(t, second.stop())
		testkit.Eventually(t, soon, func() bool { return d.members(t) == 1 }, "one is left, without a partition")
		d.createTopic(t)
		d.write(t, 1, record(grant(0, 1)))
		testkit.Eventually(t, soon, func() bool { return first.Stats().Done == 1 }, "the event is handled")
		require.NoError(t, first.stop())
	})
}

// members returns how many members the group has while it is stable.
func (d *kafkaFixture) members(t testing.TB) int {
	t.Helper()
	client, done := d.client()
	defer done()
	res, err := client.DescribeGroups(context.Background(), &kafka.DescribeGroupsRequest{GroupIDs: []string{"g-" + d.topic}})
	if err != nil || len(res.Groups) != 1 || res.Groups[0].GroupState != "Stable" {
		return -1
	}
	return len(res.Groups[0].Members)
}
