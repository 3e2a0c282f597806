package subscriber

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// limited limits a read without a deadline. kafka-go sets none while a Reader looks for the leader of its partition, so
// it would wait forever for a broker that never answers.
type limited struct {
	net.Conn
	limit time.Duration
	bound atomic.Bool // kafka-go has set a deadline
}

// dialLimited opens a connection of kafka-go's Reader or ConsumerGroup.
func (c *Config) dialLimited(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &limited{Conn: conn, limit: c.RequestTimeout}, nil
}

// Read implements net.Conn.
func (l *limited) Read(b []byte) (int, error) {
	if !l.bound.Load() {
		if err := l.Conn.SetReadDeadline(time.Now().Add(l.limit)); err != nil {
			return 0, err
		}
	}
	return l.Conn.Read(b)
}

// SetDeadline implements net.Conn.
func (l *limited) SetDeadline(t time.Time) error {
	l.bound.Store(!t.IsZero())
	return l.Conn.SetDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (l *limited) SetReadDeadline(t time.Time) error {
	l.bound.Store(!t.IsZero())
	return l.Conn.SetReadDeadline(t)
}
