package httpsink

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A Retry-After never makes a wait negative.
func FuzzRetryAfter(f *testing.F) {
	for _, text := range []string{"", "1", "-1", "99999999999999999999", "Sat, 28 Nov 2026 00:00:00 GMT", "Sat, 28 Nov 9999 00:00:00 GMT"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		require.GreaterOrEqual(t, RetryAfter(text), time.Duration(0))
	})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	require.Equal(t, 7*time.Second, RetryAfter("7"))
	require.InDelta(t, 60, RetryAfter(time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)).Seconds(), 2)
	for _, bad := range []string{"", "-1", "x", "1.5", "Mon, 02 Jan 2006 15:04:05 GMT"} {
		require.Zero(t, RetryAfter(bad), bad)
	}
}

// Every option is set whose default could follow a proxy or wait forever.
func TestTransport(t *testing.T) {
	t.Parallel()
	tr := NewTransport(Client{Dial: NewDialer(time.Second).DialContext, HandshakeTimeout: 1, HeaderTimeout: 2, IdleTimeout: 3,
		Concurrency: 4})
	require.Nil(t, tr.Proxy)
	require.Equal(t, []time.Duration{1, 2, 3}, []time.Duration{tr.TLSHandshakeTimeout, tr.ResponseHeaderTimeout,
		tr.IdleConnTimeout})
	require.Equal(t, 4, tr.MaxConnsPerHost)
	require.True(t, tr.Protocols.HTTP1())
	require.False(t, tr.Protocols.HTTP2())
	require.False(t, tr.Protocols.UnencryptedHTTP2())
	require.Equal(t, time.Second, NewDialer(time.Second).Timeout)
}
