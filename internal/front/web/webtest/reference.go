package webtest

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao/internal/front/web"
)

// reference writes an API's reference page from its OpenAPI document.
type reference struct {
	out strings.Builder
	doc *huma.OpenAPI
	// types are the names of the schemas to which the page links.
	types map[string]bool
	// common has the error codes that all operations of a method share, by method and status.
	common map[string]map[string][]string
}

// Reference returns an API's reference page in Markdown: the operations in the order of the endpoints, then the
// types.
func Reference(api *web.API, document string) string {
	r := &reference{doc: api.Document(), types: map[string]bool{}, common: map[string]map[string][]string{}}
	r.head(document)
	var operations []*huma.Operation
	for i := range api.Endpoints {
		o := operationOf(r.doc, &api.Endpoints[i])
		operations = append(operations, o)
		r.share(o)
	}
	r.out.WriteString("| operation | what it does | who may |\n|---|---|---|\n")
	for _, o := range operations {
		fmt.Fprintf(&r.out, "| `%s %s` | [%s](#%s) | %s |\n", o.Method, o.Path, o.Summary, anchor(o.Summary), r.who(o))
	}
	for _, method := range slices.Sorted(maps.Keys(r.common)) {
		fmt.Fprintf(&r.out, "\n## Each %s\n\n| status | answer |\n|---|---|\n", method)
		for _, status := range slices.Sorted(maps.Keys(r.common[method])) {
			r.problem(status, r.common[method][status])
		}
	}
	for _, o := range operations {
		r.operation(o)
	}
	r.allTypes()
	return r.out.String()
}

func operationOf(doc *huma.OpenAPI, e *web.Endpoint) *huma.Operation {
	if e.Method == http.MethodGet {
		return doc.Paths[e.Path].Get
	}
	return doc.Paths[e.Path].Post
}

// share removes from common the codes that this operation does not have.
func (r *reference) share(o *huma.Operation) {
	common := r.common[o.Method]
	if common == nil { // the first operation
		common = map[string][]string{}
		for status, answer := range o.Responses {
			common[status] = codesOf(answer)
		}
		r.common[o.Method] = common
	}
	for status := range common {
		codes := codesOf(o.Responses[status])
		common[status] = slices.DeleteFunc(common[status], func(c string) bool { return !slices.Contains(codes, c) })
	}
}

// codesOf returns the error codes of an answer, if the answer is a problem.
func codesOf(answer *huma.Response) []string {
	if answer == nil {
		return nil
	}
	list, ok := strings.CutPrefix(answer.Description, "code ")
	if !ok {
		return nil
	}
	return strings.Split(list, ", ")
}

func (r *reference) head(document string) {
	fmt.Fprintf(&r.out, "# %s: reference\n\n%s\n", r.doc.Info.Title, paragraph(r.doc.Info.Description))
	fmt.Fprintf(&r.out, "\n%s\n\n%s\n\n", paragraph("This page is generated from ["+document+"]("+document+"), which is generated from the code: "+
		"TestDocumentIsCommitted compares both, and writes them with -update. Amounts are integers in minor units of the "+
		"currency: fen, cents. Times are RFC 3339 in UTC with milliseconds: "+
		"2026-11-24T15:00:00.000Z. Fields with seconds in their names count seconds; ms stands for milliseconds. "+
		"Every error answer is a [Problem](#problem) with one of the codes; the page named above says what to do about each code."),
		"A request needs one of these credentials. The words in parentheses are roles; the API key must have one of them.")
	for _, name := range slices.Sorted(maps.Keys(r.doc.Components.SecuritySchemes)) {
		s, scheme := r.doc.Components.SecuritySchemes[name], "Bearer"
		if s.Scheme != "bearer" {
			scheme = s.Scheme
		}
		fmt.Fprintf(&r.out, "- `%s`: `Authorization: %s ...`. %s\n", name, scheme, prose(s.Description))
	}
	r.out.WriteString("\n")
}

// who returns the alternative credentials for a request.
func (r *reference) who(o *huma.Operation) string {
	roles := map[string][]string{}
	for _, one := range o.Security {
		for scheme, role := range one {
			roles[scheme] = append(roles[scheme], role...)
		}
	}
	var all []string
	for _, scheme := range slices.Sorted(maps.Keys(roles)) {
		all = append(all, "`"+scheme+"`")
		if len(roles[scheme]) > 0 {
			all[len(all)-1] += " (" + strings.Join(roles[scheme], ", ") + ")"
		}
	}
	if len(all) == 0 {
		return "everybody"
	}
	return strings.Join(all, " or ")
}

func (r *reference) operation(o *huma.Operation) {
	fmt.Fprintf(&r.out, "\n## %s\n\n`%s %s`\n", o.Summary, o.Method, o.Path)
	if o.Description != "" {
		fmt.Fprintf(&r.out, "\n%s\n", paragraph(o.Description))
	}
	fmt.Fprintf(&r.out, "\nWho may: %s.\n", r.who(o))
	if len(o.Parameters) > 0 {
		r.out.WriteString("\n| parameter | in | type | what |\n|---|---|---|---|\n")
	}
	for _, p := range o.Parameters {
		fmt.Fprintf(&r.out, "| `%s` | %s | %s%s | %s |\n", p.Name, p.In, r.typeOf(p.Schema), optional(p.Required), prose(p.Description))
	}
	if o.RequestBody != nil {
		r.body(o.RequestBody.Content["application/json"].Schema)
	}
	r.out.WriteString("\n| status | answer |\n|---|---|\n")
	for _, status := range slices.Sorted(maps.Keys(o.Responses)) {
		answer := o.Responses[status]
		if c := answer.Content["application/json"]; c != nil {
			fmt.Fprintf(&r.out, "| %s | %s |\n", status, r.typeOf(c.Schema))
		}
		common := r.common[o.Method][status]
		r.problem(status, slices.DeleteFunc(codesOf(answer), func(c string) bool { return slices.Contains(common, c) }))
	}
	fmt.Fprintf(&r.out, "| others | [those of each %s](#each-%s) |\n", o.Method, strings.ToLower(o.Method))
}

