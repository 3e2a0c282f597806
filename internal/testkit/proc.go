package testkit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = 60 * time.Second
	startTries   = 5
	pollEvery    = 10 * time.Millisecond
)

// freePorts returns n free ports of loopback. They are below the range for outgoing connections (32768 and up), so
// that a restarted server finds its port free again. A server may listen on its port long after this call. So no
// port is returned twice within a short time, not even to the tests of another package.
func freePorts(n int) ([]int, error) {
	const low, high = 20000, 32000
	var last error
	for range 100 {
		turn, err := nextPorts(n)
		if err != nil {
			return nil, err
		}
		ports := make([]int, n)
		for i := range ports {
			ports[i] = low + (turn+i)%(high-low)
		}
		if last = portsFree(ports); last == nil {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("find %d free ports from %d to %d: %w", n, low, high, last)
}

// nextPorts adds n to a counter that all test processes of this machine share. It returns the previous value.
func nextPorts(n int) (int, error) {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("hongbao-test-ports-%d", os.Getuid())), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return 0, fmt.Errorf("open the counter of ports: %w", err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil { // the lock lasts until the file is closed
		return 0, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	text := make([]byte, 8)
	if _, err := f.ReadAt(text, 0); err != nil { // a new file: begin with a random value
		binary.BigEndian.PutUint64(text, uint64(rand.IntN(12_000)))
	}
	next := binary.BigEndian.Uint64(text)
	_, err = f.WriteAt(binary.BigEndian.AppendUint64(nil, next+uint64(n)), 0)
	return int(next % (1 << 31)), err
}

func portsFree(ports []int) error {
	for _, port := range ports {
		l, err := net.Listen("tcp", loopback(port))
		if err != nil {
			return fmt.Errorf("try a port: %w", err)
		}
		if err := l.Close(); err != nil {
			return fmt.Errorf("release a port: %w", err)
		}
	}
	return nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// poll calls f until f returns nil. It stops early when ctx or the process ends. p may be nil.
func poll(ctx context.Context, p *process, f func(context.Context) error) error {
	var done <-chan struct{}
	if p != nil {
		done = p.done
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := f(try)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", ctx.Err(), err)
		case <-done:
			return fmt.Errorf("the process has ended (%w); last: %w", ended(p.err), err)
		case <-tick.C:
		}
	}
}

func ended(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// frozen returns an error unless all threads of the processes are stopped. On a system without /proc it returns
// nil.
func frozen(pids ...int) error {
	for _, pid := range pids {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return fmt.Errorf("list threads: %w", err)
		}
		for _, name := range stats {
			text, err := os.ReadFile(name)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				continue // the thread has ended
			}
			if err != nil {
				return fmt.Errorf("look at a thread: %w", err)
			}
			// The format is "pid (name) state ...", and the name may contain any characters.
			_, after, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
			if state, _, _ := strings.Cut(after, " "); state != "T" && state != "t" && state != "Z" && state != "X" {
				return fmt.Errorf("%s: it is in state %q", name, state)
			}
		}
	}
	return nil
}

// children returns the direct children of a process. On a system without /proc it returns none.
func children(pid int) []int {
	id := strconv.Itoa(pid)
	b, err := os.ReadFile(filepath.Join("/proc", id, "task", id, "children"))
	if err != nil {
		return nil
	}
	var kids []int
	for _, f := range strings.Fields(string(b)) {
		if kid, err := strconv.Atoi(f); err == nil {
			kids = append(kids, kid)
		}
	}
	return kids
}

// waitGone waits until a killed process has ended. A zombie that was not reaped yet also counts as ended.
func waitGone(pid int, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	return poll(ctx, nil, func(context.Context) error {
		if alive(pid) {
			return fmt.Errorf("process %d was killed but still exists", pid)
		}
		return nil
	})
}

func alive(pid int) bool {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return !os.IsNotExist(err)
	}
	// The format is "pid (name) state ...", and the name may contain any characters.
	_, state, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ")
	return !strings.HasPrefix(state, "Z")
}

// program returns the path of a program in PATH, or else in one of the folders, which are patterns of
// filepath.Glob. The last match of a pattern is used.
func program(name string, folders ...string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, folder := range folders {
		found, err := filepath.Glob(filepath.Join(folder, name))
		if err == nil && len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("no %s in PATH%s: %w", name, strings.Join(append([]string{""}, folders...), " or "), errNoProgram)
}

// unprivileged returns a user for servers that refuse to run as root. It returns nil, which means the present user,
// unless this process runs as root.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("root may not run PostgreSQL or MariaDB and there is no user postgres or nobody: run " +
		"scripts/setup.sh")
}

// repoRoot returns the folder with go.mod. It derives that from the path of this source file when it was
// compiled.
func repoRoot() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..")
	if !ok || !filepath.IsAbs(file) {
		return "", fmt.Errorf("the repository's folder is unknown to this binary (built with -trimpath): set " +
			"HONGBAO_KAFKA_DIR")
	}
	return root, nil
}
