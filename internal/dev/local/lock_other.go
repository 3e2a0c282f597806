//go:build !unix

package local

import (
	"io"

	"github.com/hongbao-project/hongbao/internal/app"
)

// lock always fails: without flock, two processes could write into one folder.
func lock(string) (io.Closer, error) {
	return nil, app.Usage("--data-dir needs a system with flock, such as Linux or macOS: leave it out")
}
