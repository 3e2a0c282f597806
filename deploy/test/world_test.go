package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// run runs the program until it exits successfully, and returns its output.
func run(t *testing.T, env []string, args ...string) string {
	t.Helper()
	out, err := try(t, env, args...)
	require.NoError(t, err)
	return out
}

func try(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	return tryBuild(t, program(t), env, args...)
}

// tryBuild runs the program at the path.
func tryBuild(t *testing.T, path string, env []string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Dir = testkit.Environ(env...), t.TempDir()
	var says bytes.Buffer
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		err = errors.Join(err, errors.New(strings.Join(args, " ")+": "+says.String()))
	}
	return string(out), err
}

type process struct {
	t *testing.T
	*testkit.Program
}

// start starts a program. The program is killed at the end of the test if it still runs.
func start(t *testing.T, path string, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Dir = testkit.Environ(env...), t.TempDir()
	p := &process{t, testkit.StartProgram(t, cmd)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%v said:\n%s", args, p.log())
		}
	})
	return p
}

func (p *process) log() string { return p.Out.String() + p.Err.String() }

// says waits until the program has printed the text.
func (p *process) says(text string) {
	p.t.Helper()
	p.Says(60*time.Second, text)
}

// stop stops the program with SIGTERM, as Kubernetes does. It must exit successfully within the grace period.
func (p *process) stop(grace time.Duration) {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	require.Zero(p.t, p.Wait(grace), p.log())
}

// campaignFile writes a campaign named rain that is open now, with packets of 1.00 each and one packet per user.
func campaignFile(t *testing.T, packets int) string {
	t.Helper()
	now := time.Now().UTC()
	text := fmt.Sprintf(`{id: rain, name: Rain, kind: red_packet, currency: CNY, total: %d, packets: %d, split: {mode: even},
window: {from: %s, to: %s}, time_zone: Asia/Shanghai, limits: [{by: user, per: campaign, max: 1}], sponsor: acme}`,
		packets*100, packets, now.Add(-time.Hour).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339))
	path := filepath.Join(t.TempDir(), "rain.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// firstShard returns the keys of shard 0 of a deployment with the default settings.
func firstShard(t *testing.T, rdb redis.UniversalClient) store.Keys {
	t.Helper()
	st, err := store.New(store.Config{Redis: rdb, Space: hongbao.Space{Prefix: "hb", Shards: 1}})
	require.NoError(t, err)
	return st.Shard(0).Keys
}
