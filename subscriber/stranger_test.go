package subscriber

import (
	"context"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
)

// Every client of the package refuses a web server.
func TestWebServerInPlaceOfABroker(t *testing.T) {
	t.Parallel()
	address := testkit.Answering(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
	d := &kafkaFixture{addr: address, topic: "grants", burial: "graves"}
	cfg := d.config(lazySink{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	log, letters := newLogClient(&cfg), newWriter(&cfg)
	t.Cleanup(func() { log.close(); require.NoError(t, letters.Close()) })
	_, _, begin := log.ends(ctx, 0)
	_, lookup := readerConfig(&cfg, 0).Dialer.LookupPartitions(ctx, "tcp", d.addr, "grants")
	for name, err := range map[string]error{
		"metadata": log.exists(ctx), "offsets": begin, "group and reader": lookup,
		"dead letters": letters.WriteMessages(ctx, kafka.Message{Value: []byte("x")}),
	} {
		require.ErrorContains(t, err, `answers, but not as Kafka: its first bytes are "HTTP/1.1"`, name)
	}
}
