package configs

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/broker"
)

// authority makes an authority that has signed itself as the server 127.0.0.1, and its file.
func authority(t *testing.T) (pair *tls.Certificate, file []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	require.NoError(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// The authority of a server changes. The next connections of Redis, Kafka, the remote and a webhook trust the new authority and no
// longer the old one, without a restart. A file that can't be read changes nothing and is logged once.
func TestAuthoritiesAreReadAgain(t *testing.T) {
	t.Parallel()
	first, firstFile := authority(t)
	second, secondFile := authority(t)
	var offered atomic.Pointer[tls.Certificate]
	offered.Store(first)
	server, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return offered.Load(), nil }})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			if secure, ok := conn.(*tls.Conn); ok {
				go func() { _ = secure.HandshakeContext(t.Context()) }()
			}
		}
	}()
	at := server.Addr().String()
	ca := write(t, "ca.pem", string(firstFile), 0o644)
	c := (&input{args: []string{"--redis.tls", "--redis.tls_ca=" + ca, "--kafka.tls", "--kafka.tls_ca=" + ca,
		"--remote.url=https://" + at, "--remote.tls_ca=" + ca, "--deployment.sinks=balance,crm,kafka"},
		env: []string{"HONGBAO_WEBHOOK_CRM_URL=https://" + at, "HONGBAO_WEBHOOK_CRM_TLS_CA=" + ca,
			"HONGBAO_WEBHOOK_CRM_ALLOW_PRIVATE=true"}}).must(t)
	var log bytes.Buffer
	_, err = c.Logger(&log)
	require.NoError(t, err)
	kafka, remote := c.PublisherConfig(), c.RemoteConfig()
	dials := map[string]func(ctx context.Context, network, address string) (net.Conn, error){
		"redis":  c.redisOptions().Dialer,
		"kafka":  broker.Dialer{TLS: kafka.TLS, Roots: kafka.Roots}.Dial,
		"remote": (&tls.Dialer{Config: remote.TLS}).DialContext,
		"crm":    (&tls.Dialer{Config: c.WebhookConfig("crm").TLS}).DialContext,
	}
	all := func(trusted bool) {
		t.Helper()
		for name, dial := range dials {
			conn, err := dial(t.Context(), "tcp", at)
			if trusted {
				require.NoError(t, err, name)
				require.NoError(t, conn.Close())
				continue
			}
			var wrong *tls.CertificateVerificationError
			require.ErrorAs(t, err, &wrong, name)
		}
	}
	all(true)
	offered.Store(second)
	all(false)
	require.NoError(t, os.WriteFile(ca, []byte("junk"), 0o600))
	all(false)
	offered.Store(first)
	all(true)
	require.Equal(t, 4, bytes.Count(log.Bytes(), []byte("can't be used")), log.String())
	require.NoError(t, os.WriteFile(ca, secondFile, 0o600))
	all(false)
	offered.Store(second)
	all(true)
	require.Equal(t, 4, bytes.Count(log.Bytes(), []byte("was read again")), log.String())
}

// The name in the certificate counts as before.
func TestTheRemotesNameIsChecked(t *testing.T) {
	t.Parallel()
	pair, file := authority(t)
	ca := write(t, "ca.pem", string(file), 0o644)
	for host, trusted := range map[string]bool{"127.0.0.1": true, "127.0.0.2": false, "bank.internal": false} {
		c := (&input{args: []string{"--remote.url=https://" + host, "--remote.tls_ca=" + ca}}).must(t)
		here, there := net.Pipe()
		s := tls.Server(here, &tls.Config{Certificates: []tls.Certificate{*pair}, MinVersion: tls.VersionTLS12})
		go func() { _ = s.HandshakeContext(t.Context()) }()
		err := tls.Client(there, c.RemoteConfig().TLS).HandshakeContext(t.Context())
		require.Equal(t, trusted, err == nil, "%s: %v", host, err)
		require.NoError(t, here.Close())
	}
}
