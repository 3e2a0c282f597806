package dev

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsOurs(t *testing.T) {
	t.Parallel()
	for host, ours := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:8080": true, "[::1]": true, "[::1]:8080": true, "192.0.2.7:8080": true,
		"localhost": true, "LocalHost:8080": true, "devbox:8080": true, "DEVBOX": true,
		"": false, "evil.example": false, "localhost.": false, "devbox.evil.example": false, "127.0.0.1.evil.example:80": false,
		"localhost@evil.example": false, "evil.example:127.0.0.1": false,
	} {
		require.Equal(t, ours, isOurs(host, "devbox"), host)
	}
	require.False(t, isOurs("", ""))
}

func TestQuoted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"/usr/bin/hongbao": "/usr/bin/hongbao", "./my bin/hongbao": "'./my bin/hongbao'", "it's": `'it'\''s'`,
		"$(reboot)": "'$(reboot)'", "": "",
	} {
		require.Equal(t, want, quoted(text))
	}
}

// A host that is ours is an IP address, localhost, or the name on which the server listens, with or without a port.
func FuzzHost(f *testing.F) {
	for _, host := range []string{"", "127.0.0.1:1", "[::1]:1", "localhost", "devbox:80", "[localhost]", "a:b:c", "[[::1]]"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if !isOurs(host, "devbox") {
			return
		}
		lower := strings.ToLower(host)
		require.True(t, strings.HasPrefix(lower, "localhost") || strings.HasPrefix(lower, "devbox") ||
			strings.ContainsAny(host, "0123456789:"), host)
	})
}
