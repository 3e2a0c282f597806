package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Environ returns this process's environment without Hongbao's variables, plus the given ones. Later ones win.
func Environ(more ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HONGBAO_") {
			env = append(env, v)
		}
	}
	return append(env, more...)
}

// FreeAddr returns an address on loopback on which no process listens.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return loopback(must(t, func() ([]int, error) { return freePorts(1) })[0])
}

// Folder creates a folder for data that the tests of this process share. CloseAll removes it.
func Folder(name string) (string, error) {
	k, err := openKit()
	if err != nil {
		return "", err
	}
	return k.folder(name, nil)
}

// Output collects the output of a program. It can be read while the program still writes.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Program is a running program. When the tests' process ends, its process group is killed, however that process ends.
type Program struct {
	Cmd      *exec.Cmd
	Out, Err Output
	Done     chan struct{} // closed when the program has ended

	t testing.TB
}

// StartProgram starts a program in its own process group and collects its output. If the program still runs
// when the test ends, it is killed.
func StartProgram(t testing.TB, cmd *exec.Cmd) *Program {
	t.Helper()
	p := &Program{Cmd: cmd, t: t}
	if err := must(t, openKit).run(p); err != nil {
		t.Fatalf("testkit: %v", err)
	}
	t.Cleanup(p.Kill)
	return p
}

// run starts a program and announces it to the watchdog.
func (k *kit) run(p *Program) error {
	p.Done = make(chan struct{})
	p.Cmd.Stdout, p.Cmd.Stderr = &p.Out, &p.Err
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.Cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Cmd.Path, err)
	}
	k.report("run", p.Cmd.Process.Pid)
	go func() {
		defer close(p.Done)
		_ = p.Cmd.Wait() // ProcessState has the result
		k.report("gone", p.Cmd.Process.Pid)
	}()
	return nil
}

// Signal sends a signal. It is no error if the program has already ended.
func (p *Program) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("testkit: signal %v to %v: %v", s, p.Cmd.Args, err)
	}
}

// Kill kills the program and waits until it has ended.
func (p *Program) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.Done
}

// Ended reports whether the program has ended.
func (p *Program) Ended() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// Wait waits until the program has ended and returns its exit code. After the duration most it fails the test.
func (p *Program) Wait(most time.Duration) int {
	p.t.Helper()
	limit := time.NewTimer(most)
	defer limit.Stop()
	select {
	case <-p.Done:
	case <-limit.C:
		p.Kill()
		p.t.Fatalf("%v did not end within %v; it said:\n%s\n%s", p.Cmd.Args[1:], most, &p.Out, &p.Err)
	}
	return p.Cmd.ProcessState.ExitCode()
}

// Says waits until the program's log on standard error contains a text.
func (p *Program) Says(most time.Duration, text string) {
	p.t.Helper()
	defer func() {
		if p.t.Failed() {
			p.t.Logf("it said: %s", p.Err.String())
		}
	}()
	Eventually(p.t, most, func() bool { return strings.Contains(p.Err.String(), text) }, "%v says %q", p.Cmd.Args[1:], text)
}
