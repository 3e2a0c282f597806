//go:build unix

package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/hongbao-project/hongbao/internal/app"
)

// lock takes an exclusive lock on a file until the file is closed.
func lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of --data-dir: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = app.Usage("--data-dir: another `hongbao dev` has the file %s: stop it, or name another folder", path)
	} else {
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	return nil, errors.Join(err, f.Close())
}
