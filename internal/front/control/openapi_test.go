package control

import (
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/front/web/webtest"
)

// docs/openapi-control.yaml is generated from the operations and their types.
func TestDocumentIsCommitted(t *testing.T) {
	t.Parallel()
	webtest.Committed(t, (&Control{}).API(), "../../../docs/openapi-control.yaml")
}

// docs/administration.md lists each error code with its status.
func TestPageHasTheCodes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/administration.md")
	require.NoError(t, err)
	webtest.OnPage(t, string(page), webtest.Codes((&Control{}).API()))
}

var document = sync.OnceValues(func() (*webtest.Document, error) { return webtest.DocumentOf((&Control{}).API()) })

// documented checks an answer against the API document. All tests of this package check their answers with it.
func documented(r *http.Request, got *reply) error {
	if r.Pattern == "" || r.Pattern == "/" || r.Pattern == "/openapi.json" || got.Code() == "method_not_allowed" {
		return nil // of no operation
	}
	d, err := document()
	if err != nil {
		return err
	}
	return d.Check(r.Method, r.Pattern, got)
}

// The check of answers rejects a wrong answer.
func TestDocumentSaysNo(t *testing.T) {
	t.Parallel()
	r := &http.Request{Method: http.MethodGet, Pattern: "/v1/audit"}
	head := http.Header{"Content-Type": {"application/json"}}
	require.NoError(t, documented(r, &reply{Status: 200, Head: head, Text: `{"verdict":"agrees","differences":0}`}))
	require.Error(t, documented(r, &reply{Status: 200, Head: head, Text: `{"verdict":"perhaps","differences":0}`}))
	require.Error(t, documented(r, &reply{Status: 200, Head: head, Text: `{"verdict":"agrees","differences":0,"x":1}`}))
	require.Error(t, documented(r, &reply{Status: 202, Head: head, Text: `{}`}))
	require.Error(t, documented(r, &reply{Status: 409, Head: head, Text: `{}`, Body: map[string]any{"code": "refused"}}))
}
