package test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// programs builds hongbao, examples/grab and examples/load once, and returns their folder.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs("../.cache/test") // git ignores this folder
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-ldflags=-w", "-o", dir+"/", "../cmd/hongbao", "../examples/grab",
		"../examples/load").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the programs: %w: %s", err, out)
	}
	return dir, nil
})

// program returns the path of hongbao.
func program() (string, error) {
	dir, err := programs()
	return filepath.Join(dir, "hongbao"), err
}

// cli runs the built program with the environment of a test's own deployment.
type cli struct {
	t      *testing.T
	path   string
	prefix string // also the deployment's id
	ledger string // the ledger's file
	env    []string
}

// newCLI returns a cli with short timeouts and the given knobs.
func newCLI(t *testing.T, knobs map[string]string, more ...string) *cli {
	t.Helper()
	path, err := program()
	require.NoError(t, err)
	c := &cli{t: t, path: path, prefix: testkit.Prefix(t), ledger: filepath.Join(t.TempDir(), "ledger.db")}
	all := map[string]string{
		"DEPLOYMENT_ID": c.prefix, "DEPLOYMENT_KEY_PREFIX": c.prefix, "LEDGER_DRIVER": "sqlite", "LEDGER_DSN": c.ledger,
		"REDIS_READ_TIMEOUT": "900ms", "CONSUMER_LEASE": "3s", "CONSUMER_POLL": "100ms", "CONSUMER_BLOCK": "100ms",
		"CAMPAIGN_GRACE": "1h", "LOG_FORMAT": "json",
	}
	maps.Copy(all, knobs)
	for name, value := range all {
		c.env = append(c.env, "HONGBAO_"+name+"="+value)
	}
	c.env = testkit.Environ(append(c.env, more...)...)
	return c
}

func (c *cli) command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.path, args...)
	cmd.Env = c.env
	cmd.Stdout, cmd.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// exits runs the program, and returns its output. It requires the exit code, and that the output contains each of
// parts.
func (c *cli) exits(code int, args []string, parts ...string) string {
	c.t.Helper()
	cmd := c.command(args...)
	err := cmd.Run()
	var exit *exec.ExitError
	require.True(c.t, err == nil || errors.As(err, &exit), "%v: %v", args, err)
	out, stderr := fmt.Sprint(cmd.Stdout), fmt.Sprint(cmd.Stderr)
	require.Equal(c.t, code, cmd.ProcessState.ExitCode(), "%v: %s%s", args, out, stderr)
	for _, part := range parts {
		require.Contains(c.t, out+stderr, part, "%v", args)
	}
	return out
}

func (c *cli) ok(args ...string) string {
	c.t.Helper()
	return c.exits(0, args)
}
