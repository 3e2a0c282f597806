package main

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
	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
)

const demoFolder = "hongbao-demo-"

// sweepCmd is what the demo starts to have its folder removed however it ends, also by SIGKILL: its standard input ends
// then.
func sweepCmd() *cobra.Command {
	return &cobra.Command{
		Use: "demo-sweep FOLDER", Hidden: true, Short: "Remove a demo's folder when standard input ends",
		Args: exactly(1, "a demo's FOLDER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strings.HasPrefix(filepath.Base(args[0]), demoFolder) {
				return app.Usage("%.200q is no demo's folder", args[0])
			}
			if _, err := io.Copy(io.Discard, cmd.InOrStdin()); err != nil {
				return fmt.Errorf("wait for the demo's end: %w", err)
			}
			// What the demo had started ends with it, but maybe a moment later, and may write until then.
			again := backoff.WithMaxRetries(backoff.NewConstantBackOff(100*time.Millisecond), 50)
			err := backoff.Retry(func() error { return os.RemoveAll(args[0]) }, again)
			return wrap("remove the demo's folder", err)
		},
	}
}

// sweeper will remove the demo's folder.
type sweeper struct {
	cmd  *exec.Cmd
	life io.Closer // the demo's end of the pipe; closed by the kernel if the demo is killed
}

// makeFolder makes the demo's folder and starts its sweeper.
func makeFolder() (string, *sweeper, error) {
	dir, err := os.MkdirTemp("", demoFolder)
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
