package virtual

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

const brokerAddr = "127.0.0.1:9092"

// Two deeds keep a server down at the same time. When the first one ends, the server stays down: Kafka would otherwise
// get records in an outage at whose end it forgets its producers.
func TestOutagesOverlap(t *testing.T) {
	t.Parallel()
	n := NewNet(1, nil, nil, nil)
	n.Serve(brokerAddr, "kafka", Kafka, func(net.Conn) {})
	p := n.NewProc("w0.0")
	answers := func() bool {
		_, err := p.Dial(t.Context(), "tcp", brokerAddr)
		return err == nil
	}
	require.True(t, answers())
	n.Down(brokerAddr, true)
	require.False(t, answers())
	n.Down(brokerAddr, true)
	n.Down(brokerAddr, false)
	require.False(t, answers())
	n.Down(brokerAddr, false)
	require.True(t, answers())
}
