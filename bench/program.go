package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// programs runs commands of hongbao in one deployment.
type programs struct{ env []string }

// programsOf returns the commands of a deployment with the Redis and the broker of b, a ledger in PostgreSQL, and a topic.
func programsOf(b *publishBench, dsn, topic string) (p programs) {
	for knob, value := range map[string]string{"DEPLOYMENT_ID": "bench", "REDIS_ADDRS": b.fixture.server.Addr,
		"LEDGER_DRIVER": "postgres", "LEDGER_DSN": dsn, "KAFKA_BROKERS": b.broker.Addr, "KAFKA_TOPIC": topic,
		"KAFKA_PARTITIONS": strconv.Itoa(partitions), "KAFKA_CREATE_TOPIC": "true", "KAFKA_REPLICATION_FACTOR": "1"} {
		p.env = append(p.env, "HONGBAO_"+knob+"="+value)
	}
	return p
}

// run runs a command to its end, and returns its output and its peak memory in MB. Rusage is no use here: its peak
// includes the memory of the parent process before exec.
func (p *programs) run(ctx context.Context, args ...string) (out []byte, peak float64, err error) {
	cmd, said, err := p.command(ctx, nil, args...)
	if err != nil {
		return nil, 0, err
	}
	var text bytes.Buffer
	cmd.Stdout = &text
	if err := cmd.Start(); err != nil {
		return nil, 0, fmt.Errorf("start %s: %w", cmd, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		var kB float64
		if _, err := fmt.Sscanf(field(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid), "VmHWM"), "%g kB", &kB); err == nil {
			peak = max(peak, kB*1024/1e6)
		}
		select {
		case err := <-ended:
			if err != nil {
				err = fmt.Errorf("%s: %w: %s", cmd, err, said)
			}
			return text.Bytes(), peak, err
		default:
			retry.Pause(ctx, 20*time.Millisecond)
		}
	}
}

// start starts a command, and waits until it is ready, which it says on its ops listener. The function stop ends it in
// order.
func (p *programs) start(ctx context.Context, ops string, before []string, args ...string) (stop func() error, err error) {
	cmd, said, err := p.command(ctx, before, args...)
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			return fmt.Errorf("%s: %w: %s", cmd, err, said)
		}
		return nil
	}
	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = retry.Poll(limit, 20*time.Millisecond, func() (bool, error) {
		select {
		case err := <-ended:
			ended <- err
			return false, fmt.Errorf("%s ended: %w: %s", cmd, err, said)
		default:
		}
		return isReady(limit, ops), nil
	})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

func isReady(ctx context.Context, ops string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ops+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil { // it does not listen yet
		return false
	}
	return res.Body.Close() == nil && res.StatusCode == http.StatusOK
}

// command returns a command of hongbao, behind another program if before is not empty, and its standard error.
func (p *programs) command(ctx context.Context, before []string, args ...string) (*exec.Cmd, *bytes.Buffer, error) {
	bin, err := hongbaoBin()
	if err != nil {
		return nil, nil, err
	}
	line := append(append(before, bin), args...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env, cmd.Dir = append(os.Environ(), p.env...), filepath.Dir(bin)
	said := &bytes.Buffer{}
	cmd.Stderr = said
	return cmd, said, nil
}

// freeAddress returns an address on which nothing listens.
func freeAddress(ctx context.Context) (string, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
