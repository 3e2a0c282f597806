package cli

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

var fuzzExamples = flag.Int("examples", 10, "the requests that TestSchemathesis* draws for each operation; make fuzz draws 500")

// schemathesis returns the path of the program, which scripts/setup.sh installs.
func schemathesis(t *testing.T) string {
	t.Helper()
	base := os.Getenv("HONGBAO_KAFKA_DIR")
	if base == "" {
		base = "../../.cache"
	}
	pins, err := os.ReadFile("../../scripts/schemathesis.txt")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(pins), "\nschemathesis==")
	version, _, _ := strings.Cut(rest, "\n")
	bin, err := filepath.Abs(filepath.Join(base, "schemathesis-"+version, "bin", "schemathesis"))
	require.NoError(t, err)
	_, err = os.Stat(bin)
	require.NoError(t, err, "run scripts/setup.sh")
	return bin
}

// For arbitrary requests the public listener answers as its OpenAPI document says: no undocumented answer, no 5xx, and
// no access without credentials. The first run uses arbitrary campaign ids, and the second run an existing one.
func TestSchemathesisPublic(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	bin := schemathesis(t)
	d.campaign("rain", 100, 10_000)
	g := d.serve("--serve.facts=device=gateway:device")
	key := strings.TrimSpace(d.ok("key", "create", "--role", "gateway"))
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "https://id.test", "aud": "hongbao", "sub": "u1", "exp": time.Now().Add(time.Hour).Unix(),
	})
	token.Header["kid"] = "k1"
	text, err := token.SignedString(signing("k1"))
	require.NoError(t, err)
	auth := fmt.Sprintf(`
[[operations]]
include-operation-id = ["grab", "own-receipts"]
headers = { Authorization = "Bearer %s" }

[[operations]]
include-operation-id = ["grab-batch", "user-receipts"]
headers = { Authorization = "Bearer %s" }
`, text, key)
	auth += perItem("grab-batch")
	fuzz(t, bin, g.url, auth)
	fuzz(t, bin, g.url, existing+auth)
	status, mine := g.call("GET", "/v1/campaigns/rain/grabs/me", "k1", "u1", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, string(mine), `"packet":`, "some of its grabs were granted")
}

// The control listener conforms to its OpenAPI document, with the key of a treasurer. Event streams are left out,
// because they do not end.
func TestSchemathesisControl(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	bin := schemathesis(t)
	d.campaign("rain", 100, 10_000)
	at := testkit.FreeAddr(t)
	d.serve("--control.listen=" + at)
	key := strings.TrimSpace(d.ok("key", "create", "--role", "treasurer"))
	fuzz(t, bin, "http://"+at, fmt.Sprintf("headers = { Authorization = \"Bearer %s\" }\n", key)+existing)
}

// The balance server conforms to its OpenAPI document.
func TestSchemathesisBalance(t *testing.T) {
	t.Parallel()
	bin := schemathesis(t)
	at := testkit.FreeAddr(t)
	startBalance(t, at, filepath.Join(t.TempDir(), "balance.db"))
	auth := fmt.Sprintf(`
headers = { Authorization = "Bearer %s" }

[[operations]]
include-operation-id = ["account", "statement"]
headers = { Authorization = "Bearer %s" }
`, balanceToken, accountText)
	fuzz(t, bin, "http://"+at, auth+perItem("credit-batch"))
}

// existing replaces the campaign id in each path by that of an existing campaign.
const existing = `
[parameters]
"path.id" = "rain"
`

// perItem allows status 200 for a batch with invalid items, because each item has its own result. Disabling the check
// for the operation has no effect, because fuzz names all checks on the command line.
func perItem(operation string) string {
	return fmt.Sprintf(`
[[operations]]
include-operation-id = %q
checks.negative_data_rejection.expected-statuses = ["200", "4xx", "5xx"]
`, operation)
}

// fuzz runs schemathesis against a listener with the given configuration.
func fuzz(t *testing.T, bin, url, config string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "schemathesis.toml"), []byte(config), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute+time.Duration(*fuzzExamples)*5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "--config-file", filepath.Join(dir, "schemathesis.toml"), "run", url+"/openapi.json",
		"--checks", "all", "--exclude-checks", "positive_data_acceptance", "--phases", "examples,coverage,fuzzing",
		"--max-examples", strconv.Itoa(*fuzzExamples), "--seed", "1", "--generation-database", "none", "--no-color", "--warnings", "off")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, summary, _ := strings.Cut(string(out), "= SUMMARY =")
	t.Log(summary)
}
