package serve

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
)

// counts are what a server said about the grabs that it refused.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) refused(campaign, code string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[campaign+" "+code] += n
}

// A server counts each grab that it refuses with status 429 or 503 before the Grabber gets it. It counts no other
// refusal, no grab that the Grabber got, and no request that is no grab.
func TestRefusedGrabsAreCounted(t *testing.T) {
	t.Parallel()
	batch := func(n int) string {
		text := ""
		for i := range n {
			text += fmt.Sprintf(`,{"user":"u%d","request_id":"r%d"}`, i%2, i)
		}
		return `{"grabs":[` + text[1:] + `]}`
	}
	for name, c := range map[string]struct {
		cfg  func(*Config)
		keys Keys
		do   func(s *server)
		want map[string]int
	}{
		"a user's rate": {func(c *Config) { c.Rate, c.Burst = 1, 1 }, nil, func(s *server) {
			for range 3 {
				s.call(t, "POST", grabPath, good)
				s.call(t, "GET", minePath, "")
			}
		}, map[string]int{"granted rate_limited": 2}},
		"an address": {func(c *Config) { c.AddressRate, c.AddressBurst = 1, 1 }, nil, func(s *server) {
			for range 3 {
				s.call(t, "POST", grabPath, good)
			}
			s.call(t, "GET", "/v1/campaigns/granted", "")
			s.call(t, "POST", "/v1/nowhere", good)
		}, map[string]int{"granted rate_limited": 2, " rate_limited": 1}},
		"a key's rate": {func(c *Config) { c.KeyRate, c.KeyBurst = 1, 128 }, nil, func(s *server) {
			s.call(t, "POST", batchPath, batch(128), as(gatewayText))
			s.call(t, "POST", batchPath, batch(128), as(gatewayText)).Refused(t, "rate_limited")
		}, map[string]int{"granted rate_limited": 1}},
		"a batch above a key's rate": {func(c *Config) { c.KeyRate, c.KeyBurst = 1, 128 }, nil, func(s *server) {
			s.call(t, "POST", batchPath, batch(100), as(gatewayText))
			s.call(t, "POST", batchPath, batch(100), as(gatewayText)).Refused(t, "rate_limited")
		}, map[string]int{"granted rate_limited": 100}},
		"users of a batch": {func(c *Config) { c.Rate, c.Burst = 1, 1 }, nil, func(s *server) {
			s.call(t, "POST", batchPath, batch(10), as(gatewayText))
		}, map[string]int{"granted rate_limited": 8}},
		"keys that can't be read": {nil, access.NewAuthority(keyList{err: errors.New("away")}), func(s *server) {
			s.call(t, "POST", batchPath, batch(10), as(gatewayText)).Refused(t, "unavailable")
			s.call(t, "POST", grabPath, good, as(gatewayText), forUser("u1", "")).Refused(t, "unavailable")
			s.call(t, "GET", minePath, "", as(gatewayText), forUser("u1", "")).Refused(t, "unavailable")
		}, map[string]int{"granted unavailable": 2}},
		"bad requests": {nil, nil, func(s *server) {
			s.call(t, "POST", grabPath, "{").Refused(t, "invalid_json")
			s.call(t, "POST", grabPath, good, as("wrong")).Refused(t, "unauthorized")
			s.call(t, "POST", "/v1/campaigns/transient/grabs", good).Refused(t, "unavailable")
		}, map[string]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := &counts{of: map[string]int{}}
			c.do(setup(t, options{cfg: c.cfg, apiKeys: c.keys, refused: said.refused}))
			require.Equal(t, c.want, said.of)
		})
	}
}
