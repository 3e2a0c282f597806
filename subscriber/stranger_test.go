package subscriber

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
)

// Every client of the package refuses a web server.
func TestWebServerInPlaceOfABroker(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	t.Cleanup(func() { require.NoError(t, l.Close()); <-served })
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			_ = c.Close()
		}
	}()
	d := &kafkaFixture{addr: l.Addr().String(), topic: "grants", burial: "graves"}
	cfg := d.config(lazySink{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	log, letters := newLogClient(&cfg), newWriter(&cfg)
	t.Cleanup(func() { log.close(); require.NoError(t, letters.Close()) })
	_, begin := log.begin(ctx, 0)
	_, lookup := readerConfig(&cfg, 0).Dialer.LookupPartitions(ctx, "tcp", d.addr, "grants")
	for name, err := range map[string]error{
		"metadata": log.exists(ctx), "offsets": begin, "group and reader": lookup,
		"dead letters": letters.WriteMessages(ctx, kafka.Message{Value: []byte("x")}),
	} {
		require.ErrorContains(t, err, `answers, but not as Kafka: its first bytes are "HTTP/1.1"`, name)
	}
}
