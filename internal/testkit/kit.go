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

// watchdogScript reads one line an event until every write end of its input is closed. Then it kills the process
// groups that are still alive, and the children that left their group, as PostgreSQL's do. Last, it removes the
// folder $1. It knows a group before the group's server exists (see launcher), so no server is ever unwatched.
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

// launcher reports its own process group to the watchdog, closes the pipe and becomes the server.
const launcher = `echo "run $$" >&3; exec 3>&-; exec "$@"`

// kit is the state of the process: one folder, one watchdog, the servers.
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

// openKit returns the process's kit. The first call creates it.
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
	// Servers that run as another user must be able to enter the folder.
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

// CloseAll stops every server of the process and removes their folders. Servers that were returned before are dead
// then. Later calls start new servers.
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

// folder creates a new folder for a server with the name. cred, if any, owns it.
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

// command is the command line of a server.
type command struct {
	path string
	args []string
	env  []string // nil: the environment of this process
	dir  string   // working folder, with the log
	cred *syscall.Credential
}

// process is one run of a server.
type process struct {
	kit  *kit
	pid  int
	done chan struct{} // closed when the process has ended and was reaped
	err  error         // the result; read it after done
}

const logName = "server.log"

// start runs c in a session of its own. Its output goes to server.log in c.dir.
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

// wait reaps the process, and removes it from the watchdog before another process can get its number.
func (p *process) wait(cmd *exec.Cmd) {
	defer close(p.done)
	p.err = cmd.Wait()
	p.kit.report("gone", p.pid)
	p.kit.mu.Lock()
	defer p.kit.mu.Unlock()
	delete(p.kit.running, p) // works on a nil map too
}

// report reports to the watchdog that a process group runs, or is gone.
func (k *kit) report(what string, pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running != nil {
		_, _ = fmt.Fprintf(k.pipe, "%s %d\n", what, pid) // fails only when the watchdog is dead
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

// signal sends sig to the process group and to the children that left it.
func (p *process) signal(sig syscall.Signal) error {
	if p.ended() {
		return fmt.Errorf("signal %v to process %d: it has ended", sig, p.pid)
	}
	for _, child := range children(p.pid) {
		_ = syscall.Kill(child, sig) // the child may have ended since
	}
	if err := syscall.Kill(-p.pid, sig); err != nil {
		return fmt.Errorf("signal %v to process %d: %w", sig, p.pid, err)
	}
	return nil
}

// kill ends the process with SIGKILL and returns when it and its children are gone. A dead process is no error.
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

// logTail returns the end of the log in dir, for errors.
func logTail(dir string) string {
	const size = 4 << 10
	f, err := os.Open(filepath.Join(dir, logName))
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > size {
		_, _ = f.Seek(-size, io.SeekEnd) // at worst the beginning is shown
	}
	b, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil {
		return err.Error()
	}
	return string(b)
}
