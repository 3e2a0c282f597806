package test

import (
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// composed has the servers of compose.yaml. Another test, in deploy, reads the whole file strictly.
type composed struct {
	Services map[string]struct {
		Image       string
		Command     []string
		Environment map[string]string
		Ports       []string
	}
}

func readCompose(t *testing.T) *composed {
	t.Helper()
	text, err := os.ReadFile("../compose.yaml")
	require.NoError(t, err)
	file := &composed{}
	require.NoError(t, yaml.Unmarshal(text, file))
	return file
}

func page(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../" + path)
	require.NoError(t, err)
	return string(text)
}

// compose.yaml publishes the servers' ports on loopback only, and has the versions that the README lists as tested. It
// agrees with docs/compose.md and docs/quickstart.md.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	file, text, readme := readCompose(t), page(t, "docs/compose.md"), page(t, "README.md")
	quick := page(t, "docs/quickstart.md")
	for name, server := range map[string]string{"redis": "Redis", "postgres": "PostgreSQL", "kafka": "Apache Kafka"} {
		s := file.Services[name]
		require.Len(t, s.Ports, 1, name)
		host, port, ok := strings.Cut(strings.TrimPrefix(s.Ports[0], "127.0.0.1:"), ":")
		require.True(t, ok && host == port, "%s opens %s", name, s.Ports[0])
		require.Contains(t, quick, "127.0.0.1:"+port)
		require.Contains(t, text, "| "+server+" | `"+s.Image+"` | 127.0.0.1:"+port+" |")
		_, version, _ := strings.Cut(s.Image, ":")
		row := regexp.MustCompile(`(?m)^\| ` + server + ` \| [^|]+ \| ([0-9.]+)`).FindStringSubmatch(readme)
		require.NotNil(t, row, server)
		require.True(t, strings.HasPrefix(row[1]+".", version+"."), "%s is %s, tested is %s", name, s.Image, row[1])
	}
	for name, s := range file.Services {
		require.Contains(t, text, "`"+s.Image+"`", name)
		for _, port := range s.Ports {
			require.Contains(t, text, port[:strings.LastIndex(port, ":")], name)
		}
	}
	pg := file.Services["postgres"].Environment
	dsn := "postgres://" + pg["POSTGRES_USER"] + ":" + pg["POSTGRES_PASSWORD"] + "@127.0.0.1:5432/" + pg["POSTGRES_DB"]
	for _, text := range []string{text, quick} {
		require.Contains(t, text, "export HONGBAO_LEDGER_DSN='"+dsn+"'\n")
	}
	require.Contains(t, file.Services["kafka"].Environment["KAFKA_ADVERTISED_LISTENERS"], "://127.0.0.1:9092")
}

// The commands of docs/compose.md work on servers with the arguments, user, password and database of compose.yaml.
func TestComposePage(t *testing.T) {
	t.Parallel()
	file, text := readCompose(t), page(t, "docs/compose.md")
	args := map[string]string{}
	for command := file.Services["redis"].Command[1:]; len(command) > 0; command = command[2:] {
		args[strings.TrimPrefix(command[0], "--")] = command[1]
	}
	require.Len(t, args, 2)
	rdb, kafka, pg := testkit.NewRedis(t, testkit.RedisOptions{Args: args}), testkit.Kafka(t), newLedgerServer(t)
	env := file.Services["postgres"].Environment
	user, database := pgx.Identifier{env["POSTGRES_USER"]}.Sanitize(), pgx.Identifier{env["POSTGRES_DB"]}.Sanitize()
	conn, err := pgx.Connect(t.Context(), pg.DSN("postgres"))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE ROLE "+user+" SUPERUSER LOGIN PASSWORD '"+env["POSTGRES_PASSWORD"]+"'")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE DATABASE "+database+" OWNER "+user)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))

	var vars []string
	for _, m := range regexp.MustCompile(`(?m)^export (HONGBAO_\w+)='?([^'\n]+)'?$`).FindAllStringSubmatch(text, -1) {
		for port, addr := range map[string]string{"6379": rdb.Addr, "5432": pg.Addr, "9092": kafka.Addr} {
			m[2] = strings.ReplaceAll(m[2], "127.0.0.1:"+port, addr)
		}
		vars = append(vars, m[1]+"="+m[2])
	}
	require.Len(t, vars, 6)
	dsn, err := url.Parse(strings.TrimPrefix(vars[2], "HONGBAO_LEDGER_DSN="))
	require.NoError(t, err)
	require.Equal(t, pg.Addr, dsn.Host)
	runPageOn(t, "docs/compose.md", text, vars)
}
