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

// errStranger reports that another server answers on the port.
var errStranger = errors.New("another server answers")

// server has the fields and methods that all servers share. Its methods are safe for concurrent use.
type server struct {
	name    string
	dir     string
	keep    bool // dir belongs to the caller: stop gently and keep it
	cred    *syscall.Credential
	ready   func(context.Context) error
	ports   int                                // how many it listens on
	prepare func(ports []int) (command, error) // writes the configuration

	mu   sync.Mutex
	kit  *kit
	cmd  command
	proc *process
}

// launch starts the server for the first time. It takes another port if another process was quicker.
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

// run starts the process and waits until it answers. If it does not answer, run kills it.
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

// Pid returns the process id of the server's present run.
func (s *server) Pid() int { return s.current().pid }

// Dir returns the server's folder, with its data, its configuration and its server.log.
func (s *server) Dir() string { return s.dir }

// Kill ends the server with SIGKILL. It returns when the server is gone. The files of the server remain. A second
// call does nothing.
func (s *server) Kill() error { return s.current().kill() }

// Restart starts the server again on the same port, with the same folder and configuration. It returns when the
// server answers. A server that still runs is killed first.
func (s *server) Restart() error {
	if err := s.Kill(); err != nil {
		return fmt.Errorf("restart %s: %w", s.name, err)
	}
	return s.run(context.Background())
}

// Stop freezes the server with SIGSTOP: until Cont its connections stay open and it answers nothing. Stop returns
// when all threads are stopped, because they may still answer for a moment after the signal.
func (s *server) Stop() error {
	p := s.current()
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return poll(ctx, p, func(context.Context) error { return errors.Join(frozen(p.pid), frozen(children(p.pid)...)) })
}

// Cont lets a frozen server continue.
func (s *server) Cont() error { return s.current().signal(syscall.SIGCONT) }

// Close ends the server and removes its folder. A folder of the caller's stays, and its server stops gently.
func (s *server) Close() error {
	if s.keep {
		if err := s.shutdown(); err != nil {
			return err
		}
	}
	return errors.Join(s.Kill(), s.remove())
}

// shutdown asks the server to end and waits up to 10 seconds.
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
		return errors.Join(fmt.Errorf("stop %s in %s: still there after 10 s; killed", s.name, s.dir), p.kill())
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
