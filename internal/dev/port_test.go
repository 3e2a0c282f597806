package dev

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/front/web"
)

// The error about a port that is in use names the flag of `hongbao dev`, and no knob that dev itself sets.
func TestErrorOfAPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = web.Listen(t.Context(), l.Addr().String(), "serve.ops_listen")
	err = ownPorts(fmt.Errorf("serve: %w", err))
	require.ErrorContains(t, err, "--listen HOST:PORT")
	require.NotContains(t, err.Error(), "serve.ops_listen")
}
