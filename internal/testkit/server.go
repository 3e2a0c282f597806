package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// errStranger means that another server listens on the port.
var errStranger = errors.New("another server answers")

// server has the common fields and methods of all servers. Its methods are safe for concurrent use.
type server struct {
	name    string
	dir     string
	keep    bool // the caller owns dir: Close stops the server with SIGTERM and keeps the folder
	cred    *syscall.Credential
	ready   func(context.Context) error
	ports   int                                // number of ports
	prepare func(ports []int) (command, error) // writes the configuration

	mu   sync.Mutex
	kit  *kit
	cmd  command
	proc *process
}

// launch starts the server for the first time. If another process has taken a port, it retries with other
// ports.
func (s *server) launch(ctx context.Context) error {
	k, err := openKit()
	if err != nil {
		return err
	}
	s.kit = k
	if s.dir == "" {
		if s.dir, err = k.folder(s.name, s.cred); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		ports, err := freePorts(s.ports)
		if err != nil {
			return errors.Join(err, s.remove())
		}
		if s.cmd, err = s.prepare(ports); err != nil {
			return errors.Join(fmt.Errorf("write the configuration of %s: %w", s.name, err), s.remove())
		}
		err = s.run(ctx)
		if err == nil {
			return nil
		}
		taken := errors.Is(err, errStranger) || portsFree(ports) != nil
		if !taken || try == startTries || ctx.Err() != nil {
			return errors.Join(err, s.remove())
		}
	}
}

// run starts the process and waits until it answers. If the process does not answer, run kills it.
func (s *server) run(ctx context.Context) error {
	p, err := s.kit.start(s.cmd)
	if err != nil {
		return err
	}
	s.setProc(p)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := poll(ctx, p, s.ready); err != nil {
		err = fmt.Errorf("start %s in %s: %w; the end of its log:\n%s", s.name, s.dir, err, logTail(s.dir))
		return errors.Join(err, p.kill())
	}
	return nil
}

func (s *server) setProc(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc = p
}

func (s *server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// Pid returns the process id of the current process.
func (s *server) Pid() int { return s.current().pid }

// Dir returns the server's folder, which has the data, the configuration and server.log.
func (s *server) Dir() string { return s.dir }

// Kill kills the server with SIGKILL. It returns when the process has ended. The server's files remain. If the
// server has already ended, Kill does nothing.
func (s *server) Kill() error { return s.current().kill() }

// Restart starts the server again with the same port, folder and configuration. It returns when the server
// answers. A running server is killed first.
func (s *server) Restart() error {
	if err := s.Kill(); err != nil {
		return fmt.Errorf("restart %s: %w", s.name, err)
	}
	return s.run(context.Background())
}

// Stop freezes the server with SIGSTOP. Its connections stay open, but it answers nothing until Cont. Stop
// returns when all threads are stopped, because threads may still answer for a moment after the signal.
func (s *server) Stop() error {
	p := s.current()
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return poll(ctx, p, func(context.Context) error { return errors.Join(frozen(p.pid), frozen(children(p.pid)...)) })
}

// Cont resumes a frozen server.
func (s *server) Cont() error { return s.current().signal(syscall.SIGCONT) }

// Close kills the server and removes its folder. If the caller owns the folder, Close stops the server with
// SIGTERM and keeps the folder.
func (s *server) Close() error {
	if s.keep {
		if err := s.shutdown(); err != nil {
			return err
		}
	}
	return errors.Join(s.Kill(), s.remove())
}

// shutdown stops the server with SIGTERM. After 10 seconds it kills the server.
func (s *server) shutdown() error {
	p := s.current()
	if p.ended() {
		return nil
	}
	if err := syscall.Kill(p.pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop %s: %w", s.name, err)
	}
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	select {
	case <-p.done:
		return nil
	case <-limit.C:
		return errors.Join(fmt.Errorf("stop %s in %s: still running after 10 s; killed", s.name, s.dir), p.kill())
	}
}

func (s *server) remove() error {
	if s.keep {
		return nil
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove the folder of %s: %w", s.name, err)
	}
	return nil
}
