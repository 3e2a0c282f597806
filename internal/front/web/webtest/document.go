package webtest

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/hongbao-project/hongbao/internal/front/web"
)

var update = flag.Bool("update", false, "write the API's documents in docs")

// Committed checks that a file has the OpenAPI document of an API, and that the reference page next to it is up to
// date. With the flag -update it writes both files.
func Committed(t *testing.T, api *web.API, file string) {
	t.Helper()
	forGenerators(t, api)
	text, err := api.Document().YAML()
	require.NoError(t, err)
	for name, want := range map[string]string{file: string(text), referenceFile(file): Reference(api, filepath.Base(file))} {
		if *update {
			require.NoError(t, os.WriteFile(name, []byte(want), 0o644)) //nolint:gosec // everyone may read docs
		}
		has, err := os.ReadFile(name)
		require.NoError(t, err)
		if want != string(has) { // not printed, because the difference may have thousands of lines
			t.Errorf("%s differs from the API's document: run this test with -update", name)
		}
	}
}

// forGenerators checks that the document has what client generators need: tags, servers, names and types.
func forGenerators(t *testing.T, api *web.API) {
	t.Helper()
	doc := api.Document()
	if len(doc.Servers) == 0 {
		t.Error("the document names no server")
	}
	var tags []string
	for _, tag := range doc.Tags {
		tags = append(tags, tag.Name)
	}
	all := map[any]bool{}
	for _, path := range doc.Paths {
		for _, o := range []*huma.Operation{path.Get, path.Post, path.Put, path.Delete, path.Patch} {
			if o == nil {
				continue
			}
			if len(o.Tags) != 1 || !slices.Contains(tags, o.Tags[0]) {
				t.Errorf("%s has the tags %q, want one of %q", o.OperationID, o.Tags, tags)
			}
			if o.Responses["405"] == nil || o.Responses["405"].Headers["Allow"] == nil {
				t.Errorf("%s does not document 405 with Allow", o.OperationID)
			}
			for _, answer := range o.Responses {
				for _, code := range codesOf(answer) {
					all[code] = true
				}
			}
		}
	}
	schemasForGenerators(t, doc.Components.Schemas.Map(), all)
}

func schemasForGenerators(t *testing.T, schemas map[string]*huma.Schema, codes map[any]bool) {
	t.Helper()
	for name, s := range schemas {
		if strings.HasSuffix(name, "Struct") {
			t.Errorf("schema %s has a generated name: name its Go type", name)
		}
		for field, one := range s.Properties {
			if one.Type == "" && one.Ref == "" && len(one.OneOf) == 0 {
				t.Errorf("%s.%s accepts any value: declare its type", name, field)
			}
		}
	}
	enum := schemas["Problem"].Properties["code"].Enum
	for _, code := range enum {
		if delete(codes, code); web.CodeOf(fmt.Sprint(code)).Status == 0 {
			t.Errorf("code %v has no status", code)
		}
	}
	if len(codes) > 0 {
		t.Errorf("the enum of Problem.code lacks %v", codes)
	}
}

// Codes returns all error codes of an API.
func Codes(api *web.API) []string {
	all := append([]string{"not_found", "method_not_allowed", "unauthorized", "internal_error"}, api.Codes...)
	for i := range api.Endpoints {
		all = append(all, api.Endpoints[i].Codes...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// OnPage checks that a page of the documentation lists exactly these codes with their statuses.
func OnPage(t *testing.T, page string, codes []string) {
	t.Helper()
	have, want := map[string]string{}, map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\d{3}) \\|").FindAllStringSubmatch(page, -1) {
		have[m[1]] = m[2]
	}
	for _, code := range codes {
		want[code] = strconv.Itoa(web.CodeOf(code).Status)
	}
	require.Equal(t, want, have)
}

const documentURL = "https://hongbao.test/openapi#"

// Document is an OpenAPI document that answers are checked against. It is safe for concurrent use.
type Document struct {
	mu       sync.Mutex
	doc      map[string]any
	compiler *jsonschema.Compiler
}

// NewDocument parses an OpenAPI document.
func NewDocument(text []byte) (*Document, error) {
	d := &Document{compiler: jsonschema.NewCompiler()}
	d.compiler.AssertFormat()
	if err := yaml.Unmarshal(text, &d.doc); err != nil {
		return nil, err
	}
	return d, d.compiler.AddResource(strings.TrimSuffix(documentURL, "#"), d.doc)
}

// DocumentOf returns the OpenAPI document of an API.
func DocumentOf(api *web.API) (*Document, error) {
	text, err := api.Document().YAML()
	if err != nil {
		return nil, err
	}
	return NewDocument(text)
}

// Check checks that an answer conforms to the document: its status, content type and schema, and the error code of a
// problem.
func (d *Document) Check(method, path string, a *Answer) error {
	if method == http.MethodHead { // the document describes GET and HEAD together
		method = http.MethodGet
	}
	method, status := strings.ToLower(method), strconv.Itoa(a.Status)
	at := any(d.doc)
	for _, name := range []string{"paths", path, method, "responses", status, "description"} {
		level, ok := at.(map[string]any)
		if at = level[name]; !ok || at == nil {
			return fmt.Errorf("the document has no %s of status %s", name, status)
		}
	}
	if said, _ := at.(string); a.Code() != "" && !regexp.MustCompile(`\b`+a.Code()+`\b`).MatchString(said) {
		return fmt.Errorf("status %s is documented with %q", status, said)
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D", "+", "%2B")
	return d.valid("/paths/"+escape.Replace(path)+"/"+method+"/responses/"+status+"/content/"+
		escape.Replace(a.Head.Get("Content-Type"))+"/schema", a.Text)
}

// Valid checks a text against a schema of the document. It returns a *jsonschema.ValidationError if the text does
// not conform.
func (d *Document) Valid(schema, text string) error {
	return d.valid("/components/schemas/"+schema, text)
}

func (d *Document) valid(pointer, text string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.compiler.Compile(documentURL + pointer)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	if err := s.Validate(v); err != nil {
		return err
	}
	return noFakes("", v)
}

// noFakes returns an error if a value is a placeholder: an empty text, "-" or the zero time. An absent value
// must be null instead.
func noFakes(at string, v any) error {
	switch v := v.(type) {
	case map[string]any:
		for name, one := range v {
			if err := noFakes(at+"."+name, one); err != nil {
				return err
			}
		}
	case []any:
		for i, one := range v {
			if err := noFakes(fmt.Sprintf("%s[%d]", at, i), one); err != nil {
				return err
			}
		}
	case string:
		if v == "" || v == "-" || strings.HasPrefix(v, "0001-01-01T") {
			return fmt.Errorf("%s is %q: want null, or no field", strings.TrimPrefix(at, "."), v)
		}
	}
	return nil
}
