package serve

import (
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// addresses bounds the requests of each address.
type addresses struct {
	limits  *limits
	trusted []netip.Prefix
}

// admit refuses a request whose address makes too many.
func (a *addresses) admit(r *http.Request) error {
	if wait := a.limits.take(a.of(r).String(), 1, time.Now()); wait > 0 {
		return rateLimited(wait)
	}
	return nil
}

// of returns the address that a request counts for.
func (a *addresses) of(r *http.Request) netip.Prefix { return network(a.client(r)) }

// client gives the last address on the way that no trusted proxy has. Proxies add at the right of X-Forwarded-For whom
// they have met, so all that stands left of that address may be made up.
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

// hopOf reads an entry of X-Forwarded-For. Some proxies write the port behind the address.
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
