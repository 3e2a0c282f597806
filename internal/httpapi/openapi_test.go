package httpapi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/hongbao-project/hongbao/internal/web/webtest"
)

const openapiFile = "../../docs/openapi-balance.yaml"

func openapi(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(openapiFile)
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, yaml.Unmarshal(text, &doc))
	require.Equal(t, "3.1.0", doc["openapi"])
	return doc
}

// The document has the paths and methods that are served, and no others.
func TestDocumentHasThePaths(t *testing.T) {
	t.Parallel()
	s := setup(t)
	methods := []string{"get", "head", "post", "put", "patch", "delete"}
	for path, v := range openapi(t)["paths"].(map[string]any) {
		var documented []string
		for method := range v.(map[string]any) {
			documented = append(documented, strings.ToUpper(method))
		}
		filled := regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(path, "x")
		for _, method := range methods {
			r := s.call(t, strings.ToUpper(method), filled, "")
			served := r.Status != http.StatusMethodNotAllowed && r.Code() != "not_found"
			require.Equal(t, slices.Contains(documented, strings.ToUpper(method)), served, "%s %s", method, path)
		}
	}
	source, err := os.ReadFile("balance.go")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`mux\.Handle\("(/[^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		require.Contains(t, openapi(t)["paths"], m[1])
	}
}

// The document's codes are those of the source.
func TestDocumentHasTheCodes(t *testing.T) {
	t.Parallel()
	var want []string
	add := func(s string) {
		if regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(s) {
			want = append(want, s)
		}
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	shared, err := filepath.Glob("../web/*.go")
	require.NoError(t, err)
	files = append(files, shared...)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			var list []ast.Expr
			switch n := n.(type) {
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "refuse" {
					list = n.Args[1:2]
				}
			case *ast.KeyValueExpr: // of a web.Refusal or a web.Body
				if id, ok := n.Key.(*ast.Ident); ok && (id.Name == "Code" || id.Name == "TooMany") {
					list = []ast.Expr{n.Value}
				}
			case *ast.CompositeLit:
				if id, ok := n.Type.(*ast.Ident); ok && id.Name == "problem" {
					list = n.Elts[1:2]
				}
				if m, ok := n.Type.(*ast.MapType); ok && len(n.Elts) > 3 { // the codes of what the parser says
					if id, ok := m.Key.(*ast.Ident); ok && id.Name == "error" {
						for _, e := range n.Elts {
							list = append(list, e.(*ast.KeyValueExpr).Value)
						}
					}
				}
			}
			for _, e := range list {
				if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
					s, err := strconv.Unquote(l.Value)
					require.NoError(t, err)
					add(s)
				}
			}
			return true
		})
	}
	for _, field := range []string{"reference", "account", "currency"} { // made of the field's name
		add(field + "_invalid")
	}
	slices.Sort(want)
	var have []string
	for _, c := range openapi(t)["components"].(map[string]any)["schemas"].(map[string]any)["Code"].(map[string]any)["enum"].([]any) {
		have = append(have, c.(string))
	}
	require.Equal(t, slices.Compact(want), have)
}

// What the server answers is what the document says.
func TestAnswersMatchTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(openapiFile)
	require.NoError(t, err)
	doc, err := webtest.NewDocument(text)
	require.NoError(t, err)
	check := func(schema, text string) {
		t.Helper()
		require.NoError(t, doc.Valid(schema, text), "%s: %s", schema, text)
	}
	s := setup(t)
	batch := `{"credits":[{"key":"k2","reference":"r2","account":"u1","currency":"CNY","amount":7},` +
		`{"key":"k3","reference":"r3","account":"full","currency":"CNY","amount":7}]}`
	check("NewCredit", good)
	check("Credit", s.call(t, "POST", "/v1/credits", good).Text)
	check("Credit", s.call(t, "GET", "/v1/credits/r1", "").Text)
	check("NewBatch", batch)
	check("BatchResults", s.call(t, "POST", "/v1/credits:batch", batch).Text)
	check("Account", s.call(t, "GET", "/v1/accounts/u1", "").Text)
	check("Statement", s.call(t, "GET", "/v1/accounts/u1/statement?currency=CNY&limit=1", "").Text)
	check("CreditList", s.call(t, "GET", "/v1/credits?limit=1", "").Text)
	check("Health", s.call(t, "GET", "/readyz", "").Text)
	check("Health", s.call(t, "GET", "/livez", "").Text)
	check("Problem", s.call(t, "GET", "/v1/credits/zz", "").Text)
	check("Problem", s.call(t, "GET", "/v1/credits", "", as(writingToken)).Text)
	check("Problem", s.call(t, "POST", "/v1/credits", "").Text)
	var invalid *jsonschema.ValidationError
	require.ErrorAs(t, doc.Valid("NewCredit", strings.Replace(good, "100", "1.5", 1)), &invalid, "the schemas can say no")
}
