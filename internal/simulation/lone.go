package simulation

import (
	"context"
	"fmt"
	"net"
)

// LoneRedis is a Redis as histories have it, without a history and without faults: a test compares it with a real one.
type LoneRedis struct {
	server *redisServer
	client *Proc
}

// NewLoneRedis starts a LoneRedis.
func NewLoneRedis() (*LoneRedis, error) {
	n := newNet(1, listOf(nil), &Coverage{}, nil)
	s, err := newRedis(n, 1)
	if err != nil {
		return nil, fmt.Errorf("start a simulated redis: %w", err)
	}
	return &LoneRedis{s, n.proc("test")}, nil
}

// Dial connects to the server, whatever the address.
func (r *LoneRedis) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return r.client.dial(ctx, network, redisAddr)
}

// SetFull says whether the server is out of memory from now on.
func (r *LoneRedis) SetFull(full bool) { r.server.setFull(full) }

// Close ends the server.
func (r *LoneRedis) Close() { r.server.Close() }
