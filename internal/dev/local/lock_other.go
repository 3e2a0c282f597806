//go:build !unix

package local

import (
	"io"

	"github.com/hongbao-project/hongbao/internal/app"
)

// lock fails on this system, because without a lock two processes could write into one folder.
func lock(string) (io.Closer, error) {
	return nil, app.Usage("--data-dir needs a system with flock, such as Linux or macOS: leave it out")
}
