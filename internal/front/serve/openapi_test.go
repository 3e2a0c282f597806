package serve

import (
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/front/web/webtest"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
)

// docs/openapi.yaml is generated from the endpoints and their types, and must be up to date.
func TestDocumentIsCommitted(t *testing.T) {
	t.Parallel()
	webtest.Committed(t, (&Server{}).API(), "../../../docs/openapi.yaml")
}

// checker compares answers with the API document.
type checker struct {
	*webtest.Document
	seen map[string]bool // codes
}

// check requires that the document lists an answer for its path with its status and type. A problem must also have a
// listed code.
func (c *checker) check(t *testing.T, e *web.Endpoint, r *reply) {
	t.Helper()
	require.NoError(t, c.Check(e.Method, e.Path, r), "%s", r.Text)
	if code := r.Code(); code != "" {
		c.seen[code] = true
	}
}

// Every answer conforms to the API document, and the tests produce every error code.
func TestAnswersMatchTheDocument(t *testing.T) {
	t.Parallel()
	doc, err := webtest.DocumentOf((&Server{}).API())
	require.NoError(t, err)
	c := &checker{Document: doc, seen: map[string]bool{}}
	s := setup(t, options{cfg: func(c *Config) { c.Rate, c.Burst = 1, 1_000 }})
	all := map[string]*web.Endpoint{}
	for _, e := range s.endpoints() {
		all[e.ID] = &e
	}
	require.Len(t, all, 5, "each is called below")
	c.checkGrabs(t, s, all["grab"], all["own-receipts"])
	c.checkBatches(t, s, all["grab-batch"])
	c.checkReads(t, s, all)
	for _, code := range []string{"not_found", "method_not_allowed", "internal_error", "body_incomplete", "host_unknown"} {
		c.seen[code] = true // codes for unknown paths and methods, incomplete requests, and `hongbao dev`
	}
	require.Equal(t, public(), slices.Sorted(maps.Keys(c.seen)), "every code was met")

	r := s.call(t, "GET", "/openapi.json", "", header("Authorization", ""))
	require.Equal(t, http.StatusOK, r.Status)
	require.Equal(t, "3.1.0", r.Body["openapi"])
	var invalid *jsonschema.ValidationError
	require.ErrorAs(t, c.Valid("GrabAnswer", `{"outcome":"won","time":"now"}`), &invalid, "the schemas can say no")
}

func (c *checker) checkGrabs(t *testing.T, s *server, grab, own *web.Endpoint) {
	t.Helper()
	for _, id := range append(outcomes(), "transient", "unknown", "Bad") {
		c.check(t, grab, s.call(t, "POST", "/v1/campaigns/"+id+"/grabs", good))
	}
	c.check(t, grab, s.call(t, "POST", "/v1/campaigns/granted/grabs?dry_run=true", good))
	for _, id := range []string{"counts", "several"} {
		c.check(t, grab, s.call(t, "POST", "/v1/campaigns/"+id+"/grabs", "{}"))
	}
	for _, b := range badBodies {
		c.check(t, grab, s.call(t, "POST", "/v1/campaigns/granted/grabs", b.body, b.tweaks()...))
	}
	for _, who := range []tweak{forUser("u1", "dev=d1"), forUser("u 1", ""), forUser("u1", "x=1"), as(viewerText)} {
		c.check(t, grab, s.call(t, "POST", grabPath, good, who))
		c.check(t, own, s.call(t, "GET", minePath, "", who))
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
		c.check(t, list, s.call(t, "GET", "/v1/campaigns/"+id+"/grabs?user=u1", "", as(wholeText)))
	}
	c.check(t, list, s.call(t, "GET", "/v1/campaigns/granted/grabs", "", as(wholeText)))
	for _, e := range all {
		if len(e.Security) > 0 {
			c.check(t, e, s.call(t, e.Method, strings.Replace(e.Path, "{id}", "granted", 1), good, as("x")))
		}
	}
	for _, err := range []error{store.ErrFrozen, store.ErrNotDurable, ledger.ErrArchived} {
		s := setup(t, options{fake: &fake{err: err}})
		c.check(t, own, s.call(t, "GET", "/v1/campaigns/granted/grabs/me", ""))
		c.check(t, list, s.call(t, "GET", "/v1/campaigns/granted/grabs?user=u1", "", as(wholeText)))
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

// public returns the error codes of the public listener.
func public() []string { return webtest.Codes((&Server{}).API()) }

// Every error code that only this listener uses belongs to an endpoint.
func TestCodesAreUsed(t *testing.T) {
	t.Parallel()
	all := public()
	for code := range codes {
		require.Contains(t, all, code)
	}
}

// docs/http.md lists each error code with its status.
func TestPageHasTheCodes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/http.md")
	require.NoError(t, err)
	webtest.OnPage(t, string(page), public())
}
