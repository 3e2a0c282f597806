package control

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

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
	if string(text) != string(has) { // thousands of lines tell nothing
		t.Error("run go test ./internal/control -run TestDocumentIsCommitted -update")
	}
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

// page is the document, and its schemas by where they stand.
type page struct {
	mu       sync.Mutex
	doc      map[string]any
	compiler *jsonschema.Compiler
}

var document = sync.OnceValue(func() *page {
	text, err := (&Control{}).API().Document().YAML()
	p := &page{compiler: jsonschema.NewCompiler()}
	if err == nil {
		err = yaml.Unmarshal(text, &p.doc)
	}
	p.compiler.AssertFormat()
	if err == nil {
		err = p.compiler.AddResource("https://hongbao.test/openapi", p.doc)
	}
	if err != nil {
		panic(err)
	}
	return p
})

// documented compares an answer with the document: its status, its type, its schema, the code of a problem. Each answer
// of these tests is compared so.
func documented(r *http.Request, got *reply) error {
	if r.Pattern == "" || r.Pattern == "/" || r.Pattern == "/openapi.json" || got.code() == "method_not_allowed" {
		return nil // of no operation
	}
	p := document()
	p.mu.Lock()
	defer p.mu.Unlock()
	status := strconv.Itoa(got.status)
	at := any(p.doc)
	for _, name := range []string{"paths", r.Pattern, strings.ToLower(r.Method), "responses", status, "description"} {
		level, ok := at.(map[string]any)
		if at = level[name]; !ok || at == nil {
			return fmt.Errorf("the document has no %s of status %s", name, status)
		}
	}
	if said, _ := at.(string); got.code() != "" && !regexp.MustCompile(`\b`+got.code()+`\b`).MatchString(said) {
		return fmt.Errorf("status %s is documented with %q", status, said)
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D", "+", "%2B")
	s, err := p.compiler.Compile("https://hongbao.test/openapi#/paths/" + escape.Replace(r.Pattern) + "/" +
		strings.ToLower(r.Method) + "/responses/" + status + "/content/" + escape.Replace(got.head.Get("Content-Type")) +
		"/schema")
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(got.text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// The comparison can say no.
func TestDocumentSaysNo(t *testing.T) {
	t.Parallel()
	r := &http.Request{Method: http.MethodGet, Pattern: "/v1/audit"}
	head := http.Header{"Content-Type": {"application/json"}}
	require.NoError(t, documented(r, &reply{status: 200, head: head, text: `{"verdict":"agrees","differences":0}`}))
	require.Error(t, documented(r, &reply{status: 200, head: head, text: `{"verdict":"perhaps","differences":0}`}))
	require.Error(t, documented(r, &reply{status: 200, head: head, text: `{"verdict":"agrees","differences":0,"x":1}`}))
	require.Error(t, documented(r, &reply{status: 202, head: head, text: `{}`}))
	require.Error(t, documented(r, &reply{status: 409, head: head, text: `{}`, body: map[string]any{"code": "refused"}}))
}
