package web

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/guard"
)

// RequestID is the header that identifies an answer in the server's log. Answers of a Crowd endpoint have it only if
// they are problems, because other answers are not logged.
const RequestID = "X-Request-Id"

// Header values of most answers, as shared slices that save an allocation per answer. Header.Set and Header.Add
// never modify them.
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

// Endpoint handles one method of a path, and describes it in the OpenAPI document.
type Endpoint struct {
	Method, Path, ID, Summary, Description string
	// Params are the parameters in the path, in the query and in headers.
	Params []*huma.Param
	// Security names schemes of API.Schemes. A request must pass one of them; without a scheme anyone may call
	// the endpoint.
	Security []string
	// Roles are the permitted roles of an API key. If there are none, any valid credentials are accepted.
	Roles []string
	// Body and Answer are values of the types of the request's body and of the answer, or nil.
	Body, Answer any
	// Created means that the status is 201 if the request created something, and 200 otherwise.
	Created bool
	// Accepted is a value of the type of the answer with status 202, or nil if there is none.
	Accepted any
	// Crowd means that many users call the endpoint within a second. For such an endpoint the server saves work: it sends
	// an id only with problems, and omits headers that have no effect on the answer to a POST. Only a POST may set Crowd.
	Crowd bool
	// Codes are the endpoint's error codes, without those that every endpoint can answer.
	Codes []string
	// Do identifies the caller and answers. Its error becomes a problem.
	Do func(w http.ResponseWriter, r *http.Request) error
}

// API describes the endpoints of one listener.
type API struct {
	// Listener is the configuration key of the listener's address.
	Title, Description, Listener string
	// Pages tells a caller with an unknown path where to find a list of the paths.
	Pages     string
	Schemes   map[string]*huma.SecurityScheme
	Endpoints []Endpoint
	// Codes are the error codes of all endpoints, without not_found, method_not_allowed and internal_error.
	Codes []string
	// AnswerTime is the time limit for a request.
	AnswerTime time.Duration
	// Admit may refuse a request before anything else happens; nil admits every request.
	Admit func(r *http.Request) error
	// Unknown may refuse a request for an unknown path with another error than not_found. If it is nil, every
	// caller learns that the path is unknown.
	Unknown func(r *http.Request) error
	Log     *zap.Logger
}

// CampaignID returns the path parameter for a campaign.
func CampaignID() *huma.Param {
	return &huma.Param{
		Name: "id", In: "path", Required: true, Description: "The campaign's id.",
		Schema: &huma.Schema{Type: huma.TypeString, Pattern: "^[a-z][a-z0-9_-]{0,63}$"},
	}
}

// CampaignOf returns the campaign id in the request's path.
func CampaignOf(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if hongbao.CheckCampaignID(id) != nil {
		return "", Refuse("campaign_invalid", "want 1 to 64 of a-z, 0-9, - and _, beginning with a letter")
	}
	return id, nil
}

// IDSchema returns the schema of ids of users and accounts, and of references.
func IDSchema() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Pattern: "^[!-~]{1,128}$"} }

// Credentials returns the scheme of the Authorization header in lower case, and the text after it. It returns empty
// texts unless there is exactly one such header.
func Credentials(r *http.Request) (scheme, text string) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", ""
	}
	scheme, text, _ = strings.Cut(values[0], " ")
	return strings.ToLower(scheme), text
}

// Bearer returns the token or the API key of the request, or "".
func Bearer(r *http.Request) string {
	scheme, text := Credentials(r)
	if scheme != "bearer" {
		return ""
	}
	return text
}

// Address returns the address of the request's connection without the port: behind a proxy, the proxy's.
func Address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// ActorOf returns the actor for the request of a caller.
func ActorOf(who *access.Caller, r *http.Request, requestID string) access.Actor {
	actor := who.Actor(requestID)
	actor.Address = Address(r)
	return actor
}

// Stranger returns the actor for a request without a valid key.
func Stranger(r *http.Request, requestID string) access.Actor {
	return access.Actor{Who: access.UnknownCaller, RequestID: requestID, Address: Address(r)}
}

// Handler returns a handler for the endpoints and for /openapi.json. A path that is not clean counts as unknown,
// because a redirect would answer before the caller is identified.
func (a *API) Handler() (http.Handler, error) {
	document, err := a.Document().MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("make the OpenAPI document: %w", err)
	}
	paths := map[string][]Endpoint{"/openapi.json": {{Method: http.MethodGet,
		Do: func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(document) // fails only if the caller has closed the connection
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

// path returns the handler of one path, which selects the endpoint by the method.
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
			// For HEAD, net/http drops the body of the answer.
			if e := &list[i]; e.Method == r.Method || e.Method == http.MethodGet && r.Method == http.MethodHead {
				a.checked(w, r, e.Crowd, e.Do)
				return
			}
		}
		a.checked(w, r, false, other)
	})
}

// checked sets the request's id and deadline, calls do, and writes the problem if do fails or panics. For a Crowd endpoint it
// omits the headers against caching and content sniffing. A POST does not need them: caches never store its answer
// without a lifetime (RFC 9110, 9.3.3), and browsers never load it as a script or a style.
func (a *API) checked(w http.ResponseWriter, r *http.Request, crowd bool, do func(http.ResponseWriter, *http.Request) error) {
	h := w.Header()
	if !crowd {
		h[RequestID] = []string{newRequestID()}
		h["Cache-Control"], h["X-Content-Type-Options"] = noStore, noSniff
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), a.AnswerTime, errOverdue)
	defer cancel()
	r = r.WithContext(ctx)
	panicked := guard.Call(a.Log, func() error {
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
		return nil
	})
	if panicked != nil {
		failAfterPanic(w, r, a.Log, panicked)
	}
}
