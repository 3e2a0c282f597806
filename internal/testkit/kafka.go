package testkit

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
)

// KafkaVersion is the version of Kafka unless HONGBAO_KAFKA_VERSION or KafkaOptions.Version is set.
const KafkaVersion = "4.1.0"

// KafkaOptions configure a broker.
type KafkaOptions struct {
	// Version is the version of Apache Kafka, which scripts/setup.sh kafka VERSION downloads. If it is empty, it is
	// HONGBAO_KAFKA_VERSION or else KafkaVersion.
	Version string
	// Properties are settings in server.properties; they override the defaults.
	Properties map[string]string
	// Java are flags of the Java virtual machine. They come after the defaults, which favor a fast start.
	// Measurements pass -XX:TieredStopAtLevel=4.
	Java []string
	// Proxied adds a second listener behind a fault proxy. Clients that connect to Proxy.Addr stay on the proxy,
	// because the broker advertises the proxy's address.
	Proxied bool
}

// KafkaBroker is a running Apache Kafka: one node that is both broker and controller.
type KafkaBroker struct {
	// Addr is host:port. A restart keeps it.
	Addr string
	// Version is the version of Apache Kafka.
	Version string
	// Proxy is nil unless KafkaOptions.Proxied was set. Addr bypasses it.
	Proxy *proxy.Proxy
	server
	home    string
	cluster string
	opts    KafkaOptions
}

// StartKafka starts a broker. It returns when the broker assigns producer ids. The caller closes it.
func StartKafka(ctx context.Context, opts KafkaOptions) (*KafkaBroker, error) {
	b := &KafkaBroker{Version: opts.Version, opts: opts}
	if b.Version == "" {
		b.Version = os.Getenv("HONGBAO_KAFKA_VERSION")
	}
	if b.Version == "" {
		b.Version = KafkaVersion
	}
	var err error
	if b.home, err = kafkaHome(b.Version); err != nil {
		return nil, err
	}
	java, err := program("java")
	if err != nil {
		return nil, err
	}
	if b.cluster, err = kafkaID(); err != nil {
		return nil, err
	}
	b.server = server{name: "kafka", ready: b.answers, ports: 3}
	b.prepare = func(ports []int) (command, error) { return b.configure(java, ports) }
	if err := b.launch(ctx); err != nil {
		return nil, errors.Join(err, b.closeProxy())
	}
	return b, nil
}

// Close stops the broker and its proxy, and removes the broker's folder.
func (b *KafkaBroker) Close() error { return errors.Join(b.server.Close(), b.closeProxy()) }

func (b *KafkaBroker) closeProxy() error {
	if b.Proxy == nil {
		return nil
	}
	return b.Proxy.Close()
}

// kafkaHome returns the folder into which scripts/setup.sh installed a version. The folder has the jars in libs, and
// bootstrap.checkpoint in the format of kafka-storage. kafka.jsa is an archive of loaded classes that halves the
// start time.
func kafkaHome(version string) (string, error) {
	base, err := fetched()
	if err != nil {
		return "", err
	}
	home := filepath.Join(base, "kafka-"+version)
	for _, name := range []string{"libs/kafka_2.13-" + version + ".jar", "bootstrap.checkpoint"} {
		if _, err := os.Stat(filepath.Join(home, name)); err != nil {
			return "", fmt.Errorf("no Kafka %s: %w: %w kafka %s", version, err, errNoProgram, version)
		}
	}
	return home, nil
}

// fetched returns the folder into which scripts/setup.sh downloads.
func fetched() (string, error) {
	if base := os.Getenv("HONGBAO_KAFKA_DIR"); base != "" {
		return base, nil
	}
	root, err := repoRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, ".cache"), nil
}

// kafkaID returns a random id in Kafka's format, which may not begin with a dash.
func kafkaID() (string, error) {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return "", fmt.Errorf("make a Kafka id: %w", err)
	}
	id[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(id), nil
}

// configure formats the broker's data folder as kafka-storage would, and writes the configuration.
func (b *KafkaBroker) configure(java string, ports []int) (command, error) {
	b.Addr = loopback(ports[0])
	data := filepath.Join(b.dir, "data")
	directory, err := kafkaID()
	if err != nil {
		return command{}, err
	}
	checkpoint, err := os.ReadFile(filepath.Join(b.home, "bootstrap.checkpoint"))
	if err != nil {
		return command{}, err
	}
	proxied, err := b.proxyTo(ports[2])
	if err != nil {
		return command{}, err
	}
	meta := "version=1\nnode.id=1\ncluster.id=" + b.cluster + "\ndirectory.id=" + directory + "\n"
	files := map[string][]byte{
		filepath.Join(data, "meta.properties"):      []byte(meta),
		filepath.Join(data, "bootstrap.checkpoint"): checkpoint,
		filepath.Join(b.dir, "server.properties"):   []byte(kafkaProperties(data, ports, proxied, b.opts.Properties)),
	}
	if err := errors.Join(os.RemoveAll(data), os.Mkdir(data, 0o700)); err != nil { // an earlier try may have left data
		return command{}, err
	}
	for path, content := range files {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return command{}, err
		}
	}
	return command{path: java, args: b.javaArgs(), dir: b.dir}, nil
}

