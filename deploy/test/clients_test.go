package test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Each client of examples/clients grabs a packet. Then each reader prints every grant of the topic once, although the
// topic has one record twice. topic.py ends half way. A second run reads the topic from its beginning, and handles
// only the other grants. When the topic's first record has expired, no reader takes its group for a new one.
func TestClients(t *testing.T) {
	t.Parallel()
	broker := testkit.Kafka(t)
	topic := broker.Topic(t, 1, nil)
	env := []string{"HONGBAO_REDIS_ADDRS=" + testkit.NewRedis(t, testkit.RedisOptions{}).Addr,
		"HONGBAO_LEDGER_DSN=" + filepath.Join(t.TempDir(), "ledger.db"),
		"HONGBAO_KAFKA_BROKERS=" + broker.Addr, "HONGBAO_KAFKA_TOPIC=" + topic}
	run(t, env, "init")
	run(t, env, "campaign", "create", byDevice(t, campaignFile(t, 10)))
	run(t, env, "campaign", "load", "rain")
	front := serve(t, program(t), env, "--serve.drain_delay=0s", "--serve.facts=device=claim:device_id")
	worker := start(t, program(t), env, "work")
	granted := map[string]bool{}
	token := client(t, "python3", "-c", `import grab; print(grab.token("docs"))`) // the command of docs/http.md
	require.Equal(t, 2, strings.Count(token, "."), token)
	for _, command := range [][]string{{"bash", "grab.sh"}, {"python3", "grab.py"}, {"node", "grab.mjs"}, {"java", "Grab.java"}} {
		user := command[0]
		text := client(t, append(command, "http://"+front.public, "rain", user)...)
		var a answer
		require.NoError(t, json.Unmarshal([]byte(text), &a), "%s: %s", user, text)
		require.Equal(t, "granted", a.Outcome, user)
		require.Equal(t, front.mine(user).Receipts, a.Receipts, user)
		if granted[user] = true; len(granted) == 1 {
			again(t, broker.Addr, topic)
		}
	}

	for _, reader := range readers(t, broker.Version) {
		read := map[string]bool{}
		group := "readers-in-" + filepath.Base(reader[0])
		args := slices.Concat(reader, []string{broker.Addr, topic, group, "hongbao", "4"})
		text := ""
		if reader[1] == "topic.py" {
			args = append(args, filepath.Join(t.TempDir(), "points.db"))
			half := slices.Clone(args)
			half[4], half[6], args[6] = group+"-1", "2", "2"
			text = client(t, half...) + "\n"
		}
		text += client(t, args...)
		for line := range strings.Lines(text) {
			var grant struct{ User string }
			require.NoError(t, json.Unmarshal([]byte(line), &grant), "%v: %s", reader, line)
			require.False(t, read[grant.User], "%v: %s twice", reader, grant.User)
			read[grant.User] = true
		}
		require.Equal(t, granted, read, "%v", reader)
	}
	worker.stop(timeToStart)
	expire(t, broker.Addr, topic)
	for _, reader := range readers(t, broker.Version) {
		args := slices.Concat(reader, []string{broker.Addr, topic, "late-" + filepath.Base(reader[0]), "hongbao", "1"})
		if reader[1] == "topic.py" {
			args = append(args, filepath.Join(t.TempDir(), "points.db"))
		}
		out, says, err := tryClient(t, args...)
		require.Error(t, err, "%v: %s", reader, out)
		require.Empty(t, out, "%v has handled a grant", reader)
		require.Contains(t, says, "Where to begin to read", "%v", reader)
	}
}

// expire deletes the first record of the topic, as retention does.
func expire(t *testing.T, addr, topic string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	require.NoError(t, err)
	defer client.Close()
	part := kmsg.NewDeleteRecordsRequestTopicPartition()
	part.Offset = 1
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 5000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: topic,
		Partitions: []kmsg.DeleteRecordsRequestTopicPartition{part}}}
	res, err := req.RequestWith(t.Context(), client)
	require.NoError(t, err)
	require.Zero(t, res.Topics[0].Partitions[0].ErrorCode)
}

// readers returns the commands that run the readers of the topic, with the libraries that scripts/setup.sh has
// downloaded.
func readers(t *testing.T, kafka string) [][]string {
	t.Helper()
	node := t.TempDir() // Node looks for libraries in the folder of the program
	text, err := os.ReadFile("../../examples/clients/topic.mjs")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(node, "topic.mjs"), text, 0o600))
	require.NoError(t, os.Symlink(cached(t, "clients", "node_modules"), filepath.Join(node, "node_modules")))
	return [][]string{
		{"java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", cached(t, "kafka-"+kafka, "libs", "*"), "Topic.java"},
		{cached(t, "clients", "venv", "bin", "python3"), "topic.py"},
		{"node", filepath.Join(node, "topic.mjs")},
	}
}

// byDevice adds the limit by device that configs/campaign.yaml has.
func byDevice(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	const user = "limits: [{by: user, per: campaign, max: 1}"
	require.Contains(t, string(text), user)
	limited := strings.Replace(string(text), user, user+", {by: device, per: day, max: 3}", 1)
	require.NoError(t, os.WriteFile(path, []byte(limited), 0o600))
	return path
}

// again writes the topic's first record once more, as may happen after a rollback of Redis.
func again(t *testing.T, addr, topic string) {
	t.Helper()
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{addr}, Topic: topic})
	record, err := reader.ReadMessage(t.Context())
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	writer := &kafka.Writer{Addr: kafka.TCP(addr), Topic: topic, RequiredAcks: kafka.RequireAll}
	require.NoError(t, writer.WriteMessages(t.Context(), kafka.Message{Key: record.Key, Value: record.Value, Headers: record.Headers}))
	require.NoError(t, writer.Close())
}

// client runs a command in the folder examples/clients, and returns its output.
func client(t *testing.T, command ...string) string {
	t.Helper()
	out, says, err := tryClient(t, command...)
	require.NoError(t, err, "%v: %s%s", command, out, says)
	return out
}

// tryClient is like client. It also returns what the command prints as its errors, and how it ended.
func tryClient(t *testing.T, command ...string) (output, says string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = "../../examples/clients"
	cmd.Env = append(os.Environ(), "ISSUER=https://id.test", "AUDIENCE=hongbao", "EXAMPLE_SECRET="+string(secret))
	var text strings.Builder
	cmd.Stderr = &text
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), text.String(), err
}

// cached returns the path of something that scripts/setup.sh has downloaded.
func cached(t *testing.T, path ...string) string {
	t.Helper()
	dir := os.Getenv("HONGBAO_KAFKA_DIR")
	if dir == "" {
		dir = "../../.cache"
	}
	abs, err := filepath.Abs(filepath.Join(append([]string{dir}, path...)...))
	require.NoError(t, err)
	return abs
}
