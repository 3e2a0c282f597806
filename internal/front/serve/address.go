package serve

import (
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// addresses limits the request rate of each client address.
type addresses struct {
	limits  *limits
	trusted []netip.Prefix
}

// admit returns an error if the request's address has exceeded its rate.
func (a *addresses) admit(r *http.Request) error {
	if wait := a.limits.take(a.of(r).String(), 1, time.Now()); wait > 0 {
		return rateLimited(wait)
	}
	return nil
}

// of returns the network whose rate a request counts for.
func (a *addresses) of(r *http.Request) netip.Prefix { return network(a.client(r)) }

// client returns the address of a request's client: the last hop that is not a trusted proxy. A proxy appends the
// address of its own client to X-Forwarded-For. So the client can forge all entries left of its own address.
func (a *addresses) client(r *http.Request) netip.Addr {
	met, _ := netip.ParseAddrPort(r.RemoteAddr)
	at := met.Addr().Unmap().WithZone("")
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && within(a.trusted, at); i-- {
		hop, ok := hopOf(strings.TrimSpace(hops[i]))
		if !ok {
			break
		}
		at = hop.Unmap().WithZone("")
	}
	return at
}

// hopOf parses one entry of X-Forwarded-For. Some proxies add the port to the address.
func hopOf(text string) (netip.Addr, bool) {
	if at, err := netip.ParseAddr(text); err == nil {
		return at, true
	}
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr(), true
	}
	at, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	return at, err == nil
}
