package serve

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// A request counts for the last address that is not a trusted proxy. An IPv6 address counts as its network.
func TestAddresses(t *testing.T) {
	t.Parallel()
	a := &addresses{trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}
	for name, c := range map[string]struct {
		remote    string
		forwarded []string
		want      string
	}{
		"direct":                {"192.0.2.7:1", nil, "192.0.2.7/32"},
		"direct, made up":       {"192.0.2.7:1", []string{"198.51.100.1"}, "192.0.2.7/32"},
		"behind one":            {"10.0.0.1:1", []string{"192.0.2.7"}, "192.0.2.7/32"},
		"behind two":            {"10.0.0.1:1", []string{"192.0.2.7, 10.0.0.2"}, "192.0.2.7/32"},
		"two headers":           {"10.0.0.1:1", []string{"192.0.2.7", "10.0.0.2"}, "192.0.2.7/32"},
		"made up on the left":   {"10.0.0.1:1", []string{"198.51.100.1, 192.0.2.7"}, "192.0.2.7/32"},
		"trusted on the left":   {"10.0.0.1:1", []string{"10.9.9.9, 192.0.2.7"}, "192.0.2.7/32"},
		"nonsense on the left":  {"10.0.0.1:1", []string{"x, 192.0.2.7"}, "192.0.2.7/32"},
		"nonsense on the right": {"10.0.0.1:1", []string{"192.0.2.7, x"}, "10.0.0.1/32"},
		"with a port":           {"10.0.0.1:1", []string{"192.0.2.7:80"}, "192.0.2.7/32"},
		"no port":               {"10.0.0.1:1", []string{"192.0.2.7:99999"}, "10.0.0.1/32"},
		"IPv6 with a port":      {"10.0.0.1:1", []string{"[2001:db8:1:2:9::9]:443, 10.0.0.2:8080"}, "2001:db8:1:2::/64"},
		"IPv6 in brackets":      {"10.0.0.1:1", []string{"[2001:db8:1:2:9::9]"}, "2001:db8:1:2::/64"},
		"nothing":               {"10.0.0.1:1", nil, "10.0.0.1/32"},
		"empty":                 {"10.0.0.1:1", []string{""}, "10.0.0.1/32"},
		"all trusted":           {"10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3/32"},
		"IPv6":                  {"[2001:db8:1:2:3::4]:1", nil, "2001:db8:1:2::/64"},
		"IPv6 behind a proxy":   {"[fd00::1]:1", []string{"2001:db8:1:2:9::9"}, "2001:db8:1:2::/64"},
		"IPv4 in IPv6":          {"[::ffff:10.0.0.1]:1", []string{"::ffff:192.0.2.7"}, "192.0.2.7/32"},
		"a zone":                {"[fe80::1%eth0]:1", nil, "fe80::/64"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"X-Forwarded-For": c.forwarded}}
		require.Equal(t, c.want, a.of(r).String(), name)
	}
}

// An address that exceeds its rate must wait, whatever it requests. By default there is no limit.
func TestAddressRate(t *testing.T) {
	t.Parallel()
	s := setup(t, options{cfg: func(c *Config) {
		c.AddressRate, c.AddressBurst, c.TrustedProxies = 1, 3, []string{"127.0.0.0/8"}
	}})
	from := func(address string) *reply {
		return s.call(t, "GET", "/nowhere", "", header("X-Forwarded-For", address), header("Authorization", ""))
	}
	limited := 0
	for range 20 {
		if r := from("192.0.2.7"); r.Code() != "not_found" {
			r.Refused(t, "rate_limited")
			limited++
		}
	}
	require.Positive(t, limited)
	from("192.0.2.8").Refused(t, "not_found")
	free := setup(t, options{})
	for range 20 {
		free.call(t, "GET", "/nowhere", "").Refused(t, "not_found")
	}
}

// Pages of a configured origin may send requests and read the answers. Pages of other origins may not, and no
// answer allows every origin (*).
func TestCORS(t *testing.T) {
	t.Parallel()
	s := setup(t, options{cfg: func(c *Config) { c.CORSOrigins = []string{"https://app.test", "http://localhost:3000"} }})
	preflight := header("Access-Control-Request-Method", "POST")
	path := "/v1/campaigns/granted/grabs"
	for _, origin := range []string{"https://app.test", "http://localhost:3000"} {
		r := s.call(t, "OPTIONS", path, "", header("Origin", origin), preflight, header("Authorization", ""))
		require.Equal(t, http.StatusNoContent, r.Status)
		require.Equal(t, origin, r.Head.Get("Access-Control-Allow-Origin"))
		require.Equal(t, "GET, POST", r.Head.Get("Access-Control-Allow-Methods"))
		require.Equal(t, "Authorization, Content-Type", r.Head.Get("Access-Control-Allow-Headers"))
		for _, r := range []*reply{s.call(t, "POST", path, good, header("Origin", origin)),
			s.call(t, "POST", path, good, header("Origin", origin), as("x"))} {
			require.Equal(t, origin, r.Head.Get("Access-Control-Allow-Origin"))
			require.Equal(t, "Origin", r.Head.Get("Vary"))
			require.Empty(t, r.Head.Get("Access-Control-Allow-Credentials"))
		}
	}
	for _, origin := range []string{"https://evil.test", "https://app.test.evil.test", "http://app.test", "null", "*", ""} {
		s.call(t, "OPTIONS", path, "", header("Origin", origin), preflight).Refused(t, "method_not_allowed", origin)
		r := s.call(t, "POST", path, good, header("Origin", origin))
		require.Empty(t, r.Head.Get("Access-Control-Allow-Origin"), origin)
		require.Equal(t, "Origin", r.Head.Get("Vary"))
	}
	off := setup(t, options{})
	r := off.call(t, "OPTIONS", path, "", header("Origin", "https://app.test"), preflight)
	r.Refused(t, "method_not_allowed")
	require.Empty(t, r.Head.Get("Vary"))
}
