package testkit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childEnv makes the test binary execute childWork instead of the tests.
const childEnv = "HONGBAO_TESTKIT_CHILD"

func TestMain(m *testing.M) {
	if work := os.Getenv(childEnv); work != "" {
		if err := childWork(work); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	Main(m)
}

// childWork prints the folder, starts servers, prints "ready" and waits for a line.
func childWork(work string) error {
	k, err := openKit()
	if err != nil {
		return err
	}
	fmt.Println(k.dir)
	ctx := context.Background()
	redis, err := sharedRedis.get()
	if err != nil {
		return err
	}
	if work == "all" {
		if err := redis.Stop(); err != nil { // even a frozen server must be killed
			return err
		}
		p, err := sharedPostgres.get()
		if err != nil {
			return err
		}
		if err := p.exec(ctx, "SELECT 1"); err != nil {
			return err
		}
		m, err := sharedMariaDB.get()
		if err != nil {
			return err
		}
		if err := m.exec(ctx, "SELECT 1"); err != nil {
			return err
		}
		if _, err := sharedKafka.get(); err != nil {
			return err
		}
		sleep := exec.Command("sleep", "600")
		sleep.Dir = k.dir
		if err := k.run(&Program{Cmd: sleep}); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if err := CloseAll(); err != nil {
		return err
	}
	again, err := sharedRedis.get()
	if err != nil {
		return err
	}
	if again == redis {
		return fmt.Errorf("after CloseAll the shared Redis is still the one that was stopped")
	}
	fmt.Println("closed")
	return nil // do not close the second Redis
}

// child is a process of this test binary that starts its own servers.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	dir string
}

func startChild(t *testing.T, work string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+work)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // the child has ended unless the test failed
	c := &child{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	c.dir = c.line(t)
	return c
}

func (c *child) line(t *testing.T) string {
	t.Helper()
	require.True(t, c.out.Scan(), "the child printed no further line: %v", c.out.Err())
	return c.out.Text()
}

// processesOf lists the processes that work in dir or have it in their command line: servers and the watchdog.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	require.NotEmpty(t, all, "this test needs /proc")
	var found []string
	for _, proc := range all {
		cwd, _ := os.Readlink(proc + "/cwd") // the process has ended or is a zombie
		line, _ := os.ReadFile(proc + "/cmdline")
		if strings.HasPrefix(cwd, dir) || strings.Contains(string(line), dir) {
			found = append(found, fmt.Sprintf("%s %s %q", proc, cwd, line))
		}
	}
	return found
}

func requireNothingLeft(t *testing.T, dir string) {
	t.Helper()
	EventuallyOK(t, 20*time.Second, func() error {
		if left := processesOf(t, dir); len(left) > 0 {
			return fmt.Errorf("left: %s", strings.Join(left, "\n"))
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			return fmt.Errorf("the folder %s still exists: %w", dir, ended(err))
		}
		return nil
	}, "nothing is left of the child")
}

func TestNothingIsLeftOfAKilledProcess(t *testing.T) {
	needsServer(t)
	c := startChild(t, "all")
	require.Equal(t, "ready", c.line(t))
	// expected: Redis, the postmaster with at least one helper, Kafka, the watchdog and a program
	all := processesOf(t, c.dir)
	require.GreaterOrEqual(t, len(all), 6)
	require.Contains(t, strings.Join(all, "\n"), "sleep")
	require.NoError(t, c.cmd.Process.Kill())
	require.Error(t, c.cmd.Wait())
	requireNothingLeft(t, c.dir)
}

func TestNothingIsLeftOfAProcessKilledWhileItStartsServers(t *testing.T) {
	needsServer(t)
	for range 10 {
		c := startChild(t, "redis")
		// The log is created just before the server's process starts. Poll without a pause, so that the kill hits
		// the moment between the two.
		log, deadline := filepath.Join(c.dir, "redis-1", logName), time.Now().Add(20*time.Second)
		for _, err := os.Stat(log); err != nil; _, err = os.Stat(log) {
			require.True(t, time.Now().Before(deadline), "the child starts no server: %v", err)
		}
		require.NoError(t, c.cmd.Process.Kill())
		require.Error(t, c.cmd.Wait())
		requireNothingLeft(t, c.dir)
	}
}

func TestCloseAllStopsAndAllowsANewBeginning(t *testing.T) {
	needsServer(t)
	c := startChild(t, "redis")
	require.Equal(t, "ready", c.line(t))
	require.GreaterOrEqual(t, len(processesOf(t, c.dir)), 2)
	_, err := fmt.Fprintln(c.in)
	require.NoError(t, err)
	require.Equal(t, "closed", c.line(t))
	requireNothingLeft(t, c.dir)
	require.NoError(t, c.cmd.Wait())
}
