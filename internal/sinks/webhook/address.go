package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"syscall"
)

// errPrivate is wrapped by the error of a connection that refusePrivate has refused.
var errPrivate = errors.New("the endpoint has no public address")

// notPublic has the ranges of addresses that are not in the public internet, by the registries of special-purpose
// addresses of IANA. The metadata service of clouds, 169.254.169.254, is link-local.
var notPublic = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by a provider's customers"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved for protocols"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},

	{netip.MustParsePrefix("::/96"), "unspecified or loopback"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "a local translation to IPv4"},
	{netip.MustParsePrefix("100::/64"), "discarded"},
	{netip.MustParsePrefix("2001::/23"), "reserved for protocols"},
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation"},
	{netip.MustParsePrefix("3fff::/20"), "for documentation"},
	{netip.MustParsePrefix("5f00::/16"), "for segment routing"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "private"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// embedded has the ranges of IPv6 addresses that contain an IPv4 address, and the index of its first byte.
var embedded = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64
	{netip.MustParsePrefix("2002::/16"), 2},     // 6to4
}

// refusePrivate is the ControlContext of the Dialer. So it checks each address to which the Dialer is about to connect,
// after the name was resolved: a name can't have another address afterwards.
func refusePrivate(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %.80q can't be read: %w", errPrivate, address, err)
	}
	if what := whatOf(at.Addr()); what != "" {
		return fmt.Errorf("%w: %s is %s; set allow_private of the webhook if this is intended", errPrivate, at.Addr(), what)
	}
	return nil
}

// CheckURL returns an error if a URL has an address, not a name, to which the sink would not connect.
func CheckURL(address string, allowPrivate bool) error {
	u, err := url.Parse(address)
	if err != nil || allowPrivate {
		return nil //nolint:nilerr // the form of the URL is checked elsewhere
	}
	at, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil //nolint:nilerr // it is a name
	}
	if what := whatOf(at); what != "" {
		return fmt.Errorf("%w: %s is %s; set allow_private of the webhook if this is intended", errPrivate, at, what)
	}
	return nil
}

// whatOf returns why an address is not public, or "" if it is public.
func whatOf(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	for _, e := range embedded {
		if e.prefix.Contains(a) {
			b := a.As16()
			return whatOf(netip.AddrFrom4([4]byte(b[e.at : e.at+4])))
		}
	}
	for _, n := range notPublic {
		if n.prefix.Contains(a) {
			return n.what
		}
	}
	return ""
}
