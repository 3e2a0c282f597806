package virtual

import (
	"context"
	"fmt"
	"net"
)

// LoneRedis is a Redis as histories have it, without a history and without faults: a test compares it with a real one.
type LoneRedis struct {
	server *Redis
	client *Proc
}

// NewLoneRedis starts a LoneRedis.
func NewLoneRedis() (*LoneRedis, error) {
	n := NewNet(1, ListOf(nil), func(_, _ string) {}, nil)
	s, err := NewRedis(n, 1)
	if err != nil {
		return nil, fmt.Errorf("start a simulated redis: %w", err)
	}
	return &LoneRedis{s, n.NewProc("test")}, nil
}

// Dial connects to the server, whatever the address.
func (r *LoneRedis) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return r.client.Dial(ctx, network, RedisAddr)
}

// SetFull says whether the server is out of memory from now on.
func (r *LoneRedis) SetFull(full bool) { r.server.SetFull(full) }

// Close ends the server.
func (r *LoneRedis) Close() { r.server.Close() }
