// Package test renders the chart, builds the image, and runs what both say with real processes. It is a module of its
// own, so that whoever imports Hongbao does not inherit Helm and Kubernetes.
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

// timeToStart is more than any process takes to start or to end on a busy machine.
const timeToStart = time.Minute

func TestMain(m *testing.M) { testkit.Main(m) }

// built is bin/hongbao as the image has it, static, in a folder that goes with the servers'.
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
