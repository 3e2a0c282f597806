package publish

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao"
)

// CheckReport has what Check found, apart from its refusals.
type CheckReport struct {
	Created bool // true if the topic was missing and Check created it
	// Skipped lists the settings that could not be checked because the broker did not report them, with the reason.
	Skipped []string
	// Warnings describe settings that are allowed but may cause harm.
	Warnings []string
	// ProducerExpiration is the lower of the configured and the brokers' expiration of producer ids. It limits how long
	// a stored batch is sent again without reading the log.
	ProducerExpiration time.Duration
}

// Check compares the topic with the configuration, before the first publishing. It creates a missing topic if Create is
// set. It returns all refusals together as one Broken error. An error of another class says that the brokers could not
// be reached.
func (l *Log) Check(ctx context.Context) (CheckReport, error) { return l.check(ctx, false) }

// CheckReading is Check for a program that only reads. It warns of the settings that only publishing needs.
func (l *Log) CheckReading(ctx context.Context) (CheckReport, error) { return l.check(ctx, true) }

func (l *Log) check(ctx context.Context, reads bool) (CheckReport, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.AttemptTime)
	defer cancel()
	k := &check{l: l, reads: reads}
	k.report.ProducerExpiration = l.cfg.ProducerExpiration
	topic, err := k.topic(ctx)
	if err != nil {
		return k.report, err
	}
	k.partitions(topic)
	if err := k.configs(ctx, topic); err != nil {
		return k.report, err
	}
	if len(k.refusals) > 0 {
		return k.report, hongbao.Errorf(hongbao.ClassBroken, "topic %s can't be used: %w", l.cfg.Topic,
			errors.Join(k.refusals...))
	}
	l.expiration.Store(int64(k.report.ProducerExpiration))
	return k.report, nil
}

type check struct {
	l        *Log
	reads    bool // without publishing
	report   CheckReport
	refusals []error
	replicas int
	values   map[string]string
}

func (k *check) refuse(format string, args ...any) {
	k.refusals = append(k.refusals, fmt.Errorf(format, args...))
}

// unfit refuses publishing.
func (k *check) unfit(format string, args ...any) {
	if k.reads {
		k.warn("nothing can be published: "+format, args...)
	} else {
		k.refuse(format, args...)
	}
}

func (k *check) warn(format string, args ...any) {
	k.report.Warnings = append(k.report.Warnings, fmt.Sprintf(format, args...))
}

// topic returns the topic, and creates it if needed.
func (k *check) topic(ctx context.Context) (kafka.Topic, error) {
	t, err := k.describeTopic(ctx, false)
	if !errors.Is(err, kafka.UnknownTopicOrPartition) {
		return t, err
	}
	c := &k.l.cfg
	if !c.Create {
		return t, hongbao.Errorf(hongbao.ClassBroken,
			"topic %s does not exist: create it with %d partitions, cleanup.policy=delete, "+
				"unclean.leader.election.enable=false; or set kafka.create_topic and run `hongbao init`",
			c.Topic, c.Partitions)
	}
	if err := k.create(ctx); err != nil {
		return t, err
	}
	return k.describeTopic(ctx, true)
}

// describeTopic returns the topic's metadata. If must is true, the topic was just created: describeTopic then waits
// until every broker knows it.
func (k *check) describeTopic(ctx context.Context, must bool) (kafka.Topic, error) {
	c := &k.l.cfg
	var found kafka.Topic
	missing := false
	err := k.l.ask(ctx, "asking for the topic's partitions", func(ctx context.Context) error {
		res, err := k.l.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{c.Topic}})
		if err != nil {
			return err
		}
		if len(res.Topics) != 1 || res.Topics[0].Name != c.Topic {
			return errors.New("the answer does not name the topic")
		}
		found = res.Topics[0]
		if missing = errors.Is(found.Error, kafka.UnknownTopicOrPartition); missing && !must {
			return nil
		}
		return found.Error
	})
	if err == nil && missing {
		err = kafka.UnknownTopicOrPartition
	}
	return found, err
}

func (k *check) create(ctx context.Context) error {
	c := &k.l.cfg
	config := []kafka.ConfigEntry{
		{ConfigName: "cleanup.policy", ConfigValue: "delete"},
		{ConfigName: "unclean.leader.election.enable", ConfigValue: "false"},
		{ConfigName: "message.timestamp.type", ConfigValue: "CreateTime"},
		{ConfigName: "min.insync.replicas", ConfigValue: strconv.Itoa(max(1, c.ReplicationFactor-1))},
		{ConfigName: "max.message.bytes", ConfigValue: strconv.Itoa(max(c.BatchBytes, 1<<20))},
	}
	if c.ReplicationFactor == 2 {
		config[3].ConfigValue = "2"
	}
	err := k.l.ask(ctx, "creating the topic", func(ctx context.Context) error {
		res, err := k.l.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
			Topic: c.Topic, NumPartitions: c.Partitions, ReplicationFactor: c.ReplicationFactor, ConfigEntries: config,
		}}})
		if err == nil {
			err = res.Errors[c.Topic]
		}
		if errors.Is(err, kafka.TopicAlreadyExists) { // another worker has created it meanwhile
			return nil
		}
		return err
	})
	k.report.Created = err == nil
	return err
}

