package configs

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// visit makes a TLS handshake between a server and a caller. It returns whether the caller resumed an earlier session,
// and the server's error.
func visit(t *testing.T, server, caller *tls.Config) (resumed bool, refused error) {
	t.Helper()
	here, there := net.Pipe()
	s, c := tls.Server(here, server), tls.Client(there, caller)
	done := make(chan error, 1)
	go func() {
		err := s.HandshakeContext(t.Context())
		if err == nil {
			_, err = s.Write([]byte{1})
		}
		done <- err
	}()
	err := c.HandshakeContext(t.Context())
	if err == nil { // in TLS 1.3 the server refuses the caller, or sends a ticket, after the handshake
		_, err = c.Read(make([]byte, 1))
	}
	refused = <-done
	require.Equal(t, refused == nil, err == nil, "%v, %v", refused, err)
	require.NoError(t, errors.Join(here.Close(), there.Close()))
	return c.ConnectionState().DidResume, refused
}

// The file with the client CA changes. It is read again, and a caller with a certificate of the old CA is refused, even
// if it resumes a session. If the new file is invalid, the old CA stays valid.
func TestClientAuthorityIsReadAgain(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t, 0o600)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		caller := func() (file string, c *tls.Config) {
			file, key := certificate(t, 0o600)
			pair, err := tls.LoadX509KeyPair(file, key)
			require.NoError(t, err)
			return file, &tls.Config{Certificates: []tls.Certificate{pair}, MaxVersion: version, ServerName: "serve",
				ClientSessionCache: tls.NewLRUClientSessionCache(10),
				InsecureSkipVerify: true} // only the caller's certificate matters here
		}
		firstCA, first := caller()
		secondCA, second := caller()
		ca := write(t, "ca.pem", "", 0o644)
		replace(t, ca, firstCA)
		c := (&input{args: []string{"--serve.tls_cert=" + cert, "--serve.tls_key=" + key, "--serve.tls_client_ca=" + ca}}).
			must(t)
		var out bytes.Buffer
		_, err := c.Logger(&out)
		require.NoError(t, err)
		server := c.ServeConfig().TLS
		comes := func(who *tls.Config, resumes bool) {
			t.Helper()
			resumed, err := visit(t, server, who)
			require.NoError(t, err)
			require.Equal(t, resumes, resumed)
		}
		refuses := func(who *tls.Config, why string) {
			t.Helper()
			_, err := visit(t, server, who)
			require.ErrorContains(t, err, why)
		}
		comes(first, false)
		comes(first, true)
		refuses(second, "certificate signed by unknown authority")
		bare := first.Clone()
		bare.Certificates, bare.ClientSessionCache = nil, nil
		refuses(bare, "client didn't provide a certificate")
		require.NoError(t, os.WriteFile(ca, []byte("half of a file"), 0o600))
		comes(first, true)
		require.Contains(t, out.String(), "contains no certificate in PEM")
		replace(t, ca, secondCA)
		refuses(first, "certificate signed by unknown authority")
		comes(second, false)
		require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("was read again")), out.String())
	}
}