// proxyTo starts the proxy in front of a port and returns the address to advertise. Without a proxy that is the
// address of the port itself.
func (b *KafkaBroker) proxyTo(port int) (string, error) {
	if !b.opts.Proxied {
		return loopback(port), nil
	}
	if err := b.closeProxy(); err != nil { // an earlier try may have left a proxy
		return "", err
	}
	var err error
	if b.Proxy, err = proxy.Start(loopback(port)); err != nil {
		return "", err
	}
	return b.Proxy.Addr, nil
}

func (b *KafkaBroker) javaArgs() []string {
	args := []string{
		"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
		// If the archive is missing or has another version, Java starts without it.
		"-XX:SharedArchiveFile=" + filepath.Join(b.home, "kafka.jsa"),
	}
	args = append(args, b.opts.Java...)
	return append(args, "-cp", filepath.Join(b.home, "libs", "*"), "kafka.Kafka", "server.properties")
}

func kafkaProperties(data string, ports []int, proxied string, overrides map[string]string) string {
	plain, controller := loopback(ports[0]), loopback(ports[1])
	all := map[string]string{
		// After a kill, the old session would block the new broker until it expires (by default after 9 s).
		"broker.session.timeout.ms":    "3000",
		"broker.heartbeat.interval.ms": "500",
		"process.roles":                "broker,controller",
		"node.id":                      "1",
		"controller.quorum.voters":     "1@" + controller,
		"listeners": "PLAINTEXT://" + plain + ",PROXIED://" + loopback(ports[2]) +
			",CONTROLLER://" + controller,
		"advertised.listeners":                             "PLAINTEXT://" + plain + ",PROXIED://" + proxied,
		"listener.security.protocol.map":                   "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"controller.listener.names":                        "CONTROLLER",
		"inter.broker.listener.name":                       "PLAINTEXT",
		"log.dirs":                                         data,
		"auto.create.topics.enable":                        "false",
		"group.initial.rebalance.delay.ms":                 "0",
		"offsets.topic.num.partitions":                     "4",
		"offsets.topic.replication.factor":                 "1",
		"transaction.state.log.num.partitions":             "4",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
	}
	maps.Copy(all, overrides)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s=%s\n", name, all[name])
	}
	return b.String()
}

// client returns a kafka-go client. done closes its connections.
func (b *KafkaBroker) client() (c *kafka.Client, done func()) {
	tr := &kafka.Transport{ClientID: "testkit"}
	return &kafka.Client{Addr: kafka.TCP(b.Addr), Transport: tr}, tr.CloseIdleConnections
}

// answers returns an error unless this broker assigns producer ids. Another broker on the same port is an error. A
// broker assigns them only when it has a controller.
func (b *KafkaBroker) answers(ctx context.Context) error {
	c, done := b.client()
	defer done()
	meta, err := c.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return fmt.Errorf("ask kafka at %s for its metadata: %w", b.Addr, err)
	}
	if meta.ClusterID != b.cluster {
		return fmt.Errorf("kafka at %s is cluster %s, want %s: %w", b.Addr, meta.ClusterID, b.cluster, errStranger)
	}
	got, err := c.InitProducerID(ctx, &kafka.InitProducerIDRequest{ProducerID: -1, ProducerEpoch: -1})
	if err == nil {
		err = got.Error
	}
	if err != nil {
		return fmt.Errorf("ask kafka at %s for a producer id: %w", b.Addr, err)
	}
	return nil
}

// CreateTopic creates a topic. It returns when the leader of every partition answers.
func (b *KafkaBroker) CreateTopic(ctx context.Context, topic string, partitions int, config map[string]string) error {
	c, done := b.client()
	defer done()
	req := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
	for _, name := range slices.Sorted(maps.Keys(config)) {
		req.ConfigEntries = append(req.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: config[name]})
	}
	var err error
	for range 50 { // on a busy machine the controller may fence the broker for a moment
		var res *kafka.CreateTopicsResponse
		if res, err = c.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{req}}); err == nil {
			err = res.Errors[topic]
		}
		if !errors.Is(err, kafka.InvalidReplicationFactor) || !retry.Pause(ctx, 200*time.Millisecond) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("make topic %s on kafka at %s: %w", topic, b.Addr, err)
	}
	ask := make([]kafka.OffsetRequest, partitions)
	for i := range ask {
		ask[i] = kafka.LastOffsetOf(i)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, b.current(), func(ctx context.Context) error { return b.leadersAnswer(ctx, topic, ask) })
}

func (b *KafkaBroker) leadersAnswer(ctx context.Context, topic string, ask []kafka.OffsetRequest) error {
	c, done := b.client()
	defer done()
	res, err := c.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: ask}})
	if err != nil {
		return fmt.Errorf("ask for the offsets of topic %s: %w", topic, err)
	}
	if got := len(res.Topics[topic]); got != len(ask) {
		return fmt.Errorf("%d of %d partitions of topic %s answer", got, len(ask), topic)
	}
	for _, p := range res.Topics[topic] {
		if p.Error != nil {
			return fmt.Errorf("partition %d of topic %s: %w", p.Partition, topic, p.Error)
		}
	}
	return nil
}
