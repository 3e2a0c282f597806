package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/base/retry"
)

const (
	// redisStart is the time limit for redis-server to start and load its file.
	redisStart = time.Minute
	// redisEnd is the time limit for redis-server to stop.
	redisEnd = 10 * time.Second
)

type redisServer struct {
	addr, log string
	cmd       *exec.Cmd
	ended     chan struct{} // closed after the process has ended
	err       error         // how it ended
}

// startRedis starts a redis-server whose files and log are in the folder.
func startRedis(ctx context.Context, path, folder string) (*redisServer, error) {
	addr, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	dir := filepath.Join(folder, "redis")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make its folder: %w", err)
	}
	r := &redisServer{addr: addr, log: filepath.Join(folder, "redis.log"), ended: make(chan struct{})}
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make its log: %w", err)
	}
	r.cmd = exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--appendonly", "yes",
		"--save", "", "--maxmemory-policy", "noeviction")
	r.cmd.Stdout, r.cmd.Stderr = log, log
	dieWithParent(r.cmd)
	err = r.cmd.Start()
	if err = errors.Join(err, log.Close()); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	go func() { // close waits until it is closed
		r.err = r.cmd.Wait()
		close(r.ended)
	}()
	return r, nil
}

// await waits until the server answers at addr, the address of its proxy. It returns an error if the server
// ends.
func (r *redisServer) await(ctx context.Context, addr string) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	ctx, cancel := context.WithTimeout(ctx, redisStart)
	defer cancel()
	var last error
	err := retry.Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		select {
		case <-r.ended:
			return false, r.why()
		default:
		}
		last = rdb.Ping(ctx).Err()
		return last == nil, nil
	})
	if err = errors.Join(err, rdb.Close()); err != nil {
		return fmt.Errorf("%s does not answer: %w", r.cmd.Path, errors.Join(err, last))
	}
	return nil
}

// why returns how the server ended and the last line of its log.
func (r *redisServer) why() error {
	said, err := os.ReadFile(r.log)
	if err != nil {
		return fmt.Errorf("it has ended (%w), and its log can't be read: %w", r.err, err)
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	return fmt.Errorf("it has ended (%w); %s ends with %q", r.err, r.log, lines[len(lines)-1])
}

// close stops the server with SIGTERM and waits until it has ended. After patience it kills the server.
func (r *redisServer) close(patience time.Duration) error {
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", r.cmd.Path, err)
	}
	select {
	case <-r.ended: // its log has the messages
		return nil
	case <-time.After(patience):
	}
	err := fmt.Errorf("%s did not end within %s and was killed", r.cmd.Path, patience)
	err = errors.Join(err, r.cmd.Process.Kill())
	<-r.ended
	return err
}

func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}
