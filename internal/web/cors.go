package web

import (
	"net/http"
	"slices"
	"strings"
)

// CORS lets pages of the origins read the answers of h, and asks nobody for cookies. It answers their preflights: their
// requests may have these methods and headers. No origin: it is h.
func CORS(h http.Handler, origins, methods, headers []string) http.Handler {
	if len(origins) == 0 {
		return h
	}
	method, header := strings.Join(methods, ", "), strings.Join(headers, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, origin := w.Header(), r.Header.Get("Origin")
		answer.Add("Vary", "Origin")
		if slices.Contains(origins, origin) {
			answer.Set("Access-Control-Allow-Origin", origin)
			answer.Set("Access-Control-Expose-Headers", "Retry-After, "+RequestID)
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				answer.Set("Access-Control-Allow-Methods", method)
				answer.Set("Access-Control-Allow-Headers", header)
				answer.Set("Access-Control-Max-Age", "600")
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}
