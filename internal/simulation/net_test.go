package simulation

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two deeds keep a server down at the same time. When the first one ends, the server stays down: Kafka would otherwise
// get records in an outage at whose end it forgets its producers.
func TestOutagesOverlap(t *testing.T) {
	t.Parallel()
	n := newNet(1, nil, nil, nil)
	n.serve(kafkaAddr, "kafka", func() wire { return &kafkaWire{} }, func(net.Conn) {})
	p := &Proc{name: "w0.0", net: n, apart: map[string]bool{}}
	answers := func() bool {
		_, err := n.dial(t.Context(), p, kafkaAddr)
		return err == nil
	}
	require.True(t, answers())
	n.down(kafkaAddr, true)
	require.False(t, answers())
	n.down(kafkaAddr, true)
	n.down(kafkaAddr, false)
	require.False(t, answers())
	n.down(kafkaAddr, false)
	require.True(t, answers())
}
