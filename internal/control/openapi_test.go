package control

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/web"
)

var update = flag.Bool("update", false, "write docs/openapi-control.yaml anew")

const openapiFile = "../../docs/openapi-control.yaml"

// docs/openapi-control.yaml is made of the operations and their types.
func TestDocumentIsCommitted(t *testing.T) {
	t.Parallel()
	text, err := (&Control{}).API().Document().YAML()
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(openapiFile, text, 0o644))
	}
	has, err := os.ReadFile(openapiFile)
	require.NoError(t, err)
	require.True(t, string(text) == string(has), "run go test ./internal/control -run TestDocumentIsCommitted -update")
}

// allCodes are those of all problems of this listener.
func allCodes() []string {
	all := []string{"not_found", "method_not_allowed", "unauthorized"}
	for _, e := range (&Control{}).API().Endpoints {
		all = append(all, e.Codes...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// docs/administration.md has each code with its status, and each path.
func TestPageHasAll(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/administration.md")
	require.NoError(t, err)
	have, want := map[string]string{}, map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\d{3}) \\|").FindAllStringSubmatch(string(page), -1) {
		have[m[1]] = m[2]
	}
	for _, code := range allCodes() {
		want[code] = strconv.Itoa(web.CodeOf(code).Status)
	}
	require.Equal(t, want, have)
	for _, o := range operations() {
		require.Contains(t, string(page), "`"+o.method+" "+o.path)
	}
}
