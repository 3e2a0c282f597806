// Package test renders the chart and builds the image, and runs both with real processes. It is a separate module, so
// that Hongbao's users do not inherit Helm and Kubernetes.
package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// timeToStart is more than any process needs to start or to stop, even on a busy machine.
const timeToStart = time.Minute

func TestMain(m *testing.M) { testkit.Main(m) }

// built builds the static program bin/hongbao, as the image has it, in a folder that is removed with the servers'
// folders.
var built = sync.OnceValues(func() (string, error) {
	dir, err := testkit.Folder("deploy")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "hongbao")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/hongbao")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, nil
})

func program(t *testing.T) string {
	t.Helper()
	path, err := built()
	require.NoError(t, err)
	return path
}
