// Package webtest has helpers for the tests of this project's HTTP servers.
package webtest

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/front/web"
)

// Tweak changes a request.
type Tweak func(*http.Request)

// As replaces the bearer token.
func As(token string) Tweak {
	return Header("Authorization", "Bearer "+token)
}

// Header sets a header, or removes it if value is "".
func Header(name, value string) Tweak {
	return func(r *http.Request) {
		if r.Header.Del(name); value != "" {
			r.Header.Set(name, value)
		}
	}
}

// Answer is an answer whose body was read completely.
type Answer struct {
	Status int
	Head   http.Header
	Text   string
	Body   map[string]any // nil if the text is not JSON
	Closed bool           // the server closes the connection after it
}

// Send sends a request on a new connection and reads the answer. It does not follow redirects.
func Send(r *http.Request) (*Answer, error) {
	client := &http.Client{
		Transport:     &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(r) //nolint:gosec // the test itself chooses the address
	if err != nil {
		return nil, err
	}
	return read(resp)
}

// Serve calls a handler without a network and returns the answer.
func Serve(h http.Handler, r *http.Request) (*Answer, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return read(w.Result())
}

func read(resp *http.Response) (*Answer, error) {
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	a := &Answer{Status: resp.StatusCode, Head: resp.Header, Text: string(text), Closed: resp.Close}
	if strings.HasSuffix(a.Head.Get("Content-Type"), "json") && a.Text != "" {
		if err := json.Unmarshal(text, &a.Body); err != nil {
			return a, fmt.Errorf("%d %q: %w", a.Status, text, err)
		}
	}
	return a, nil
}

// Code returns the error code of a problem, or "" for other answers.
func (a *Answer) Code() string {
	code, _ := a.Body["code"].(string)
	return code
}

// OK requires the status of an answer, and decodes the answer into to unless to is nil.
func (a *Answer) OK(t testing.TB, status int, to any) {
	t.Helper()
	require.Equal(t, status, a.Status, "%s", a.Text)
	if to != nil {
		require.NoError(t, json.Unmarshal([]byte(a.Text), to))
	}
}

// Refused requires that an answer is a problem with the error code.
func (a *Answer) Refused(t testing.TB, code string, about ...any) {
	t.Helper()
	about = append(about, a.Text)
	require.Equal(t, code, a.Code(), about)
	require.Equal(t, web.CodeOf(code).Status, a.Status, about)
	require.Equal(t, "application/problem+json", a.Head.Get("Content-Type"))
	require.EqualValues(t, a.Status, a.Body["status"])
	require.Equal(t, a.Head.Get(web.RequestID), a.Body["instance"])
	require.NotEmpty(t, a.Body["detail"])
	require.Equal(t, web.CodeOf(code).Title, a.Body["title"])
}

// Garble returns a text in which a few random bytes have changed.
func Garble(r *rand.Rand, text string) string {
	b := []byte(text)
	for range r.IntN(3) {
		if at := r.IntN(len(b) + 1); at < len(b) && r.IntN(2) == 0 {
			b[at] = byte(r.IntN(256))
		} else {
			b = append(b[:at], append([]byte{byte(r.IntN(256))}, b[at:]...)...)
		}
	}
	return string(b)
}
