package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The commands that docs/deploy.md runs in a worker's pod need no flags, and only a worker's variables and rights.
func TestCommandsInPods(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/deploy.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| a worker's pod \|[^|]*\| (.*) \|$`).FindSubmatch(page)
	require.NotNil(t, row)
	g := newGuarded(t)
	g.startPostgres()
	run(t, g.env("init", "hongbao_owner"), "init")
	operator, worker := g.env("operator", "hongbao_control"), g.env("worker", "hongbao_work")
	run(t, operator, "campaign", "create", campaignFile(t, 10))
	run(t, operator, "campaign", "load", "rain")
	w := start(t, program(t), worker, "work")
	w.says(`"working"`)
	run(t, operator, "grab", "rain", "u1")
	require.Contains(t, run(t, operator, "audit", "--wait", "30s"), "agrees")

	config := filepath.Join(t.TempDir(), "hongbao.yaml")
	require.NoError(t, os.WriteFile(config, []byte("ledger: {driver: postgres}\n"), 0o600))
	commands := regexp.MustCompile("`([^`]+)`").FindAllSubmatch(row[1], -1)
	require.Greater(t, len(commands), 8)
	for _, m := range commands {
		args := strings.Fields(strings.NewReplacer("CAMPAIGN", "rain", "USER", "u1").Replace(string(m[1])))
		run(t, append(worker, "HONGBAO_CONFIG="+config), args...)
	}
	log, err := g.admin.Do(t.Context(), "ACL", "LOG").Slice()
	require.NoError(t, err)
	require.Empty(t, log, "a command needs more rights than a worker has")
	w.stop(timeToStart)
}

// The patch of docs/deploy.md replaces the arguments of Hongbao's own container in a Job of the audit's CronJob, also
// beside other containers.
func TestJobOfTheAudit(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/deploy.md")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?s) -p '(\[.*?\])' \|`).FindSubmatch(page)
	require.NotNil(t, found)
	r := newRendered(t, withValues(t, "audit: {extraContainers: [{name: beside, image: beside:1}]}"))
	c := r.pods["hongbao-audit"].Spec.Containers[0]
	require.Equal(t, "audit", c.Name)
	var patch []struct {
		Op, Path string
		Value    []string
	}
	require.NoError(t, json.Unmarshal(found[1], &patch))
	require.Len(t, patch, 1)
	require.Equal(t, []string{"replace", "/spec/template/spec/containers/0/args"}, []string{patch[0].Op, patch[0].Path})
	out, err := exec.Command(program(t), append(patch[0].Value, "--help")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "\n  hongbao recover [flags]\n")
}
