package webhook

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, a := range []string{"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1",
		"169.253.1.1", "223.255.255.255", "198.17.0.1", "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::1",
		"::ffff:8.8.8.8", "2001:200::1"} {
		require.Empty(t, whatOf(netip.MustParseAddr(a)), a)
	}
	for a, what := range map[string]string{
		"0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "10.0.0.7": "private", "10.255.255.255": "private",
		"172.16.0.1": "private", "172.31.255.255": "private", "192.168.1.1": "private", "127.0.0.1": "loopback",
		"127.9.9.9": "loopback", "169.254.169.254": "link-local", "100.64.0.1": "shared by a provider's customers",
		"100.127.255.255": "shared by a provider's customers", "224.0.0.1": "multicast", "239.255.255.255": "multicast",
		"255.255.255.255": "reserved", "240.0.0.1": "reserved", "192.0.0.170": "reserved for protocols",
		"198.18.0.1": "for benchmarks", "192.0.2.1": "for documentation",
		"::": "unspecified or loopback", "::1": "unspecified or loopback", "::10.0.0.1": "unspecified or loopback",
		"fe80::1": "link-local", "fe80::1%eth0": "link-local", "fd00:ec2::254": "private", "fc00::1": "private",
		"fec0::1": "private", "ff02::1": "multicast", "::ffff:10.0.0.7": "private", "::ffff:127.0.0.1": "loopback",
		"::ffff:169.254.169.254": "link-local", "64:ff9b::a00:7": "private", "64:ff9b::7f00:1": "loopback",
		"64:ff9b::a9fe:a9fe": "link-local", "64:ff9b:1::808:808": "a local translation to IPv4", "2002:a00:7::1": "private",
		"2002:7f00:1::": "loopback", "2001::1": "reserved for protocols", "2001:db8::1": "for documentation",
	} {
		require.Equal(t, what, whatOf(netip.MustParseAddr(a)), a)
	}
}

// names returns a resolver for which every name has these addresses.
func names(t *testing.T, addresses ...string) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			for _, text := range addresses {
				a, q := netip.MustParseAddr(text), m.Questions[0]
				head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
				switch {
				case a.Is4() && q.Type == dnsmessage.TypeA:
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: a.As4()}})
				case a.Is6() && q.Type == dnsmessage.TypeAAAA:
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
				}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = server.WriteTo(answer, from)
			}
		}
	}()
	t.Cleanup(func() { _ = server.Close(); <-ended })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.LocalAddr().String())
	}}
}

// A name that has a private address gets no connection, whatever the name is. The sink stops, because a person has to
// correct the URL or the setting.
func TestPrivateAddress(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(r.URL, "http://"))
	require.NoError(t, err)
	named := to("http://crm.example.com.:" + port + "/hooks/hongbao")
	public := func(c *Config) { c.AllowPrivate = false }
	for _, address := range []string{"127.0.0.1", "169.254.169.254", "10.0.0.7", "::1", "::ffff:127.0.0.1",
		"64:ff9b::7f00:1"} {
		h := newHandler(t, r, named, public)
		h.dialer.Resolver = names(t, address)
		errs := h.handle(t.Context(), grants(1, 2))
		require.Equal(t, []string{"broken", "broken"}, kinds(errs), address)
		require.ErrorContains(t, errs[0], "set allow_private of the webhook if this is intended")
		require.False(t, h.BreakerOpen())
		require.ErrorIs(t, h.Check(t.Context()), errPrivate)
	}
	literal := newHandler(t, r, public)
	require.Equal(t, []string{"broken"}, kinds(literal.handle(t.Context(), grants(1, 1))))
	require.Empty(t, r.got())

	h := newHandler(t, r, named)
	h.dialer.Resolver = names(t, "127.0.0.1")
	require.Nil(t, h.handle(t.Context(), grants(1, 2)))
	require.NoError(t, h.Check(t.Context()))
}

func TestAddressThatCannotBeRead(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, refusePrivate(t.Context(), "tcp", "crm.example.com:80", nil), errPrivate)
	require.NoError(t, refusePrivate(t.Context(), "tcp", "1.1.1.1:443", nil))
}

// A name without an address is an outage: DNS may be down.
func TestUnknownName(t *testing.T) {
	t.Parallel()
	h := newHandler(t, newReceiver(t), to("http://crm.example.com./"))
	h.dialer.Resolver = names(t)
	errs := h.handle(t.Context(), grants(1, 1))
	require.Equal(t, []string{"outage, transient"}, kinds(errs))
	var unknown *net.DNSError
	require.ErrorAs(t, errs[0], &unknown)
	require.ErrorContains(t, h.Check(t.Context()), "find the address of crm.example.com.: ")
}
