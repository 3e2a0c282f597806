package web

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
)

// RequestID is the header that identifies an answer in the server's log. An answer of a Crowd endpoint has it only if
// it is a problem: the log has no line of the others.
const RequestID = "X-Request-Id"

// Header values of most answers, allocated once. Header.Set and Add do not change them.
var (
	noStore, noSniff   = []string{"no-store"}, []string{"nosniff"}
	plainJSON, closeIt = []string{"application/json"}, []string{"close"}
)

// newRequestID returns 64 random bits in hex.
func newRequestID() string {
	var bits [8]byte
	binary.BigEndian.PutUint64(bits[:], rand.Uint64())
	return hex.EncodeToString(bits[:])
}

// Endpoint is the handling of a method of a path, and its description in the OpenAPI document.
type Endpoint struct {
	Method, Path, ID, Summary, Description string
	// Params are the parameters in the path, in the query and in headers.
	Params []*huma.Param
	// Security names the schemes of API.Schemes, one of which a request must pass; none: anyone may call it.
	Security []string
	// Roles are the roles of which an API key has one; none accepts any credentials.
	Roles []string
	// Body and Answer are values of the types of the request's body and of the answer; nil for none.
	Body, Answer any
	// Created: the answer has status 201 if this request created its subject, otherwise 200.
	Created bool
	// Accepted is a value of the type of the answer with status 202; nil if there is none.
	Accepted any
	// Crowd: a crowd calls the endpoint within a second, so its answers avoid costs per request: a timer for each
	// request, headers that have no effect on the answer of a POST, and an id (but a problem has one). The method must be
	// POST.
	Crowd bool
	// Codes are the codes of its problems, without those that every endpoint can answer.
	Codes []string
	// Do identifies the caller, then answers. Its error becomes a problem.
	Do func(w http.ResponseWriter, r *http.Request) error
}

// API describes one listener.
type API struct {
	// Listener names the configuration of its address.
	Title, Description, Listener string
	// Pages says to a caller with an unknown path where the paths are listed.
	Pages     string
	Schemes   map[string]*huma.SecurityScheme
	Endpoints []Endpoint
	// Codes are the codes of problems that all endpoints can answer, without not_found and method_not_allowed.
	Codes []string
	// AnswerTime is how long a request may take.
	AnswerTime time.Duration
	// Admit refuses a request before anything else happens; nil admits all.
	Admit func(r *http.Request) error
	// Unknown refuses a caller who may not learn that a path does not exist; nil: anyone may.
	Unknown func(r *http.Request) error
	Log     *zap.Logger
}

// CampaignID returns the parameter that names a campaign in a path.
func CampaignID() *huma.Param {
	return &huma.Param{
		Name: "id", In: "path", Required: true, Description: "The campaign's id.",
		Schema: &huma.Schema{Type: huma.TypeString, Pattern: "^[a-z][a-z0-9_-]{0,63}$"},
	}
}

// CampaignOf returns the campaign that the request's path names.
func CampaignOf(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if hongbao.CheckCampaignID(id) != nil {
		return "", Refuse("campaign_invalid", "want 1 to 64 of a-z, 0-9, - and _, beginning with a letter")
	}
	return id, nil
}

// IDSchema returns the schema of the id of a user or an account, and of a reference.
func IDSchema() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Pattern: "^[!-~]{1,128}$"} }

// Credentials returns the scheme of the request's Authorization in lower case, and the text after it. There must be
// one Authorization header.
func Credentials(r *http.Request) (scheme, text string) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", ""
	}
	scheme, text, _ = strings.Cut(values[0], " ")
	return strings.ToLower(scheme), text
}

// Bearer returns the token or the API key of the request; empty if it has none.
func Bearer(r *http.Request) string {
	scheme, text := Credentials(r)
	if scheme != "bearer" {
		return ""
	}
	return text
}

// Handler answers the endpoints, and /openapi.json. It treats an odd path as an unknown one: a redirect would answer
// before the caller is identified.
func (a *API) Handler() (http.Handler, error) {
	document, err := a.Document().MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("make the OpenAPI document: %w", err)
	}
	paths := map[string][]Endpoint{"/openapi.json": {{Method: http.MethodGet,
		Do: func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(document) // fails only if the caller has gone
			return nil
		}}}}
	for _, e := range a.Endpoints {
		if e.Crowd && e.Method != http.MethodPost {
			return nil, fmt.Errorf("%s %s is for a crowd: want a POST, whose answer no cache keeps", e.Method, e.Path)
		}
		paths[e.Path] = append(paths[e.Path], e)
	}
	mux := http.NewServeMux()
	for path, list := range paths {
		mux.Handle(path, a.path(list))
	}
	unknown := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.checked(w, r, false, a.unknown) })
	mux.Handle("/", unknown)
	return CleanPaths(mux, unknown), nil
}

func (a *API) unknown(_ http.ResponseWriter, r *http.Request) error {
	if a.Unknown != nil {
		if err := a.Unknown(r); err != nil {
			return err
		}
	}
	return Refuse("not_found", a.Pages)
}

// path answers the methods of one path.
func (a *API) path(list []Endpoint) http.Handler {
	var methods []string
	for i := range list {
		methods = append(methods, list[i].Method)
		if list[i].Method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	allow := strings.Join(methods, ", ")
	other := func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Allow", allow)
		return Refuse("method_not_allowed", "this path takes "+allow+" only")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range list {
			// net/http leaves out the body of an answer to HEAD.
			if e := &list[i]; e.Method == r.Method || e.Method == http.MethodGet && r.Method == http.MethodHead {
				a.checked(w, r, e.Crowd, e.Do)
				return
			}
		}
		a.checked(w, r, false, other)
	})
}

// checked sets the request's id and deadline, calls do, and writes its error. No cache keeps the answer of a POST
// without a lifetime (RFC 9110, 9.3.3), and no page loads it as a script or a style. So a crowd's answer has no headers
// that forbid these.
func (a *API) checked(w http.ResponseWriter, r *http.Request, crowd bool, do func(http.ResponseWriter, *http.Request) error) {
	h := w.Header()
	patience := patienceOf(r)
	if patience != nil && patience.over() { // the previous request was overdue, and was answered nevertheless
		h["Connection"] = closeIt
		r, crowd = r.WithContext(context.WithoutCancel(r.Context())), false
	}
	if !crowd {
		h[RequestID] = []string{newRequestID()}
		h["Cache-Control"], h["X-Content-Type-Options"] = noStore, noSniff
	}
	if crowd && patience != nil {
		patience.begin(a.AnswerTime)
		defer patience.end()
	} else {
		ctx, cancel := context.WithTimeout(r.Context(), a.AnswerTime)
		defer cancel()
		r = r.WithContext(ctx)
	}
	var err error
	if a.Admit != nil {
		err = a.Admit(r)
	}
	if err == nil {
		err = do(w, r)
	}
	if err != nil {
		Fail(w, r, a.Log, zap.DebugLevel, err)
	}
}
