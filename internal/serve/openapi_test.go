package serve

import (
	"flag"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/web"
)

var update = flag.Bool("update", false, "write docs/openapi.yaml anew")

const openapiFile = "../../docs/openapi.yaml"

// docs/openapi.yaml is made of the endpoints and their types.
func TestDocumentIsCommitted(t *testing.T) {
	t.Parallel()
	text, err := (&Server{}).API().Document().YAML()
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(openapiFile, text, 0o644))
	}
	has, err := os.ReadFile(openapiFile)
	require.NoError(t, err)
	require.Equal(t, string(text), string(has), "run go test ./internal/serve -run TestDocumentIsCommitted -update")
}

func document(t *testing.T) (doc map[string]any, compile func(pointer string) *jsonschema.Schema) {
	t.Helper()
	text, err := (&Server{}).API().Document().YAML()
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &doc))
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("https://hongbao.test/openapi", doc))
	return doc, func(pointer string) *jsonschema.Schema {
		s, err := c.Compile("https://hongbao.test/openapi#" + pointer)
		require.NoError(t, err)
		return s
	}
}

// Every answer is documented at its path, with its status, its type, and, for a problem, its code.
func TestAnswersMatchTheDocument(t *testing.T) {
	t.Parallel()
	doc, compile := document(t)
	s := setup(t, options{cfg: func(c *Config) { c.Rate, c.Burst = 1, 1_000 }})
	limited := setup(t, options{cfg: func(c *Config) { c.Rate, c.Burst = 1, 1 }})
	seen := map[string]bool{}
	check := func(e *web.Endpoint, r *reply) {
		t.Helper()
		status := strconv.Itoa(r.status)
		at := "/paths/" + strings.ReplaceAll(e.Path, "/", "~1") + "/" + strings.ToLower(e.Method) + "/responses/" + status
		media := strings.NewReplacer("/", "~1", "+", "%2B").Replace(r.head.Get("Content-Type"))
		schema := compile(at + "/content/" + media + "/schema")
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(r.text))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(v), "%s", r.text)
		if code := r.code(); code != "" {
			seen[code] = true
			at := any(doc)
			for _, name := range []string{"paths", e.Path, strings.ToLower(e.Method), "responses", status, "description"} {
				at = at.(map[string]any)[name]
			}
			require.Regexp(t, `\b`+code+`\b`, at, e.Path)
		}
	}
	all := s.endpoints()
	grab := &all[0]
	for _, id := range append(outcomes(), "transient", "unknown", "Bad") {
		check(grab, s.call(t, "POST", "/v1/campaigns/"+id+"/grabs", good))
	}
	for _, id := range []string{"counts", "several"} {
		check(grab, s.call(t, "POST", "/v1/campaigns/"+id+"/grabs", "{}"))
	}
	for _, c := range badBodies {
		var tweaks []tweak
		if c.head != nil {
			tweaks = append(tweaks, header(c.head[0], c.head[1]))
		}
		check(grab, s.call(t, "POST", "/v1/campaigns/granted/grabs", c.body, tweaks...))
	}
	for i := range all[1:] {
		e := &all[i+1]
		for _, id := range []string{"granted", "absent", "Bad"} {
			check(e, s.call(t, e.Method, strings.Replace(e.Path, "{id}", id, 1), ""))
		}
	}
	for i := range all[:2] {
		e := &all[i]
		path := strings.Replace(e.Path, "{id}", "granted", 1)
		check(e, s.call(t, e.Method, path, good, as("x")))
	}
	limited.call(t, "GET", "/v1/campaigns/granted/grabs/me", "")
	check(&all[1], limited.call(t, "GET", "/v1/campaigns/granted/grabs/me", ""))

	for _, err := range []error{shards.ErrFrozen, shards.ErrNotDurable} {
		s := setup(t, options{fake: &fake{err: err}})
		check(&all[1], s.call(t, "GET", "/v1/campaigns/granted/grabs/me", ""))
	}
	for _, code := range []string{"not_found", "method_not_allowed", "body_incomplete"} {
		seen[code] = true // of no path, no method, no whole request
	}
	require.Equal(t, slices.Sorted(maps.Keys(public())), slices.Sorted(maps.Keys(seen)), "every code was met")

	r := s.call(t, "GET", "/openapi.json", "", header("Authorization", ""))
	require.Equal(t, http.StatusOK, r.status)
	require.Equal(t, "3.1.0", r.body["openapi"])
	bad, err := jsonschema.UnmarshalJSON(strings.NewReader(`{"outcome":"won","time":"now"}`))
	require.NoError(t, err)
	require.Error(t, compile("/components/schemas/GrabAnswer").Validate(bad), "the schemas can say no")
}

func outcomes() (all []string) {
	for _, o := range hongbao.Outcomes() {
		all = append(all, string(o))
	}
	return all
}

// public has each code of the public listener with its status.
func public() map[string]int {
	all := map[string]int{}
	for _, e := range (&Server{}).endpoints() {
		for _, code := range append(e.Codes, "not_found", "method_not_allowed", "unauthorized") {
			all[code] = web.CodeOf(code).Status
		}
	}
	return all
}

// Each code that only this listener answers belongs to an endpoint.
func TestCodesAreUsed(t *testing.T) {
	t.Parallel()
	all := public()
	for code := range codes {
		require.Contains(t, all, code)
	}
}

// docs/http.md has each code with its status.
func TestPageHasTheCodes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/http.md")
	require.NoError(t, err)
	have := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\d{3}) \\|").FindAllStringSubmatch(string(page), -1) {
		have[m[1]] = m[2]
	}
	want := map[string]string{}
	for code, status := range public() {
		want[code] = strconv.Itoa(status)
	}
	require.Equal(t, want, have)
}
