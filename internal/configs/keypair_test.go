package configs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// handshake connects a client to a server, and returns the certificates that each side received.
func handshake(t *testing.T, server, client *tls.Config) (servers, clients []byte) {
	t.Helper()
	server, client = server.Clone(), client.Clone()
	server.ClientAuth = tls.RequireAnyClientCert
	client.InsecureSkipVerify = true // the test itself compares the certificates
	here, there := net.Pipe()
	s, c := tls.Server(here, server), tls.Client(there, client)
	done := make(chan error, 1)
	go func() { done <- s.HandshakeContext(t.Context()) }()
	require.NoError(t, c.HandshakeContext(t.Context()))
	require.NoError(t, <-done)
	require.NoError(t, errors.Join(here.Close(), there.Close()))
	return c.ConnectionState().PeerCertificates[0].Raw, s.ConnectionState().PeerCertificates[0].Raw
}

func replace(t *testing.T, path, with string) {
	t.Helper()
	require.NoError(t, os.Rename(with, path))
}

// A certificate is renewed. The next handshake uses the new one without a restart, both for the listener and for the
// clients of Redis, Kafka and the remote. If a new certificate can't be used, that is logged once, and the old one
// stays in use.
func TestCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t, 0o600)
	c := (&input{args: []string{
		"--balance.tls_cert=" + cert, "--balance.tls_key=" + key,
		"--redis.tls", "--redis.tls_cert=" + cert, "--redis.tls_key=" + key,
		"--kafka.tls", "--kafka.tls_cert=" + cert, "--kafka.tls_key=" + key,
		"--remote.url=https://b", "--remote.tls_cert=" + cert, "--remote.tls_key=" + key,
	}}).must(t)
	var out bytes.Buffer
	_, err := c.Logger(&out)
	require.NoError(t, err)
	server := c.BalanceConfig().TLS
	clients := map[string]*tls.Config{"redis": c.redisOptions().TLSConfig, "kafka": c.PublisherConfig().TLS,
		"remote": c.RemoteConfig().TLS}
	all := func(want []byte) {
		t.Helper()
		for name, client := range clients {
			servers, clients := handshake(t, server, client)
			require.Equal(t, want, servers, name)
			require.Equal(t, want, clients, name)
		}
	}
	first, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	all(first.Certificate[0])
	require.Empty(t, out.String())

	newCert, newKey := certificate(t, 0o600)
	second, err := tls.LoadX509KeyPair(newCert, newKey)
	require.NoError(t, err)
	replace(t, cert, newCert)
	all(first.Certificate[0]) // the key does not match the new certificate yet
	all(first.Certificate[0])
	require.Equal(t, 4, bytes.Count(out.Bytes(), []byte("can't be used")), "once for each of one server and three clients: %s", out.String())
	replace(t, key, newKey)
	all(second.Certificate[0])
	require.Equal(t, 4, bytes.Count(out.Bytes(), []byte("was read again")), out.String())

	leaf, err := x509.ParseCertificate(second.Certificate[0])
	require.NoError(t, err)
	require.Equal(t, map[string]time.Time{"balance.tls_cert": leaf.NotAfter, "redis.tls_cert": leaf.NotAfter,
		"kafka.tls_cert": leaf.NotAfter, "remote.tls_cert": leaf.NotAfter}, c.CertificateEnds())
	out.Reset()
	require.NoError(t, os.WriteFile(cert, []byte("junk"), 0o600))
	require.Len(t, c.CertificateEnds(), 4, "the old ones")
	require.Equal(t, 4, bytes.Count(out.Bytes(), []byte(`"code":"certificate_unread"`)), "without a handshake: %s", out.String())
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: second.Certificate[0]}), 0o600))
	all(second.Certificate[0])

	_, openKey := certificate(t, 0o644)
	replace(t, key, openKey)
	all(second.Certificate[0])
	require.Contains(t, out.String(), "is open to others than its owner (mode 0644)")
}
