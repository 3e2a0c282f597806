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

// visit connects a caller to a server. It reports whether the caller resumed an earlier session. The error is the
// server's.
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
	if err == nil { // in TLS 1.3 the caller is refused, or gets a ticket, after the handshake
		_, err = c.Read(make([]byte, 1))
	}
	refused = <-done
	require.Equal(t, refused == nil, err == nil, "%v, %v", refused, err)
	require.NoError(t, errors.Join(here.Close(), there.Close()))
	return c.ConnectionState().DidResume, refused
}

// The authority of callers' certificates is read again once its file has changed. A caller who was let in before is
// then refused, even with an earlier session. A file that can't be used leaves the earlier authority in force.
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
				InsecureSkipVerify: true} // the test is about the caller's certificate
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
