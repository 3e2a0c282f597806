package test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// stack runs the services of compose.yaml without a container engine. It runs the same commands with the same
// variables, but replaces the host names by the addresses of testkit's servers.
type stack struct {
	t       *testing.T
	project *types.Project
	places  *strings.Replacer
}

func newStack(t *testing.T) *stack {
	t.Helper()
	project := composed(t, "all")
	args := map[string]string{}
	for command := project.Services["redis"].Command[1:]; len(command) > 0; command = command[2:] {
		args[strings.TrimPrefix(command[0], "--")] = command[1]
	}
	pg := testkit.NewPostgres(t, testkit.PostgresOptions{Settings: map[string]string{"fsync": "on", "full_page_writes": "on"}})
	conn, err := pgx.Connect(t.Context(), pg.DSN("postgres"))
	require.NoError(t, err)
	env := project.Services["postgres"].Environment
	user, database := pgx.Identifier{*env["POSTGRES_USER"]}.Sanitize(), pgx.Identifier{*env["POSTGRES_DB"]}.Sanitize()
	for _, statement := range []string{"CREATE ROLE " + user + " SUPERUSER LOGIN PASSWORD '" + *env["POSTGRES_PASSWORD"] + "'",
		"CREATE DATABASE " + database + " OWNER " + user} {
		_, err = conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, conn.Close(t.Context()))
	return &stack{t: t, project: project, places: strings.NewReplacer(
		"redis:6379", testkit.NewRedis(t, testkit.RedisOptions{Args: args}).Addr, "postgres:5432", pg.Addr,
		"kafka:19092", testkit.Kafka(t).Addr, "0.0.0.0:8080", testkit.FreeAddr(t), "0.0.0.0:8081", testkit.FreeAddr(t),
		"0.0.0.0:8082", testkit.FreeAddr(t), "0.0.0.0:8083", testkit.FreeAddr(t))}
}

// env returns the variables of a service, with real addresses. The topic belongs to this test, because tests share the
// broker.
func (s *stack) env(service string) []string {
	config := s.project.Services[service]
	env := composeEnv(&config)
	for i := range env {
		env[i] = s.places.Replace(env[i])
	}
	return append(env, "HONGBAO_KAFKA_TOPIC=composed")
}

// start starts a service and waits until its health check succeeds.
func (s *stack) start(service string) *process {
	s.t.Helper()
	config := s.project.Services[service]
	p := start(s.t, program(s.t), s.env(service), config.Command...)
	check := config.HealthCheck.Test
	require.Equal(s.t, []string{"CMD", "/usr/local/bin/hongbao"}, []string(check[:2]))
	testkit.Eventually(s.t, timeToStart, func() bool {
		_, err := try(s.t, s.env(service), check[2:]...)
		return err == nil
	}, "%s is healthy", service)
	return p
}

// docker replaces `docker compose` in the commands of docs/compose.md. It runs the program with the container's
// variables instead of running a command in the container.
const docker = `#!/usr/bin/env bash
set -euo pipefail
[ "$1 $2 $3 $4 $5" = "compose exec -T serve hongbao" ] || { echo "docker $*: no such container" >&2; exit 1; }
shift 5
exec env $COMPOSED_ENV "$COMPOSED_PROGRAM" "$@"
`

// The services of compose.yaml become healthy. With the commands of docs/compose.md a campaign is funded, a grab over
// HTTP wins, and the grant is settled and published. The console and the metrics respond.
func TestComposedRuns(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	run(t, s.env("init"), s.project.Services["init"].Command...)
	serve, work := s.start("serve"), s.start("work")

	page, err := os.ReadFile("../../docs/compose.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(page), "\n## All of it in containers\n")
	require.True(t, ok)
	block := regexp.MustCompile("(?s)```sh\n(key=.*?)```").FindStringSubmatch(section)
	require.NotNil(t, block, "the page's commands")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker"), []byte(docker), 0o700))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	public, control := s.places.Replace("0.0.0.0:8080"), s.places.Replace("0.0.0.0:8081")
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", strings.ReplaceAll(block[1], "127.0.0.1:8080", public))
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "COMPOSED_PROGRAM="+program(t),
		"COMPOSED_ENV="+strings.Join(s.env("serve"), " "))
	var says strings.Builder
	cmd.Stderr = &says
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, &says)
	require.Contains(t, string(out), `"outcome":"granted"`)
	require.Contains(t, string(out), "agrees. Audit of")

	for url, has := range map[string]string{
		"http://" + control + "/login":                            "<title>",
		"http://" + s.places.Replace("0.0.0.0:8082") + "/metrics": `hongbao_grabs_total{deployment="hongbao",outcome="granted"} 1`,
		"http://" + s.places.Replace("0.0.0.0:8083") + "/metrics": "hongbao_worker_done_grants_total",
		"http://" + public + "/v1/campaigns/spring-rain":          `"status":"open"`,
	} {
		status, text, err := call(t.Context(), http.DefaultClient, request{method: "GET", url: url})
		require.NoError(t, err, url)
		require.Equal(t, http.StatusOK, status, url)
		require.Contains(t, string(text), has)
	}
	for _, p := range []*process{serve, work} {
		p.stop(timeToStart)
	}
	_, err = try(t, s.env("serve"), "health", "serve")
	require.ErrorContains(t, err, "connection refused")
}
