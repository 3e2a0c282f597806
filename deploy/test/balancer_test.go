package test

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// balancer does for servers what a Service does for pods: it distributes new connections over the ready pods in turn,
// and keeps existing connections where they are. It uses the chart's readiness probe.
type balancer struct {
	listener net.Listener
	probe    *corev1.Probe
	mu       sync.Mutex
	pods     map[*server]int // consecutive failures of the probe
	next     atomic.Int64
	links    sync.WaitGroup
}

func newBalancer(t *testing.T, probe *corev1.Probe) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &balancer{listener: l, probe: probe, pods: map[*server]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	var both sync.WaitGroup
	both.Go(b.accept)
	both.Go(func() { b.watch(ctx) })
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		both.Wait()
		b.links.Wait()
	})
	return b
}

func (b *balancer) add(s *server)    { b.mu.Lock(); b.pods[s] = 0; b.mu.Unlock() }
func (b *balancer) remove(s *server) { b.mu.Lock(); delete(b.pods, s); b.mu.Unlock() }

func (b *balancer) watch(ctx context.Context) {
	tick := time.NewTicker(time.Duration(b.probe.PeriodSeconds) * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, s := range b.all() {
			good := ready(ctx, s.ops)
			b.mu.Lock()
			if _, there := b.pods[s]; there && good {
				b.pods[s] = 0
			} else if there {
				b.pods[s]++
			}
			b.mu.Unlock()
		}
	}
}

func (b *balancer) all() (pods []*server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.pods {
		pods = append(pods, s)
	}
	return pods
}

// pick returns the next pod that is ready; nil if no pod is ready.
func (b *balancer) pick() *server {
	b.mu.Lock()
	defer b.mu.Unlock()
	var good []*server
	for s, failures := range b.pods {
		if failures < int(b.probe.FailureThreshold) {
			good = append(good, s)
		}
	}
	if len(good) == 0 {
		return nil
	}
	return good[int(b.next.Add(1))%len(good)]
}

func (b *balancer) accept() {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return // the test is over
		}
		b.links.Go(func() { b.link(c) })
	}
}

func (b *balancer) link(c net.Conn) {
	defer c.Close()
	s := b.pick()
	if s == nil {
		return
	}
	up, err := net.Dial("tcp", s.public)
	if err != nil {
		return
	}
	defer up.Close()
	var both sync.WaitGroup
	copyTo := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)           // ends when the connection is closed
		_ = to.(*net.TCPConn).CloseWrite() //nolint:forcetypeassert // both are TCP
	}
	both.Go(func() { copyTo(up, c) })
	both.Go(func() { copyTo(c, up) })
	both.Wait()
}
