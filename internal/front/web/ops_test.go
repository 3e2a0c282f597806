package web_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

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
			ops := web.Ops{Listen: testkit.FreeAddr(t), Ready: func() error { return nil }, Opened: func(a net.Addr) { opened <- a },
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
