package serve

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// Document is the OpenAPI 3.1 document of the public listener, made of the endpoints and of their Go types.
func Document() *huma.OpenAPI {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "Hongbao", Version: "v1", Description: "Grabs, receipts and countdowns. docs/http.md tells " +
			"more."},
		Components: &huma.Components{Schemas: schemas, SecuritySchemes: map[string]*huma.SecurityScheme{
			"token": {Type: "http", Scheme: "bearer", BearerFormat: "JWT"},
		}},
	}
	for _, e := range endpoints() {
		doc.AddOperation(e.operation(schemas))
	}
	return doc
}

// operation describes the endpoint.
func (e *endpoint) operation(schemas huma.Registry) *huma.Operation {
	op := &huma.Operation{
		Method: e.method, Path: e.path, OperationID: e.id, Summary: e.summary, Description: e.description,
		Parameters: []*huma.Param{{
			Name: "id", In: "path", Required: true, Description: "The campaign's id.",
			Schema: &huma.Schema{Type: huma.TypeString, Pattern: "^[a-z][a-z0-9_-]{0,63}$"},
		}},
		Responses: map[string]*huma.Response{"200": {
			Description: "Decided, or read.", Content: content(schemas, "application/json", e.answer),
		}},
	}
	codes := slices.Concat(e.codes, []string{"not_found"})
	if !e.open {
		op.Security = []map[string][]string{{"token": {}}}
		codes = append(codes, "unauthorized", "rate_limited")
	}
	if e.body != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: content(schemas, "application/json", e.body)}
	}
	for status, list := range byStatus(codes) {
		r := &huma.Response{
			Description: "code " + strings.Join(list, ", "), Content: content(schemas, "application/problem+json", Problem{}),
		}
		if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
			r.Headers = map[string]*huma.Param{"Retry-After": {
				Description: "Seconds to wait.", Schema: &huma.Schema{Type: huma.TypeInteger},
			}}
		}
		op.Responses[strconv.Itoa(status)] = r
	}
	return op
}

func content(schemas huma.Registry, kind string, v any) map[string]*huma.MediaType {
	t := reflect.TypeOf(v)
	return map[string]*huma.MediaType{kind: {Schema: schemas.Schema(t, true, t.Name())}}
}

// byStatus sorts codes by the status that they come with.
func byStatus(codes []string) map[int][]string {
	out := map[int][]string{}
	for _, code := range codes {
		what, ok := refusals[code]
		if !ok {
			panic(fmt.Sprintf("an endpoint has the code %q, which does not exist; there are %v", code,
				slices.Sorted(maps.Keys(refusals))))
		}
		out[what.status] = append(out[what.status], code)
	}
	return out
}
