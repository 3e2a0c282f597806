package web

import (
	"net/http"
	"slices"
)

// CORS wraps h so that pages of the given origins may read its answers, without cookies. It answers their preflight
// requests, and permits the requests of the public API. Without origins it returns h.
func CORS(h http.Handler, origins []string) http.Handler {
	if len(origins) == 0 {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, origin := w.Header(), r.Header.Get("Origin")
		answer.Add("Vary", "Origin")
		if slices.Contains(origins, origin) {
			answer.Set("Access-Control-Allow-Origin", origin)
			answer.Set("Access-Control-Expose-Headers", "Retry-After, "+RequestID)
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				answer.Set("Access-Control-Allow-Methods", "GET, POST")
				answer.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
				answer.Set("Access-Control-Max-Age", "600")
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}
