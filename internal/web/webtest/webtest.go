// Package webtest has what the tests of this project's HTTP servers share.
package webtest

import (
	"io"
	"net/http"
)

// Tweak changes a request.
type Tweak func(*http.Request)

// As sends another bearer token.
func As(token string) Tweak {
	return Header("Authorization", "Bearer "+token)
}

// Header sets a header; "" takes it out.
func Header(name, value string) Tweak {
	return func(r *http.Request) {
		if r.Header.Del(name); value != "" {
			r.Header.Set(name, value)
		}
	}
}

// Answer is one that was read whole.
type Answer struct {
	Status int
	Head   http.Header
	Text   []byte
	Closed bool // the server closes the connection
}

// Send sends a request on a connection of its own and reads the whole answer. It follows no redirect.
func Send(r *http.Request) (*Answer, error) {
	client := &http.Client{
		Transport:     &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(r) //nolint:gosec // a test says where to
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return &Answer{resp.StatusCode, resp.Header, text, resp.Close}, err
}
