package publish

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// kafka.brokers names a web server, whose "HTTP" is 1.2 GB as the size of an answer. This test is not parallel, because
// it measures memory.
func TestWebServerInPlaceOfABroker(t *testing.T) { //nolint:paralleltest // measures memory
	address := testkit.Answering(t, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
	cfg := testConfig(address)
	cfg.AttemptTime, cfg.DialTimeout = hopeless, hopeless
	p, err := NewLog(cfg)
	require.NoError(t, err)
	defer p.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = p.Check(t.Context())
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, address+` answers, but not as Kafka: its first bytes are "HTTP/1.1"`)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), "bytes allocated")
}

// A listener of Kafka with TLS is asked without it, and the reverse.
func TestKafkaTLS(t *testing.T) {
	t.Parallel()
	file, roots := certificate(t)
	b := testkit.NewKafka(t, testkit.KafkaOptions{Proxied: true, Properties: map[string]string{
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:SSL,CONTROLLER:PLAINTEXT",
		"ssl.keystore.type":              "PEM", "ssl.keystore.location": file,
	}})
	check := func(address string, c *tls.Config, within time.Duration) error {
		cfg := real(t, b).cfg
		cfg.Brokers, cfg.TLS, cfg.AttemptTime = []string{address}, c, within
		l, err := NewLog(cfg)
		require.NoError(t, err)
		defer l.Close()
		_, err = l.Check(t.Context())
		return err
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	require.NoError(t, check(b.Proxy.Addr, secure, 20*time.Second))
	require.NoError(t, check(b.Addr, nil, 20*time.Second))
	require.ErrorContains(t, check(b.Proxy.Addr, nil, hopeless), b.Proxy.Addr+" answers with an alert of TLS")
	require.ErrorContains(t, check(b.Addr, secure, hopeless), b.Addr+" does not answer by TLS")
}

// certificate returns a PEM file with a certificate for 127.0.0.1 and its key, and the authority of the certificate.
func certificate(t *testing.T) (path string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kafka"},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	path, roots = filepath.Join(t.TempDir(), "kafka.pem"), x509.NewCertPool()
	roots.AddCert(cert)
	text := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path, roots
}
