package configs

import (
	"crypto/tls"
	"testing"

	"github.com/stretchr/testify/require"
)

// By default, a token is sent over plain http only to this machine, and a listener without TLS must be on loopback.
// unsafe.allow permits other addresses.
func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arg, want, allow string
	}{
		"token": {"--remote.url=http://bank.internal:80",
			"remote.url: it is http, so remote.token would be sent in clear text", "remote_token_without_tls"},
		"address": {"--remote.url=http://10.0.0.7", "remote.url: it is http, so remote.token would be sent in clear text",
			"remote_token_without_tls"},
		"listener": {"--balance.listen=0.0.0.0:8081", "balance.listen: it is not on loopback, and balance.tls_cert is empty",
			"balance_listen_without_tls"},
		"grabs": {"--serve.listen=0.0.0.0:8080", "serve.listen: it is not on loopback, and serve.tls_cert is empty",
			"serve_listen_without_tls"},
		"administration": {"--control.listen=0.0.0.0:8081",
			"control.listen: it is not on loopback, and control.tls_cert is empty",
			"control_listen_without_tls"},
		"by name": {"--balance.listen=bank:8081", "balance.listen: it is not on loopback, and balance.tls_cert is empty",
			"balance_listen_without_tls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input{args: []string{c.arg}, env: []string{"HONGBAO_REMOTE_TOKEN=secret-of-the-remote"}}
			got := in.problems(t)
			require.Len(t, got, 1)
			require.Contains(t, got[0], c.want)
			require.Contains(t, got[0], "add "+c.allow+" to unsafe.allow")
			require.NotContains(t, got[0], "secret-of-the-remote")
			in.args = append(in.args, "--unsafe.allow="+c.allow)
			in.must(t)
		})
	}
	cert, key := certificate(t, 0o600)
	for _, arg := range []string{"--remote.url=http://127.0.0.1:1", "--remote.url=http://[::1]:1",
		"--remote.url=http://localhost:1", "--balance.listen=localhost:1",
		"--balance.listen=[::1]:1", "--serve.listen=127.0.0.1:0", "--remote.url=https://bank.internal"} {
		(&input{args: []string{arg}, env: []string{"HONGBAO_REMOTE_TOKEN=x"}}).must(t)
	}
	(&input{args: []string{"--remote.url=http://bank.internal"}}).must(t)
	(&input{args: []string{"--balance.listen=0.0.0.0:1", "--balance.tls_cert=" + cert, "--balance.tls_key=" + key}}).must(
		t)
	c := (&input{args: []string{"--serve.listen=0.0.0.0:1", "--serve.tls_cert=" + cert, "--serve.tls_key=" + key,
		"--serve.tls_client_ca=" + cert, "--control.listen=0.0.0.0:2", "--control.tls_cert=" + cert,
		"--control.tls_key=" + key, "--control.tls_client_ca=" + cert}}).must(t)
	for _, c := range []*tls.Config{c.ServeConfig().TLS, c.ControlConfig().TLS} {
		require.Equal(t, tls.RequireAndVerifyClientCert, c.ClientAuth)
		require.EqualValues(t, tls.VersionTLS12, c.MinVersion)
	}
}
