// Package webtest has the common parts of the tests of this project's HTTP servers.
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

// As sends another bearer token.
func As(token string) Tweak {
	return Header("Authorization", "Bearer "+token)
}

// Header sets a header; "" removes it.
func Header(name, value string) Tweak {
	return func(r *http.Request) {
		if r.Header.Del(name); value != "" {
			r.Header.Set(name, value)
		}
	}
}

// Answer is an answer with its whole body.
type Answer struct {
	Status int
	Head   http.Header
	Text   string
	Body   map[string]any // nil if the text is not JSON
	Closed bool           // the server closes the connection
}

// Send sends a request on its own connection and reads the whole answer. It follows no redirect.
func Send(r *http.Request) (*Answer, error) {
	client := &http.Client{
		Transport:     &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(r) //nolint:gosec // the test chooses the address
	if err != nil {
		return nil, err
	}
	return read(resp)
}

// Serve lets a handler answer a request.
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

// Code returns the code of a problem; other answers have none.
func (a *Answer) Code() string {
	code, _ := a.Body["code"].(string)
	return code
}

// OK checks the status of an answer, and decodes it into a value, if there is one.
func (a *Answer) OK(t testing.TB, status int, to any) {
	t.Helper()
	require.Equal(t, status, a.Status, "%s", a.Text)
	if to != nil {
		require.NoError(t, json.Unmarshal([]byte(a.Text), to))
	}
}

// Refused checks that an answer is a problem with the code.
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

// Garble changes a few bytes of a text.
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
