package web

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Any Authorization header has a scheme in lower case, or is empty.
func FuzzCredentials(f *testing.F) {
	for _, text := range []string{"", "Bearer", "Bearer ", "Bearer x", "basic  x", " "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := &http.Request{Header: http.Header{"Authorization": {text}}}
		scheme, rest := Credentials(r)
		require.Equal(t, strings.ToLower(scheme), scheme)
		require.LessOrEqual(t, len(rest), len(text))
		if token := Bearer(r); token != "" {
			require.Equal(t, "bearer", scheme)
			require.Equal(t, rest, token)
		}
	})
}

// Only headers that declare plain JSON are accepted.
func FuzzBodyHeaders(f *testing.F) {
	for _, kind := range []string{"application/json", "application/json; charset=UTF-8", "text/plain", "a/b;x*=u''%", ";"} {
		f.Add(kind, "")
	}
	f.Add("application/json", "gzip")
	f.Fuzz(func(t *testing.T, kind, encoding string) {
		err := checkHead(&http.Request{Header: http.Header{"Content-Type": {kind}, "Content-Encoding": {encoding}}})
		if err == nil {
			require.Empty(t, encoding)
			require.Contains(t, strings.ToLower(kind), "application/json")
		}
	})
}
