package local

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

const folderPrefix = "hongbao-local-"

// Sweep removes a temporary folder when life ends. The process that makes the folder starts `hongbao local-sweep`, so
// the folder is removed however that process ends, also by SIGKILL. life is the sweeper's standard input.
func Sweep(folder string, life io.Reader) error {
	if !strings.HasPrefix(filepath.Base(folder), folderPrefix) {
		return app.Usage("%.200q is no folder of `hongbao dev` or `hongbao demo`", folder)
	}
	if _, err := io.Copy(io.Discard, life); err != nil {
		return fmt.Errorf("wait for the end of the folder's owner: %w", err)
	}
	// The owner's children end with it, but maybe a moment later, and may write until then.
	again := backoff.WithMaxRetries(backoff.NewConstantBackOff(100*time.Millisecond), 50)
	if err := backoff.Retry(func() error { return os.RemoveAll(folder) }, again); err != nil {
		return fmt.Errorf("remove the folder: %w", err)
	}
	return nil
}

// folder has a deployment's files. A process removes a temporary folder; a kept one has a lock.
type folder struct {
	path  string
	kept  bool
	sweep *exec.Cmd
	life  io.Closer // the pipe of sweep, or the lock; closed by the kernel if this process is killed
}

// openFolder makes a temporary folder, or opens the one at path for this process alone.
func openFolder(path string) (*folder, error) {
	if path == "" {
		return temporary()
	}
	path, err := filepath.Abs(path)
	if err == nil {
		err = os.MkdirAll(path, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("make the folder of --data-dir: %w", err)
	}
	if err := checkOurs(path); err != nil {
		return nil, err
	}
	life, err := lock(filepath.Join(path, lockName))
	if err != nil {
		return nil, err
	}
	// The folder may have existed before, open to everyone.
	if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // a folder needs its x
		return nil, errors.Join(fmt.Errorf("close the folder of --data-dir to other users: %w", err), life.Close())
	}
	return &folder{path: path, kept: true, life: life}, nil
}

// lockName is the file that marks a folder as ours.
const lockName = "hongbao-dev.lock"

// checkOurs refuses a folder that has other files.
func checkOurs(path string) error {
	files, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("read the folder of --data-dir: %w", err)
	}
	if len(files) == 0 {
		return nil
	}
	if _, err := os.Stat(filepath.Join(path, lockName)); err != nil {
		return app.Usage("--data-dir: %s has files, but none of `hongbao dev`: name an empty folder, or one that does not "+
			"exist yet", path)
	}
	return nil
}

func temporary() (*folder, error) {
	path, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	f := &folder{path: path}
	self, err := os.Executable()
	if err == nil {
		f.sweep = exec.Command(self, "local-sweep", path)
		f.sweep.Env, f.sweep.Stderr, f.sweep.Dir = ForeignEnv(), os.Stderr, "/"
		ownSession(f.sweep)
		f.life, err = f.sweep.StdinPipe()
	}
	if err == nil {
		err = f.sweep.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start what removes the folder %s: %w", path, err), os.RemoveAll(path))
	}
	return f, nil
}

// close removes a temporary folder, and unlocks a kept one.
func (f *folder) close() error {
	err := f.life.Close()
	if f.sweep != nil {
		err = errors.Join(err, f.sweep.Wait())
	}
	if err != nil {
		return fmt.Errorf("the folder %s: %w", f.path, err)
	}
	return nil
}

// ForeignEnv returns the environment without the variables that configure Hongbao.
func ForeignEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HONGBAO_") {
			env = append(env, v)
		}
	}
	return env
}
