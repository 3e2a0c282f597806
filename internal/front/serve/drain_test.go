package serve

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A server that is stopping reports that it is not ready, still accepts requests for the drain delay, and answers the
// running ones. Its answers close their connections, so that callers move to another server in time.
func TestDrain(t *testing.T) {
	t.Parallel()
	f := &fake{hold: make(chan struct{}), began: make(chan struct{}, 2)}
	s := setup(t, options{fake: f, cfg: func(c *Config) { c.DrainDelay = 5 * time.Second }})
	require.Equal(t, http.StatusOK, s.call(t, "GET", s.ops+"/readyz", "").Status)
	require.False(t, s.call(t, "GET", "/v1/campaigns/granted", "").Closed)
	grab := make(chan *reply, 2)
	go func() { grab <- s.call(t, "POST", "/v1/campaigns/granted/grabs", good) }()
	<-f.began
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	testkit.Eventually(t, 30*time.Second, func() bool {
		return s.call(t, "GET", s.ops+"/readyz", "").Status == http.StatusServiceUnavailable
	}, "it is not ready")
	require.Equal(t, http.StatusOK, s.call(t, "GET", s.ops+"/livez", "").Status, "it lives")
	go func() { grab <- s.call(t, "POST", "/v1/campaigns/granted/grabs", good) }()
	<-f.began // a request within the drain delay is accepted
	closed := s.call(t, "GET", "/v1/campaigns/granted", "").Closed
	close(f.hold)
	require.True(t, closed)
	require.Equal(t, []int{http.StatusOK, http.StatusOK}, []int{(<-grab).Status, (<-grab).Status})
	<-stopped
	_, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.Error(t, err)
}