// problem writes a table row with a status and its error codes, if there are any.
func (r *reference) problem(status string, codes []string) {
	if len(codes) > 0 {
		fmt.Fprintf(&r.out, "| %s | `%s` |\n", status, strings.Join(codes, "`, `"))
	}
}

func (r *reference) body(s *huma.Schema) {
	if s = r.schema(s.Ref); len(s.Properties) == 0 {
		r.out.WriteString("\nBody: `{}`.\n")
		return
	}
	r.fields("body", s)
}

// schema returns the schema to which a reference points.
func (r *reference) schema(ref string) *huma.Schema {
	return r.doc.Components.Schemas.SchemaFromRef(ref)
}

func (r *reference) fields(name string, s *huma.Schema) {
	fmt.Fprintf(&r.out, "\n| %s | type | what |\n|---|---|---|\n", name)
	for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
		one := s.Properties[field]
		fmt.Fprintf(&r.out, "| `%s` | %s%s | %s |\n", field, r.typeOf(one), optional(slices.Contains(s.Required, field)),
			prose(one.Description))
	}
}

// allTypes writes the types to which the page links, and the types to which those link.
func (r *reference) allTypes() {
	r.out.WriteString("\n## Types\n")
	r.typeOf(&huma.Schema{Ref: "#/components/schemas/Problem"})
	known := r.doc.Components.Schemas.Map()
	for before := -1; before < len(r.types); { // the types found so far may link to further types
		before = len(r.types)
		scratch := &reference{doc: r.doc, types: r.types}
		for name := range maps.Clone(r.types) {
			scratch.fields(name, known[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.types)) {
		fmt.Fprintf(&r.out, "\n### %s\n", name)
		r.fields("field", known[name])
	}
}

// typeOf returns a description of the values that a schema permits.
func (r *reference) typeOf(s *huma.Schema) string {
	switch {
	case s.Ref != "":
		name := s.Ref[strings.LastIndex(s.Ref, "/")+1:]
		r.types[name] = true
		return "[" + name + "](#" + anchor(name) + ")"
	case len(s.OneOf) > 0:
		return r.typeOf(s.OneOf[0]) + " or null"
	case len(s.Enum) > 0:
		var all []string
		for _, v := range s.Enum {
			all = append(all, fmt.Sprintf("`%v`", v))
		}
		return strings.Join(all, ", ")
	}
	return r.simpleType(s) + bounds(s)
}

func (r *reference) simpleType(s *huma.Schema) string {
	switch {
	case s.Type == huma.TypeArray && s.Nullable:
		return "list of " + r.typeOf(s.Items) + ", or null"
	case s.Type == huma.TypeArray:
		return "list of " + r.typeOf(s.Items)
	case s.Type == "":
		return "any"
	case s.Format == "date-time":
		return "time"
	case s.Type == huma.TypeString:
		return "text"
	}
	return s.Type
}

func bounds(s *huma.Schema) (text string) {
	number := func(f *float64) string { return strconv.FormatFloat(*f, 'f', -1, 64) }
	if s.Minimum != nil {
		text += ", from " + number(s.Minimum)
	}
	if s.Maximum != nil {
		text += ", to " + number(s.Maximum)
	}
	for _, most := range []*int{s.MaxLength, s.MaxItems} {
		if most != nil {
			text += ", at most " + strconv.Itoa(*most)
		}
	}
	if s.Pattern != "" {
		text += " `" + strings.ReplaceAll(s.Pattern, "|", `\|`) + "`"
	}
	return text
}

func optional(required bool) string {
	if required {
		return ""
	}
	return ", optional"
}

var page = regexp.MustCompile(`\bdocs/([a-z-]+\.md)\b`)

// quoted matches an identifier in single quotes. A struct tag can't have backticks.
var quoted = regexp.MustCompile(`'([a-z_.0-9]+)'`)

// prose turns the names of other pages in a description into links, and quoted identifiers into code.
func prose(text string) string {
	return quoted.ReplaceAllString(page.ReplaceAllString(text, "[$1]($1)"), "`$1`")
}

// paragraph returns prose wrapped at 120 columns.
func paragraph(text string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(prose(text)) {
		switch {
		case column+1+len(word) > 120:
			b.WriteString("\n")
			column = 0
		case column > 0:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

// anchor returns the anchor that GitHub generates for a heading.
func anchor(heading string) string {
	words := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(words, " ", "-")
}

// referenceFile returns the path of the reference page that belongs to an OpenAPI file.
func referenceFile(document string) string {
	name := strings.TrimSuffix(filepath.Base(document), ".yaml") + ".md"
	return filepath.Join(filepath.Dir(document), strings.Replace(name, "openapi", "api", 1))
}
