package subscriber

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A broker takes the reader's connection and never answers. The reader gives it up, and tries another one.
func TestReaderGivesUpASilentBroker(t *testing.T) {
	t.Parallel()
	d, book := inProcess(t, 1), newBook()
	d.write(t, 1, record(grant(0, 1)))
	cfg := d.config(book.funcSink(t))
	cfg.RequestTimeout = 200 * time.Millisecond
	var dials atomic.Int64
	w := start(t, cfg, func(s *Subscriber) {
		open := s.newReader
		s.newReader = func(c *Config, partition int, offset int64) recordReader {
			own := *c
			own.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if dials.Add(1) > 1 {
					return (&net.Dialer{}).DialContext(ctx, network, address)
				}
				client, server := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, server) }()
				return client, nil
			}
			return open(&own, partition, offset)
		}
	})
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 1 }, "the event is handled")
	require.NoError(t, w.stop())
}