func (k *check) partitions(t kafka.Topic) {
	switch n, want := len(t.Partitions), k.l.cfg.Partitions; {
	case n < want:
		k.refuse("it has %d partitions, configured are %d: a shard's partition is the shard modulo that number, so it must "+
			"not change", n, want)
	case n > want: // only a warning: Kafka can't remove partitions
		k.warn("it has %d partitions, configured are %d: shards stay on the first %d, the others get nothing; do not raise "+
			"kafka.partitions", n, want, want)
	}
	for i := range t.Partitions {
		if r := len(t.Partitions[i].Replicas); k.replicas == 0 || r < k.replicas {
			k.replicas = r
		}
	}
}

// The Kafka settings that Check reads.
const (
	minInsync    = "min.insync.replicas"
	unclean      = "unclean.leader.election.enable"
	maxBytes     = "max.message.bytes"
	stamp        = "message.timestamp.type"
	cleanup      = "cleanup.policy"
	retention    = "retention.ms"
	producerLife = "producer.id.expiration.ms"
)

func (k *check) configs(ctx context.Context, t kafka.Topic) error {
	if len(t.Partitions) == 0 {
		return nil
	}
	broker := strconv.Itoa(t.Partitions[0].Leader.ID)
	k.values = map[string]string{}
	if err := k.describe(ctx, kafka.ResourceTypeTopic, k.l.cfg.Topic, minInsync, unclean, maxBytes, stamp, cleanup,
		retention); err != nil {
		return err
	}
	if err := k.describe(ctx, kafka.ResourceTypeBroker, broker, producerLife); err != nil {
		return err
	}
	k.same(k.unfit, unclean, "false", "an unclean election loses events that were acknowledged")
	k.same(k.unfit, stamp, "CreateTime",
		"brokers forget a producer by its records' times, so these must be the times of sending")
	k.keepsAll()
	k.insync()
	k.number(maxBytes, func(n int64) {
		if n < int64(k.l.cfg.BatchBytes) {
			k.unfit("%s is %d, but BatchBytes is %d: raise the first or lower the second", maxBytes, n, k.l.cfg.BatchBytes)
		}
	})
	k.number(producerLife, func(n int64) {
		life := time.Duration(min(n, int64(365*24*time.Hour/time.Millisecond))) * time.Millisecond
		if life/4 < k.l.cfg.MaxClaimAge {
			k.unfit("the brokers' %s is %v, but MaxClaimAge is %v: it must be four times as long", producerLife, life,
				k.l.cfg.MaxClaimAge)
		}
		k.report.ProducerExpiration = min(k.report.ProducerExpiration, life)
	})
	k.number(retention, func(n int64) {
		if keep := time.Duration(min(n, 1<<40)) * time.Millisecond; n >= 0 && keep < k.report.ProducerExpiration/2 {
			k.unfit("%s is %v: below %v, records may expire before a dead worker's batch is searched for", retention, keep,
				k.report.ProducerExpiration/2)
		}
	})
	return nil
}

// describe reads settings into k.values. It adds those that the broker does not report to Skipped.
func (k *check) describe(ctx context.Context, kind kafka.ResourceType, name string, settings ...string) error {
	answered := map[string]bool{}
	var denied error
	err := k.l.ask(ctx, "asking for the settings of "+name, func(ctx context.Context) error {
		res, err := k.l.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
			Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: settings}},
		})
		if err != nil {
			return err
		}
		for _, r := range res.Resources {
			if denied = r.Error; denied != nil {
				return nil //nolint:nilerr // denied has the refusal, and a second try would be refused too
			}
			for _, e := range r.ConfigEntries {
				k.values[e.ConfigName], answered[e.ConfigName] = e.ConfigValue, true
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, s := range settings {
		if answered[s] {
			continue
		}
		reason := "the broker does not report it"
		if denied != nil {
			reason = "the broker answers: " + denied.Error()
		}
		k.report.Skipped = append(k.report.Skipped, s+": "+reason)
	}
	return nil
}

func (k *check) same(object func(string, ...any), setting, want, why string) {
	if got, ok := k.values[setting]; ok && got != want {
		object("%s is %s, want %s: %s", setting, got, want, why)
	}
}

func (k *check) keepsAll() {
	k.same(k.refuse, cleanup, "delete", "compaction keeps only one event per user")
}

func (k *check) number(setting string, check func(int64)) {
	got, ok := k.values[setting]
	if !ok {
		return
	}
	n, err := strconv.ParseInt(got, 10, 64)
	if err != nil {
		k.unfit("%s is %.40q, which is not a number", setting, got)
		return
	}
	check(n)
}

func (k *check) insync() {
	k.number(minInsync, func(n int64) {
		r := int64(k.replicas)
		switch {
		case n > r:
			k.unfit("%s is %d, but a partition has %d replicas: nothing could be written", minInsync, n, r)
		case r > 1 && n < 2:
			k.unfit("%s is %d with %d replicas: an acknowledged event may be on one disk only; set it to 2", minInsync, n, r)
		case r == 1:
			k.warn("a partition has one replica: a lost disk loses events")
		case n == r:
			k.warn("%s equals the number of replicas, %d: one broker down stops all pushes", minInsync, r)
		}
	})
}
