package demo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/hongbao-project/hongbao/internal/app"
)

const folderPrefix = "hongbao-demo-"

// Sweep removes a demo's folder when life ends. The demo starts `hongbao demo-sweep`, so that the folder goes however it
// ends, also by SIGKILL: life is that process's standard input.
func Sweep(folder string, life io.Reader) error {
	if !strings.HasPrefix(filepath.Base(folder), folderPrefix) {
		return app.Usage("%.200q is no demo's folder", folder)
	}
	if _, err := io.Copy(io.Discard, life); err != nil {
		return fmt.Errorf("wait for the demo's end: %w", err)
	}
	// What the demo had started ends with it, but maybe a moment later, and may write until then.
	again := backoff.WithMaxRetries(backoff.NewConstantBackOff(100*time.Millisecond), 50)
	if err := backoff.Retry(func() error { return os.RemoveAll(folder) }, again); err != nil {
		return fmt.Errorf("remove the demo's folder: %w", err)
	}
	return nil
}

// sweeper will remove the demo's folder.
type sweeper struct {
	cmd  *exec.Cmd
	life io.Closer // the demo's end of the pipe; closed by the kernel if the demo is killed
}

// makeFolder makes the demo's folder and starts its sweeper.
func makeFolder() (string, *sweeper, error) {
	dir, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return "", nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	s := &sweeper{}
	self, err := os.Executable()
	if err == nil {
		s.cmd = exec.Command(self, "demo-sweep", dir)
		s.cmd.Env, s.cmd.Stderr, s.cmd.Dir = foreignEnv(), os.Stderr, "/"
		ownSession(s.cmd)
		s.life, err = s.cmd.StdinPipe()
	}
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("start what removes the demo's folder: %w", err), os.RemoveAll(dir))
	}
	return dir, s, nil
}

// sweep removes the folder.
func (s *sweeper) sweep() error {
	if err := errors.Join(s.life.Close(), s.cmd.Wait()); err != nil {
		return fmt.Errorf("the demo's folder: %w", err)
	}
	return nil
}

// foreignEnv is the environment without what configures Hongbao.
func foreignEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HONGBAO_") {
			env = append(env, v)
		}
	}
	return env
}
