package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// demoEnv returns an environment with an empty temporary folder, so that the test can check what the demo leaves
// behind.
func demoEnv(t *testing.T, more ...string) (tmp string, env []string) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	tmp = t.TempDir()
	return tmp, append([]string{"TMPDIR=" + tmp, "HONGBAO_REDIS_ADDRS=127.0.0.1:1"}, more...)
}

// descendants returns the processes whose command line, environment or process group refers to the demo.
func descendants(t *testing.T, tmp string, group int) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	var found []string
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		require.NoError(t, err)
		line, _ := os.ReadFile(dir + "/cmdline") // the process may have ended
		env, _ := os.ReadFile(dir + "/environ")
		stat, _ := os.ReadFile(dir + "/stat")
		if strings.Contains(string(stat), ") Z ") || pid == os.Getpid() || len(line) == 0 {
			continue
		}
		of, err := syscall.Getpgid(pid)
		if strings.Contains(string(line)+string(env), tmp) || err == nil && of == group {
			found = append(found, fmt.Sprintf("%d %s", pid, strings.ReplaceAll(string(line), "\x00", " ")))
		}
	}
	return found
}

// nothingLeft waits until the demo has left neither files nor processes.
func nothingLeft(t *testing.T, tmp string, group int) {
	t.Helper()
	testkit.EventuallyOK(t, 30*time.Second, func() error {
		left, err := os.ReadDir(tmp)
		if found := descendants(t, tmp, group); err != nil || len(left)+len(found) > 0 {
			return fmt.Errorf("left: files %v, processes %q, %v", left, found, err)
		}
		return nil
	}, "nothing is left of the demo")
}

// number returns the n-th number, counted from 0, in the last line of out that begins with prefix.
func number(t *testing.T, out, prefix string, n int) int64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^ *`+prefix+` .*$`).FindAllString(out, -1)
	require.NotEmpty(t, found, "no line %q in\n%s", prefix, out)
	numbers := regexp.MustCompile(`[0-9]+`).FindAllString(found[len(found)-1], -1)
	require.Greater(t, len(numbers), n, found)
	v, err := strconv.ParseInt(numbers[n], 10, 64)
	require.NoError(t, err)
	return v
}

func TestDemo(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		require.True(t, testing.Short(), "redis-server must be on the PATH: run scripts/setup.sh")
	}
	for _, c := range []struct {
		name    string
		path    string
		args    []string
		packets int64
		granted int64
	}{
		{"redis", os.Getenv("PATH"), nil, 10_000, 10_000},
		{"miniredis", "", nil, 10_000, 10_000},
		{"small", os.Getenv("PATH"), []string{"--packets", "100", "--total", "8888", "--users", "1000"}, 100, 100},
		{"smallest", os.Getenv("PATH"), []string{"--packets", "10", "--total", "10", "--users", "100"}, 10, 10},
		{"large", os.Getenv("PATH"), []string{"--packets", "50000", "--users", "60000"}, 50_000, 50_000},
		{"more packets than users", os.Getenv("PATH"), []string{"--packets", "1000", "--users", "300"}, 1000, 300},
		{"small on miniredis", "", []string{"--packets", "100", "--users", "90"}, 100, 90},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tmp, env := demoEnv(t, "PATH="+c.path)
			p := start(t, env, append([]string{"demo"}, c.args...)...)
			r := p.wait(90 * time.Second)
			require.Zero(t, r.code, "%s%s", r.out, r.err)
			require.Empty(t, r.err)
			require.Equal(t, c.path == "", strings.Contains(r.out, "miniredis, in this process"))
			for line, want := range map[string]int64{"granted": c.granted, "settled": c.granted, "published": c.granted,
				"left": c.packets - c.granted} {
				require.Equal(t, want, number(t, r.out, line, 0), r.out)
			}
			require.Contains(t, r.out, "double credits 0, lost 0")
			require.Contains(t, r.out, "duplicates 0, missing 0")
			require.Contains(t, r.out, "audit        AGREES")
			require.EqualValues(t, 1, number(t, r.out, "faults", 1), "the worker was killed: %s", r.out)
			if c.packets >= 10_000 {
				require.Positive(t, number(t, r.out, "faults", 0), "replies were lost: %s", r.out)
				require.Positive(t, number(t, r.out, "faults", 3), "users grabbed twice: %s", r.out)
			}
			took := regexp.MustCompile(`(?m)^all of it +([0-9.]+) s$`).FindStringSubmatch(r.out)
			require.Len(t, took, 2, r.out)
			seconds, err := strconv.ParseFloat(took[1], 64)
			require.NoError(t, err)
			require.Less(t, seconds, 80.0)
			nothingLeft(t, tmp, p.Cmd.Process.Pid)
		})
	}
}

// A demo that a signal stops in the middle leaves neither files nor processes.
func TestStoppedDemoLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		group  bool // signal the process group, as a terminal does
		path   string
		code   int
	}{
		{"SIGINT", syscall.SIGINT, false, os.Getenv("PATH"), 130},
		{"SIGINT by a terminal", syscall.SIGINT, true, os.Getenv("PATH"), 130},
		{"SIGTERM", syscall.SIGTERM, false, "", 143},
		{"SIGKILL", syscall.SIGKILL, false, os.Getenv("PATH"), -1},
		{"SIGKILL on miniredis", syscall.SIGKILL, false, "", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tmp, env := demoEnv(t, "PATH="+c.path)
			p := start(t, env, "demo", "--packets", "20000", "--users", "3000000")
			testkit.Eventually(t, time.Minute, func() bool { return strings.Contains(p.Out.String(), "published ") },
				"the demo has published grants")
			require.NotEmpty(t, descendants(t, tmp, p.Cmd.Process.Pid), "the test finds the demo's processes")
			pid := p.Cmd.Process.Pid
			if c.group {
				pid = -pid
			}
			require.NoError(t, syscall.Kill(pid, c.signal))
			r := p.wait(20 * time.Second)
			require.Equal(t, c.code, r.code, "%s%s", r.out, r.err)
			require.NotContains(t, r.out, "audit  ")
			if c.code > 0 {
				require.Equal(t, "hongbao: demo: ended by a signal: "+c.signal.String()+"; run the same command again\n", r.err)
			}
			nothingLeft(t, tmp, p.Cmd.Process.Pid)
		})
	}
}

// With --keep the demo continues as `hongbao dev` until a signal stops it. Its campaign still has packets.
func TestDemoStays(t *testing.T) {
	t.Parallel()
	tmp, env := demoEnv(t)
	p := start(t, env, "demo", "--packets", "100", "--users", "150", "--keep", "--listen", "127.0.0.1:0")
	testkit.Eventually(t, time.Minute, func() bool { return strings.Contains(p.Out.String(), "Ctrl-C stops all of it") },
		"the demo has ended and keeps running")
	require.Contains(t, p.Out.String(), "audit        AGREES")
	d := &devServer{program: p}
	require.NotContains(t, p.Out.String(), "--data-dir", "the demo has no such flag")
	require.Contains(t, p.Out.String(), "nothing is left")
	d.granted(d.shell(d.printed()[0]))
	d.end(syscall.SIGINT)
	nothingLeft(t, tmp, p.Cmd.Process.Pid)
	r := runProgram(t, env, "demo", "--keep", "--json")
	require.Equal(t, 2, r.code, r.err)
	require.Contains(t, r.err, "leave one of them out")
}
