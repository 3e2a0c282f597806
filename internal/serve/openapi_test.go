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

// checker compares answers with the document.
type checker struct {
	doc     map[string]any
	compile func(pointer string) *jsonschema.Schema
	seen    map[string]bool // codes
}

// check makes sure that an answer is documented at its path, with its status, its type, and, for a problem, its code.
func (c *checker) check(t *testing.T, e *web.Endpoint, r *reply) {
	t.Helper()
	status := strconv.Itoa(r.status)
	at := "/paths/" + strings.ReplaceAll(e.Path, "/", "~1") + "/" + strings.ToLower(e.Method) + "/responses/" + status
	media := strings.NewReplacer("/", "~1", "+", "%2B").Replace(r.head.Get("Content-Type"))
	schema := c.compile(at + "/content/" + media + "/schema")
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(r.text))
	require.NoError(t, err)
	require.NoError(t, schema.Validate(v), "%s", r.text)
	if code := r.code(); code != "" {
		c.seen[code] = true
		at := any(c.doc)
		for _, name := range []string{"paths", e.Path, strings.ToLower(e.Method), "responses", status, "description"} {
			at = at.(map[string]any)[name]
		}
		require.Regexp(t, `\b`+code+`\b`, at, e.Path)
	}
}

// Every answer is documented, and every code is met.
func TestAnswersMatchTheDocument(t *testing.T) {
	t.Parallel()
	c := &checker{seen: map[string]bool{}}
	c.doc, c.compile = document(t)
	s := setup(t, options{cfg: func(c *Config) { c.Rate, c.Burst = 1, 1_000 }})
	all := map[string]*web.Endpoint{}
	for _, e := range s.endpoints() {
		all[e.ID] = &e
	}
	require.Len(t, all, 5, "each is asked below")
	c.checkGrabs(t, s, all["grab"], all["own-receipts"])
	c.checkBatches(t, s, all["grab-batch"])
	c.checkReads(t, s, all)
	for _, code := range []string{"not_found", "method_not_allowed", "body_incomplete"} {
		c.seen[code] = true // of no path, no method, no whole request
	}
	require.Equal(t, slices.Sorted(maps.Keys(public())), slices.Sorted(maps.Keys(c.seen)), "every code was met")

	r := s.call(t, "GET", "/openapi.json", "", header("Authorization", ""))
	require.Equal(t, http.StatusOK, r.status)
	require.Equal(t, "3.1.0", r.body["openapi"])
	bad, err := jsonschema.UnmarshalJSON(strings.NewReader(`{"outcome":"won","time":"now"}`))
	require.NoError(t, err)
	require.Error(t, c.compile("/components/schemas/GrabAnswer").Validate(bad), "the schemas can say no")
}

func (c *checker) checkGrabs(t *testing.T, s *server, grab, own *web.Endpoint) {
	t.Helper()
	for _, id := range append(outcomes(), "transient", "unknown", "Bad") {
		c.check(t, grab, s.call(t, "POST", "/v1/campaigns/"+id+"/grabs", good))
	}
	for _, id := range []string{"counts", "several"} {
		c.check(t, grab, s.call(t, "POST", "/v1/campaigns/"+id+"/grabs", "{}"))
	}
	for _, b := range badBodies {
		c.check(t, grab, s.call(t, "POST", "/v1/campaigns/granted/grabs", b.body, b.tweaks()...))
	}
	for _, change := range []func(*letter){
		func(*letter) {}, func(l *letter) { l.user = "u 1" }, func(l *letter) { l.facts = "x=1" },
	} {
		l := grabLetter()
		change(&l)
		c.check(t, grab, s.call(t, l.method, l.path, l.body, signedBy(l)))
		l.method, l.path, l.body = "GET", "/v1/campaigns/granted/grabs/me", ""
		c.check(t, own, s.call(t, l.method, l.path, l.body, signedBy(l)))
	}
}

func (c *checker) checkBatches(t *testing.T, s *server, batch *web.Endpoint) {
	t.Helper()
	for _, b := range badBodies {
		c.check(t, batch, s.call(t, "POST", batchPath, b.body, append(b.tweaks(), as(gatewayText))...))
	}
	for _, body := range []string{"{}", `{"grabs":[{"user":"u1","request_id":"r1"},{"user":"u 1"}]}`} {
		for _, id := range []string{"granted", "unknown_campaign", "Bad", "other"} {
			c.check(t, batch, s.call(t, "POST", "/v1/campaigns/"+id+"/grabs:batch", body, as(gatewayText)))
		}
	}
	c.check(t, batch, s.call(t, "POST", batchPath, good, as(viewerText)))
}

func (c *checker) checkReads(t *testing.T, s *server, all map[string]*web.Endpoint) {
	t.Helper()
	own, list := all["own-receipts"], all["user-receipts"]
	for _, id := range []string{"granted", "absent", "Bad"} {
		c.check(t, own, s.call(t, "GET", "/v1/campaigns/"+id+"/grabs/me", ""))
		c.check(t, all["campaign"], s.call(t, "GET", "/v1/campaigns/"+id, ""))
		c.check(t, list, s.call(t, "GET", "/v1/campaigns/"+id+"/grabs?user=u1", "", as(viewerText)))
	}
	c.check(t, list, s.call(t, "GET", "/v1/campaigns/granted/grabs", "", as(viewerText)))
	for _, e := range all {
		if len(e.Security) > 0 {
			c.check(t, e, s.call(t, e.Method, strings.Replace(e.Path, "{id}", "granted", 1), good, as("x")))
		}
	}
	for _, err := range []error{shards.ErrFrozen, shards.ErrNotDurable} {
		s := setup(t, options{fake: &fake{err: err}})
		c.check(t, own, s.call(t, "GET", "/v1/campaigns/granted/grabs/me", ""))
		c.check(t, list, s.call(t, "GET", "/v1/campaigns/granted/grabs?user=u1", "", as(viewerText)))
	}
	limited := setup(t, options{cfg: func(c *Config) { c.Rate, c.Burst = 1, 1 }})
	limited.call(t, "GET", "/v1/campaigns/granted/grabs/me", "")
	c.check(t, own, limited.call(t, "GET", "/v1/campaigns/granted/grabs/me", ""))
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
