package local

import (
	"context"
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
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
)

const folderPrefix = "hongbao-local-"

// Sweep waits until life ends and then removes a temporary folder. The process that creates the folder starts
// `hongbao local-sweep` and keeps the other end of life, its standard input. So the folder is removed however that
// process ends, even by SIGKILL.
func Sweep(folder string, life io.Reader) error {
	if !strings.HasPrefix(filepath.Base(folder), folderPrefix) {
		return app.Usage("%.200q is no folder of `hongbao dev` or `hongbao demo`", folder)
	}
	if _, err := io.Copy(io.Discard, life); err != nil {
		return fmt.Errorf("wait for the end of the folder's owner: %w", err)
	}
	// The owner's children die a moment after the owner and may still write, so retry.
	again := backoff.WithMaxRetries(backoff.NewConstantBackOff(100*time.Millisecond), 50)
	if err := backoff.Retry(func() error { return os.RemoveAll(folder) }, again); err != nil {
		return fmt.Errorf("remove the folder: %w", err)
	}
	return nil
}

// folder is the folder with a deployment's files. A temporary folder is removed by the process sweep; a kept
// folder is locked.
type folder struct {
	path  string
	kept  bool
	sweep *exec.Cmd
	life  io.Closer // the pipe to sweep, or the lock; the kernel closes it if this process is killed
}

// openFolder creates a temporary folder, or opens and locks the folder at path.
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
	// The folder may have existed before with wider permissions.
	if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // a folder needs the x permission
		return nil, errors.Join(fmt.Errorf("close the folder of --data-dir to other users: %w", err), life.Close())
	}
	return &folder{path: path, kept: true, life: life}, nil
}

// lockName is the file that marks a folder as one of `hongbao dev`.
const lockName = "hongbao-dev.lock"

// ledgerName is the file of the ledger.
const ledgerName = "ledger.db"

// checkBuild refuses the data of a build that was never released. It runs before anything in the folder changes.
func (f *folder) checkBuild(ctx context.Context) error {
	config := ledger.DefaultConfig()
	config.Database = sqlite.Database{Path: filepath.Join(f.path, ledgerName)}
	l, err := ledger.Open(ctx, config)
	if err == nil {
		return l.Close()
	}
	if errors.Is(err, ledger.ErrUnreleased) {
		return app.Usage("--data-dir: %s has the data of a build before the first release, which no release reads: name a new "+
			"folder, or delete this one if nobody needs it (%w)", f.path, err)
	}
	return nil // the folder is new, or Init reports the error
}

// checkOurs returns an error if the folder has files but not the lock file.
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

// ForeignEnv returns the environment without Hongbao's own variables.
func ForeignEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HONGBAO_") {
			env = append(env, v)
		}
	}
	return env
}
