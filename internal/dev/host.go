package dev

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/front/web"
)

// checkHost refuses a request whose Host header names another server, to prevent DNS rebinding. In that attack, a page
// of another site points its own name to this machine, so that its scripts can read this server's answers. A Host that
// is an IP address is safe, and so is TLS, since the certificate would not match the name.
func checkHost(listen string, log *zap.Logger, h http.Handler) http.Handler {
	own, _, _ := net.SplitHostPort(listen) // the configuration's validation has checked the address
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil && !isOurs(r.Host, own) {
			web.Fail(w, r, log, zap.DebugLevel, web.Refuse("host_unknown",
				"this server accepts only localhost or an IP address as its host: use http://127.0.0.1 with its port"))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isOurs reports whether a Host header has an IP address, localhost, or the name on which the server listens.
func isOurs(host, own string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil || strings.EqualFold(name, "localhost") || own != "" && strings.EqualFold(name, own)
}
