package dev

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/front/web"
)

// checkHost refuses requests whose Host is a name that is not this server's. A page of another site could give its own
// name the address of this machine, and the browser would let its scripts read this server's answers (DNS rebinding).
// This can't be done with an address, nor with a name over TLS, whose certificate would not match.
func checkHost(listen string, log *zap.Logger, h http.Handler) http.Handler {
	own, _, _ := net.SplitHostPort(listen) // the configuration has checked it
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil && !isOurs(r.Host, own) {
			web.Fail(w, r, log, zap.DebugLevel, web.Refuse("host_unknown",
				"this server answers to localhost and to addresses: use http://127.0.0.1 with its port"))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isOurs reports whether a Host header is an address, localhost, or the name on which the server listens.
func isOurs(host, own string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil || strings.EqualFold(name, "localhost") || own != "" && strings.EqualFold(name, own)
}
