package web

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
)

type thing struct {
	Name string `json:"name"`
}

// shop returns an API with two methods on one path.
func shop(do func(w http.ResponseWriter, r *http.Request) error) (*API, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.DebugLevel)
	return &API{
		Title: "Shop", Pages: "see the shop", AnswerTime: time.Minute, Log: zap.New(core),
		Endpoints: []Endpoint{
			{Method: "GET", Path: "/v1/things", ID: "list", Answer: thing{}, Do: do},
			{Method: "POST", Path: "/v1/things", ID: "make", Answer: thing{}, Body: thing{}, Created: true,
				Security: []string{"key"}, Codes: []string{"rate_limited"}, Do: do},
		},
	}, logs
}

func ask(t *testing.T, a *API, method, path string) (*httptest.ResponseRecorder, Problem) {
	t.Helper()
	h, err := a.Handler()
	require.NoError(t, err)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
	var p Problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	return w, p
}

// Each method of a path has its own handler. A request with another method is refused, and the answer lists the
// methods. Unknown paths and paths that are not clean are refused.
func TestHandler(t *testing.T) {
	t.Parallel()
	a, _ := shop(func(w http.ResponseWriter, r *http.Request) error {
		deadline, ok := r.Context().Deadline()
		if left := time.Until(deadline); !ok || left <= 0 || left > time.Minute {
			t.Errorf("it has %s left", left)
		}
		WriteJSON(w, http.StatusCreated, thing{r.Method})
		return nil
	})
	for _, method := range []string{"GET", "POST"} {
		w, _ := ask(t, a, method, "/v1/things")
		require.Equal(t, http.StatusCreated, w.Code)
		require.JSONEq(t, `{"name":"`+method+`"}`, w.Body.String())
		require.Len(t, w.Header().Get(RequestID), 16)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	}
	w, p := ask(t, a, "PUT", "/v1/things")
	require.Equal(t, "method_not_allowed", p.Code)
	require.Equal(t, "GET, HEAD, POST", w.Header().Get("Allow"))
	for _, path := range []string{"/", "/v1/thing", "/v1/things/", "//v1/things", "/v1/../v1/things"} {
		w, p := ask(t, a, "GET", path)
		require.Equal(t, Problem{Type: "about:blank", Title: "There is no such path", Status: 404, Detail: "see the shop",
			Instance: w.Header().Get(RequestID), Code: "not_found"}, p)
	}
}

// An error becomes a problem by its code or its class, which tells the caller what to do. The log has the
// cause.
func TestFail(t *testing.T) {
	t.Parallel()
	for code, err := range map[string]error{
		"rate_limited":    &Refusal{Code: "rate_limited", Wait: 1001 * time.Millisecond},
		"body_too_large":  &Refusal{Code: "body_too_large"},
		"unavailable":     hongbao.Outagef(hongbao.ClassTransient, "away: secret"),
		"outcome_unknown": errors.New("secret"),
		"unauthorized":    &Refusal{Code: "unauthorized", Cause: io.ErrUnexpectedEOF},
	} {
		a, logs := shop(func(http.ResponseWriter, *http.Request) error { return err })
		w, p := ask(t, a, "GET", "/v1/things")
		require.Equal(t, code, p.Code)
		require.Equal(t, CodeOf(code).Status, w.Code)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		require.NotContains(t, w.Body.String(), "secret")
		wait := map[string]string{"rate_limited": "2", "unavailable": "1", "outcome_unknown": "1"}
		require.Equal(t, wait[code], w.Header().Get("Retry-After"))
		require.Equal(t, code == "unauthorized", w.Header().Get("WWW-Authenticate") == "Bearer")
		failed := 0
		if w.Code >= http.StatusInternalServerError {
			failed = 1
		}
		require.Equal(t, failed, logs.FilterMessage("a request failed").Len(), code)
	}
}

// A panic becomes a problem with status 500, and the log has its code and its stack. If the answer has begun, the
// connection is cut, so that no caller takes half an answer for a whole one.
func TestPanic(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(http.ResponseWriter, *http.Request) error{
		"an endpoint":     func(http.ResponseWriter, *http.Request) error { panic("a secret") },
		"an unknown code": func(http.ResponseWriter, *http.Request) error { return Refuse("no_such_code", "") },
	} {
		a, logs := shop(do)
		w, p := ask(t, a, "GET", "/v1/things")
		require.Equal(t, http.StatusInternalServerError, w.Code, name)
		require.Equal(t, "internal_error", p.Code)
		require.NotContains(t, w.Body.String(), "secret")
		line := logs.FilterField(zap.String("code", "handler_panicked")).All()
		require.Len(t, line, 1, name)
		require.Contains(t, line[0].ContextMap()["stack"], "api_test.go")
	}
	for name, do := range map[string]func(http.ResponseWriter, *http.Request) error{
		"net/http's own": func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) },
		"after the answer": func(w http.ResponseWriter, _ *http.Request) error {
			WriteJSON(w, http.StatusOK, thing{"half"})
			panic("a secret")
		},
	} {
		a, _ := shop(do)
		require.PanicsWithValue(t, http.ErrAbortHandler, func() { ask(t, a, "GET", "/v1/things") }, name)
	}
}

// A request must have exactly one Authorization header. Its scheme is case-insensitive.
func TestBearer(t *testing.T) {
	t.Parallel()
	for want, all := range map[string][][]string{
		"key": {{"Bearer key"}, {"bEARER key"}},
		"":    {nil, {""}, {"Bearer"}, {"Bearer "}, {"Basic key"}, {"key"}, {"Bearer key", "Bearer key"}, {"Bearer key", ""}},
	} {
		for _, values := range all {
			require.Equal(t, want, Bearer(&http.Request{Header: http.Header{"Authorization": values}}), "%q", values)
		}
	}
}

// AddCodes panics if a code already exists.
func TestCodes(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t,
		`the code "not_found" has two meanings, "There is no such path" and "Gone": rename one of the two`,
		func() { AddCodes(map[string]Code{"not_found": {404, "Gone"}}) })
	require.Panics(t, func() { CodeOf("no_such_code") })
}

// The document lists every method with its answer, and the error codes by status.
func TestDocument(t *testing.T) {
	t.Parallel()
	a, _ := shop(nil)
	text, err := a.Document().YAML()
	require.NoError(t, err)
	for _, want := range []string{"operationId: list", "operationId: make", `"201":`, `"429":`, "code unauthorized",
		"code not_found", "application/problem+json", "Retry-After"} {
		require.Contains(t, string(text), want)
	}
	require.Equal(t, 1, strings.Count(string(text), "code unauthorized"), "the open endpoint requires no credentials")
}
