package testkit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// watchdogScript reads events, one per line, until its input is closed by all writers. Then it kills the process
// groups that are still alive, and children that left their group, as PostgreSQL's do. Last, it removes the
// folder $1. The launcher announces each group before it starts the server, so every server is watched.
const watchdogScript = `
trap '' HUP INT TERM QUIT
groups=" "
while read -r what id; do
	case $what in
	run) groups="$groups$id " ;;
	gone) groups="${groups%% $id *} ${groups#* $id }" ;;
	esac
done
for id in $groups; do
	children=$(cat "/proc/$id/task/$id/children" 2>/dev/null)
	kill -KILL "-$id" $children 2>/dev/null
done
tries=0
while [ $tries -lt 50 ]; do
	tries=$((tries + 1))
	rm -rf "$1" 2>/dev/null
	[ ! -e "$1" ] && exit 0
	sleep 0.1
done
exit 1
`

// launcher announces its process group to the watchdog, closes the pipe and executes the server.
const launcher = `echo "run $$" >&3; exec 3>&-; exec "$@"`

// kit has the servers of this process, their common folder and the watchdog.
type kit struct {
	dir      string
	watchdog *exec.Cmd
	pipe     *os.File

	mu      sync.Mutex
	next    int
	running map[*process]struct{}
}

var (
	kitMu   sync.Mutex
	theKit  *kit
	errDone = errors.New("testkit is stopped")
)

// openKit returns the kit of this process. The first call creates it.
func openKit() (*kit, error) {
	kitMu.Lock()
	defer kitMu.Unlock()
	if theKit != nil {
		return theKit, nil
	}
	k, err := newKit()
	if err != nil {
		return nil, err
	}
	theKit = k
	return k, nil
}

func newKit() (*kit, error) {
	dir, err := os.MkdirTemp("", "hongbao-testkit-")
	if err != nil {
		return nil, fmt.Errorf("make the servers' folder: %w", err)
	}
	// Servers that run as other users must be able to enter the folder.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, errors.Join(fmt.Errorf("open the servers' folder: %w", err), os.RemoveAll(dir))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the watchdog's pipe: %w", err), os.RemoveAll(dir))
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "testkit-watchdog", dir)
	cmd.Stdin = r
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the watchdog: %w", err), w.Close(), os.RemoveAll(dir))
	}
	return &kit{dir: dir, watchdog: cmd, pipe: w, running: map[*process]struct{}{}}, nil
}

// CloseAll stops all servers of the process and removes their folders. Servers returned by earlier calls no longer
// work. Later calls start new servers.
func CloseAll() error {
	kitMu.Lock()
	defer kitMu.Unlock()
	if theKit == nil {
		return nil
	}
	k := theKit
	theKit = nil
	forgetShared()
	return k.close()
}

func (k *kit) close() error {
	k.mu.Lock()
	running := k.running
	k.running = nil
	k.mu.Unlock()
	var errs []error
	for p := range running {
		errs = append(errs, p.kill())
	}
	errs = append(errs, k.pipe.Close())
	if err := k.watchdog.Wait(); err != nil {
		errs = append(errs, fmt.Errorf("the watchdog: %w", err), os.RemoveAll(k.dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop the servers in %s: %w", k.dir, err)
	}
	return nil
}

// folder creates a new folder with a name and a number. If cred is not nil, that user owns the folder.
func (k *kit) folder(name string, cred *syscall.Credential) (string, error) {
	k.mu.Lock()
	k.next++
	dir := filepath.Join(k.dir, name+"-"+strconv.Itoa(k.next))
	k.mu.Unlock()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("make a folder for %s: %w", name, err)
	}
	if cred != nil {
		if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return "", fmt.Errorf("give %s its folder: %w", name, err)
		}
	}
	return dir, nil
}

type command struct {
	path string
	args []string
	env  []string // nil: the environment of this process
	dir  string   // the working folder, which also gets the log
	cred *syscall.Credential
}

// process is one run of a server program.
type process struct {
	kit  *kit
	pid  int
	done chan struct{} // closed after the process has ended and was reaped
	err  error         // the exit error; valid after done is closed
}

const logName = "server.log"

// start starts c in its own session. The output goes to server.log in c.dir.
func (k *kit) start(c command) (*process, error) {
	log, err := os.OpenFile(filepath.Join(c.dir, logName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", c.path, err)
	}
	defer log.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running == nil {
		return nil, fmt.Errorf("start %s: %w", c.path, errDone)
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", launcher, "sh", c.path}, c.args...)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, c.env, log, log
	cmd.ExtraFiles = []*os.File{k.pipe}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: c.cred}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.path, err)
	}
	p := &process{kit: k, pid: cmd.Process.Pid, done: make(chan struct{})}
	k.running[p] = struct{}{}
	go p.wait(cmd)
	return p, nil
}

// wait reaps the process. It removes the process from the watchdog's list before the PID can be reused.
func (p *process) wait(cmd *exec.Cmd) {
	defer close(p.done)
	p.err = cmd.Wait()
	p.kit.report("gone", p.pid)
	p.kit.mu.Lock()
	defer p.kit.mu.Unlock()
	delete(p.kit.running, p) // also works if the map is nil
}

// report tells the watchdog that a process group runs or has ended.
func (k *kit) report(what string, pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running != nil {
		_, _ = fmt.Fprintf(k.pipe, "%s %d\n", what, pid) // fails only if the watchdog is dead
	}
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal sends sig to the process group, and to children that left the group.
func (p *process) signal(sig syscall.Signal) error {
	if p.ended() {
		return fmt.Errorf("signal %v to process %d: it has ended", sig, p.pid)
	}
	for _, child := range children(p.pid) {
		_ = syscall.Kill(child, sig) // the child may have ended in the meantime
	}
	if err := syscall.Kill(-p.pid, sig); err != nil {
		return fmt.Errorf("signal %v to process %d: %w", sig, p.pid, err)
	}
	return nil
}

// kill kills the process and waits until it and its children have ended. It returns nil if the process has
// already ended.
func (p *process) kill() error {
	if p.ended() {
		return nil
	}
	kids := children(p.pid)
	err := p.signal(syscall.SIGKILL)
	if err != nil && p.ended() {
		err = nil
	}
	if err != nil {
		return err
	}
	<-p.done
	deadline := time.Now().Add(10 * time.Second)
	for _, kid := range kids {
		if err := waitGone(kid, deadline); err != nil {
			return err
		}
	}
	return nil
}

// logTail returns the last part of the log in dir, for error messages.
func logTail(dir string) string {
	const size = 4 << 10
	f, err := os.Open(filepath.Join(dir, logName))
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > size {
		_, _ = f.Seek(-size, io.SeekEnd) // if this fails, the first part of the log is returned
	}
	b, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil {
		return err.Error()
	}
	return string(b)
}
