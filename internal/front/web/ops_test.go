package web_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The listener ends without an error, although a client has sent nothing yet, or waits for its answer: it ends when the
// process stops, or when Redis is back and the process begins its work.
func TestOpsEndsDespiteItsClients(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{"silent": "", "waiting": "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opened, scraped, ended := make(chan net.Addr, 1), make(chan struct{}), make(chan error, 1)
			ops := web.Ops{Listen: testkit.FreeAddr(t), Log: zap.NewNop(), Ready: func() error { return nil }, Opened: func(a net.Addr) { opened <- a },
				Metrics: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					close(scraped)
					<-r.Context().Done()
				})}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { ended <- ops.Run(ctx) }()
			c, err := net.Dial("tcp", (<-opened).String())
			require.NoError(t, err)
			defer c.Close()
			if request != "" {
				_, err = c.Write([]byte(request))
				require.NoError(t, err)
				<-scraped
			}
			cancel()
			require.NoError(t, <-ended)
		})
	}
}

// Failed handshakes and other messages of net/http are sampled, because anyone may cause them.
func TestMessagesOfNetHTTPAreSampled(t *testing.T) {
	t.Parallel()
	tested := httptest.NewTLSServer(nil)
	tested.Close()
	l, err := web.Listen(t.Context(), "127.0.0.1:0", "the test")
	require.NoError(t, err)
	core, logs := observer.New(zap.DebugLevel)
	s := web.Start(t.Context(), tls.NewListener(l, tested.TLS), http.NotFoundHandler(), web.Limits{ReadTimeout: time.Minute}, zap.New(core))
	for range 200 {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
		require.NoError(t, err)
		_, _ = io.ReadAll(c) // the server closes the connection after the failed handshake
		require.NoError(t, c.Close())
	}
	require.NoError(t, s.Stop(time.Minute, ""))
	require.Positive(t, logs.Len())
	require.LessOrEqual(t, logs.Len(), 50)
}
