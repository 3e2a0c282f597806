package web

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao/internal/model"
)

// Document returns the OpenAPI 3.1 document of the API, generated from the endpoints and their Go types.
func (a *API) Document() *huma.OpenAPI {
	schemas := huma.NewMapRegistry("#/components/schemas/", schemaName)
	doc := &huma.OpenAPI{
		OpenAPI:    "3.1.0",
		Info:       &huma.Info{Title: a.Title, Version: "v1", Description: a.Description},
		Components: &huma.Components{Schemas: schemas, SecuritySchemes: a.Schemes},
		Servers:    []*huma.Server{{URL: "/", Description: "The listener that answers this document: " + a.Listener}},
	}
	tags, codes := map[string]bool{}, map[string]bool{}
	for i := range a.Endpoints {
		e := &a.Endpoints[i]
		list := slices.Concat(e.Codes, a.Codes, []string{"not_found", "method_not_allowed", "internal_error"})
		if len(e.Security) > 0 {
			list = append(list, "unauthorized")
		}
		for _, code := range list {
			codes[code] = true
		}
		tags[e.tag()] = true
		doc.AddOperation(e.operation(schemas, list))
	}
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		doc.Tags = append(doc.Tags, &huma.Tag{Name: tag})
	}
	for name, schema := range schemas.Map() {
		allowNull(schemas.TypeFromRef("#/components/schemas/"+name), schema)
	}
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		one := schemas.Map()["Problem"].Properties["code"]
		one.Enum = append(one.Enum, code)
	}
	return doc
}

// schemaName returns the name of a type in the document, where Campaign is the specification of a campaign.
func schemaName(t reflect.Type, hint string) string {
	if t == reflect.TypeFor[model.Campaign]() {
		return "ListedCampaign"
	}
	return huma.DefaultSchemaNamer(t, hint)
}

// tag returns the endpoint's group: the first part of its path after the version.
func (e *Endpoint) tag() string {
	if strings.Contains(e.Path, "/grabs") {
		return "grabs"
	}
	names := strings.Split(strings.Trim(e.Path, "/"), "/")
	if names[0] == "v1" {
		name, _, _ := strings.Cut(names[1], ":") // without the verb after the colon
		return name
	}
	return "health"
}

// allowNull marks a field as nullable if it is a pointer to an object and is always present.
func allowNull(t reflect.Type, schema *huma.Schema) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		field := schema.Properties[name]
		if field != nil && field.Ref != "" && f.Type.Kind() == reflect.Pointer && !strings.Contains(options, "omit") {
			schema.Properties[name] = &huma.Schema{Description: field.Description,
				OneOf: []*huma.Schema{{Ref: field.Ref}, {Type: "null"}}}
		}
	}
}

// operation returns the endpoint's description with these error codes.
func (e *Endpoint) operation(schemas huma.Registry, codes []string) *huma.Operation {
	answer := &huma.Response{Description: "The request succeeded."}
	if e.Answer != nil {
		answer.Content = content(schemas, "application/json", e.Answer)
	}
	op := &huma.Operation{
		Method: e.Method, Path: e.Path, OperationID: e.ID, Summary: e.Summary, Description: e.Description,
		Parameters: e.Params, Tags: []string{e.tag()},
		Responses: map[string]*huma.Response{"200": answer},
	}
	if e.Created {
		op.Responses["201"] = &huma.Response{Description: "This request created it.", Content: answer.Content}
	}
	if e.Accepted != nil {
		op.Responses[strconv.Itoa(http.StatusAccepted)] = &huma.Response{
			Description: "The work continues after this answer.", Content: content(schemas, "application/json", e.Accepted),
		}
	}
	for _, scheme := range e.Security {
		roles := e.Roles
		if len(e.Security) > 1 && scheme != "key" {
			roles = nil // a user's token has no role
		}
		for _, role := range roles {
			op.Security = append(op.Security, map[string][]string{scheme: {role}})
		}
		if len(roles) == 0 {
			op.Security = append(op.Security, map[string][]string{scheme: {}})
		}
	}
	if e.Body != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: content(schemas, "application/json", e.Body)}
	}
	for status, list := range byStatus(codes) {
		r := &huma.Response{
			Description: "code " + strings.Join(list, ", "), Content: content(schemas, "application/problem+json", Problem{}),
		}
		switch status {
		case http.StatusMethodNotAllowed:
			r.Headers = map[string]*huma.Param{"Allow": {
				Description: "The methods that the path accepts.", Schema: &huma.Schema{Type: huma.TypeString},
			}}
		case http.StatusServiceUnavailable, http.StatusTooManyRequests:
			r.Headers = map[string]*huma.Param{"Retry-After": {
				Description: "Seconds to wait before sending the request again.", Schema: &huma.Schema{Type: huma.TypeInteger},
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

func byStatus(list []string) map[int][]string {
	out := map[int][]string{}
	for _, code := range list {
		status := CodeOf(code).Status
		out[status] = append(out[status], code)
	}
	return out
}
