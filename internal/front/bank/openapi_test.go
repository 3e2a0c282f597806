package bank

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/front/web/webtest"
)

// docs/openapi-balance.yaml is generated from the endpoints and their types, and must be up to date.
func TestDocumentIsCommitted(t *testing.T) {
	t.Parallel()
	webtest.Committed(t, (&Balance{}).API(), "../../../docs/openapi-balance.yaml")
}

// Every error code of this package belongs to an endpoint, and docs/remote-balance.md lists it with its status.
func TestCodesAreDocumented(t *testing.T) {
	t.Parallel()
	all := webtest.Codes((&Balance{}).API())
	require.Subset(t, all, slices.Collect(maps.Keys(codes)))
	page, err := os.ReadFile("../../../docs/remote-balance.md")
	require.NoError(t, err)
	webtest.OnPage(t, string(page), all)
}

// Every answer conforms to the API document, and the tests produce every error code.
func TestAnswersMatchTheDocument(t *testing.T) {
	t.Parallel()
	doc, err := webtest.DocumentOf((&Balance{}).API())
	require.NoError(t, err)
	s := setup(t)
	seen := map[string]bool{"busy": true, "in_progress": true} // TestBusy and TestInProgress produce these
	check := func(method, path string, r *reply) {
		t.Helper()
		require.NoError(t, doc.Check(method, path, r), "%s", r.Text)
		if code := r.Code(); code != "" {
			seen[code] = true
		}
	}
	batch := `{"credits":[{"key":"k2","reference":"r2","account":"u1","currency":"CNY","amount":7},` +
		`{"key":"k3","reference":"r3","account":"full","currency":"CNY","amount":7}]}`
	require.NoError(t, doc.Valid("NewCredit", good))
	require.NoError(t, doc.Valid("NewBatch", batch))
	var invalid *jsonschema.ValidationError
	require.ErrorAs(t, doc.Valid("NewCredit", strings.Replace(good, "100", "1.5", 1)), &invalid, "the schemas can say no")
	for _, c := range refused {
		if path := c.endpoint(); path != "" && c.path != "/v1/credits/.." {
			check(c.method, path, c.send(t, s))
		}
	}
	for range 2 {
		check("POST", "/v1/credits", s.call(t, "POST", "/v1/credits", good))
	}
	check("POST", "/v1/credits", s.call(t, "POST", "/v1/credits", amount("7")))
	check("POST", "/v1/credits", s.call(t, "POST", "/v1/credits", good, header("Idempotency-Key", "k7")))
	for _, body := range []string{batch, "{}", `{"credits":[` + strings.Repeat("{},", 20) + `{}]}`} {
		check("POST", "/v1/credits:batch", s.call(t, "POST", "/v1/credits:batch", body))
	}
	for _, reference := range []string{"r1", "zz"} {
		check("GET", "/v1/credits/{reference}", s.call(t, "GET", "/v1/credits/"+reference, ""))
	}
	check("GET", "/v1/credits", s.call(t, "GET", "/v1/credits?limit=1", ""))
	check("GET", "/v1/accounts/{id}", s.call(t, "GET", "/v1/accounts/u1", ""))
	check("GET", "/v1/accounts/{id}/statement", s.call(t, "GET", "/v1/accounts/u1/statement?currency=CNY&limit=1", ""))
	check("GET", "/livez", s.call(t, "GET", "/livez", ""))
	check("GET", "/readyz", s.call(t, "GET", "/readyz", ""))
	s.err = hongbao.Errorf(hongbao.ClassUnknown, "lost")
	check("POST", "/v1/credits", s.call(t, "POST", "/v1/credits", good))
	check("GET", "/v1/accounts/{id}", s.call(t, "GET", "/v1/accounts/u1", ""))
	for _, code := range []string{"not_found", "method_not_allowed", "internal_error", "body_incomplete"} {
		seen[code] = true // codes for unknown paths, wrong methods and incomplete requests
	}
	require.Equal(t, webtest.Codes((&Balance{}).API()), slices.Sorted(maps.Keys(seen)), "every code was met")
}
