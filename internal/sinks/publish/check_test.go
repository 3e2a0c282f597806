package publish

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/topic"
)

func TestCheckAcceptsAndReports(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	report, err := p.Check(t.Context())
	require.NoError(t, err)
	require.False(t, report.Created)
	require.Len(t, report.Warnings, 1, "one replica")
	for _, s := range report.Skipped { // the in-process broker does not report every setting
		require.Contains(t, s, "the broker does not report it")
	}
	require.Equal(t, 24*time.Hour, report.ProducerExpiration)
}

func TestCheckRefusesByName(t *testing.T) {
	t.Parallel()
	for setting, value := range map[string]string{
		"max.message.bytes": "60000", "cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime",
		"retention.ms": "3600000", "unclean.leader.election.enable": "true", "min.insync.replicas": "2",
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			require.NoError(t, b.broker.CreateTopic("odd", 1, map[string]string{setting: value}))
			b.cfg.Topic = "odd"
			p, _ := b.worker(t)
			report, err := p.Check(t.Context())
			require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%v", err)
			require.ErrorContains(t, err, "1 partitions", "every refusal at once")
			if !strings.Contains(strings.Join(report.Skipped, " "), setting) {
				require.ErrorContains(t, err, "\n"+setting)
			}
		})
	}
}

func TestCheckCreatesTheTopicOnlyIfConfigured(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Topic = "fresh"
	p, _ := b.worker(t)
	_, err := p.Check(t.Context())
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	require.ErrorContains(t, err, "does not exist")
	b.cfg.Create, b.cfg.ReplicationFactor = true, 1
	p, _ = b.worker(t)
	report, err := p.Check(t.Context())
	require.NoError(t, err)
	require.True(t, report.Created)
	p, _ = b.worker(t)
	report, err = p.Check(t.Context())
	require.NoError(t, err)
	require.False(t, report.Created)
	g := b.store.grants(1, 3, decided)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	requireOneCopy(t, &b.cfg, g)
}

func TestCheckSaysWhatItCouldNotAsk(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.broker.ControlKey(int16(kmsg.DescribeConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.broker.KeepControl()
		res := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, asked := range r.(*kmsg.DescribeConfigsRequest).Resources {
			one := kmsg.NewDescribeConfigsResponseResource()
			one.ResourceType, one.ResourceName, one.ErrorCode = asked.ResourceType, asked.ResourceName,
				int16(kafka.TopicAuthorizationFailed)
			res.Resources = append(res.Resources, one)
		}
		return res, nil, true
	})
	p, _ := b.worker(t)
	report, err := p.Check(t.Context())
	require.NoError(t, err)
	require.Len(t, report.Skipped, 7)
	for _, s := range report.Skipped {
		require.Contains(t, s, "the broker answers: ")
	}
}

func TestCheckWithoutABroker(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	cfg := testConfig(c.ListenAddrs()...)
	cfg.AttemptTime = hopeless
	c.Close()
	p, err := New(cfg, newStore(), newStore())
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Check(t.Context())
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	require.True(t, hongbao.IsOutage(err))
}

func TestConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Create: true, ReplicationFactor: -1}, newStore(), newStore())
	for _, field := range []string{
		"Brokers", "ClientID", "Topic", "Partitions", "ReplicationFactor", "Deployment", "Worker", "BatchGrants",
		"BatchBytes", "FetchBytes",
		"DialTimeout", "RequestTimeout", "IdleTimeout", "MetadataTTL", "AttemptTime", "MaxClaimAge", "ProducerExpiration",
	} {
		require.Regexp(t, `(: |\n)`+field, err.Error())
	}
	cfg := testConfig("127.0.0.1:1")
	cfg.AttemptTime = cfg.MaxClaimAge + 1
	_, err = New(cfg, newStore(), newStore())
	require.ErrorContains(t, err, "AttemptTime")
	cfg = testConfig("127.0.0.1:1")
	cfg.ProducerExpiration = time.Minute
	cfg.MaxClaimAge = 16 * time.Second
	_, err = New(cfg, newStore(), newStore())
	require.ErrorContains(t, err, "MaxClaimAge")
	_, err = New(testConfig("127.0.0.1:1"), nil, newStore())
	require.Error(t, err)
}

// If no broker can be reached, the error says so in words, without kafka-go's names.
func TestUnreachableBrokers(t *testing.T) {
	t.Parallel()
	cfg := testConfig("127.0.0.1:1", "127.0.0.1:2")
	l, err := NewLog(cfg)
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = l.CheckReading(ctx)
	require.Regexp(t, `^asking for the topic's partitions: kafka can't be reached: dial tcp 127\.0\.0\.1:[12]: connect: `+
		"connection refused$", err.Error())
	require.True(t, hongbao.IsOutage(err))
}

func TestClientOptionsAreExplicit(t *testing.T) {
	t.Parallel()
	cfg := testConfig("127.0.0.1:1", "127.0.0.1:2")
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	p, err := New(cfg, newStore(), newStore())
	require.NoError(t, err)
	defer p.Close()
	require.Equal(t, cfg.RequestTimeout, p.client.Timeout, "0 would wait forever")
	require.Same(t, p.transport, p.client.Transport, "not kafka-go's global one")
	require.Equal(t, "127.0.0.1:1,127.0.0.1:2", p.client.Addr.String())
	tr := p.transport
	require.Equal(t, cfg.DialTimeout, tr.DialTimeout)
	require.Equal(t, cfg.IdleTimeout, tr.IdleTimeout)
	require.Equal(t, cfg.MetadataTTL, tr.MetadataTTL)
	require.Equal(t, []string{cfg.Topic}, tr.MetadataTopics)
	require.Equal(t, cfg.ClientID, tr.ClientID)
	require.Nil(t, tr.TLS, "the dialer uses TLS")
	require.NotNil(t, tr.Dial)
}

// After partitions were added, Check only warns, because Kafka can't remove them. Shards keep their partitions.
func TestAddedPartitionsAreAWarning(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(3, 2, decided))))
	admin, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.Brokers...))
	require.NoError(t, err)
	defer admin.Close()
	more := kmsg.NewPtrCreatePartitionsRequest()
	added := kmsg.NewCreatePartitionsRequestTopic()
	added.Topic, added.Count = testTopic, 5
	more.Topics = append(more.Topics, added)
	res, err := more.RequestWith(t.Context(), admin)
	require.NoError(t, err)
	require.Zero(t, res.Topics[0].ErrorCode)

	again, _ := b.worker(t)
	report, err := again.Check(t.Context())
	require.NoError(t, err)
	require.Contains(t, strings.Join(report.Warnings, " "), "it has 5 partitions, configured are 2")
	require.Nil(t, again.Handle(t.Context(), testkit.Batch(b.store.grants(3, 2, decided))))
	for partition, events := range map[int]int64{0: 0, 1: 4} {
		n := int64(0)
		_, err = again.Scan(t.Context(), nil, func(at Position, _ topic.Event) error {
			if at.Partition == partition {
				n++
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, events, n, "partition %d", partition)
	}
}
