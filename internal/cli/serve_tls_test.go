package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	path string // of its certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, key := a.sign(template)
	var err error
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.key, a.path = key, a.write("ca.pem", "CERTIFICATE", der)
	return a
}

// sign returns a certificate that the authority has signed, and its key. The authority's own certificate is
// self-signed.
func (a *authority) sign(template *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	return der, key
}

// issue writes a certificate for 127.0.0.1 and its key to files.
func (a *authority) issue() (cert, key string) {
	a.t.Helper()
	der, private := a.sign(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(a.t, err)
	return a.write("cert.pem", "CERTIFICATE", der), a.write("key.pem", "PRIVATE KEY", secret)
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.t.TempDir(), name)
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

// visitor returns a client's configuration that trusts the authority. If who is not nil, the client has a certificate
// that who has signed.
func (a *authority) visitor(who *authority) *tls.Config {
	a.t.Helper()
	trusts := x509.NewCertPool()
	trusts.AddCert(a.cert)
	cfg := &tls.Config{RootCAs: trusts, MinVersion: tls.VersionTLS12}
	if who != nil {
		pair, err := tls.LoadX509KeyPair(who.issue())
		require.NoError(a.t, err)
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return cfg
}

// answered sends a request that needs no credentials, and returns the serial number of the listener's certificate.
func answered(t *testing.T, address string, visitor *tls.Config) *big.Int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: visitor, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/openapi.json", http.NoBody)
	require.NoError(t, err)
	res, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
	return res.TLS.PeerCertificates[0].SerialNumber
}

// refused requires that the handshake fails with the text why. In TLS 1.3 the client learns of a refusal only when it
// reads. It does not write before, since a failed write could hide the refusal.
func refused(t *testing.T, address string, visitor *tls.Config, why string) {
	t.Helper()
	c, err := (&tls.Dialer{Config: visitor}).DialContext(t.Context(), "tcp", address)
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		require.NoError(t, c.Close())
	}
	require.ErrorContains(t, err, why)
}

// Both listeners use TLS and accept only callers with a certificate of one authority. While the server runs, its
// certificates are renewed, and then the callers' authority is replaced.
func TestServeByTLS(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	servers, callers, foreign := newAuthority(t), newAuthority(t), newAuthority(t)
	at := testkit.FreeAddr(t)
	type listener struct{ address, cert, key, ca string }
	open := func(address string) listener {
		cert, key := servers.issue()
		return listener{address, cert, key, newCopy(t, callers.path)}
	}
	public, control := open(""), open(at)
	g := d.serve("--serve.tls_cert="+public.cert, "--serve.tls_key="+public.key, "--serve.tls_client_ca="+public.ca,
		"--control.listen="+at, "--control.tls_cert="+control.cert, "--control.tls_key="+control.key,
		"--control.tls_client_ca="+control.ca)
	public.address = strings.TrimPrefix(g.url, "http://")
	for _, l := range []listener{public, control} {
		good, bad := servers.visitor(callers), servers.visitor(foreign)
		first := answered(t, l.address, good)
		refused(t, l.address, servers.visitor(nil), "certificate required")
		refused(t, l.address, bad, "unknown certificate authority")
		refused(t, l.address, foreign.visitor(callers), "certificate signed by unknown authority")
		plain, err := http.Get("http://" + l.address + "/openapi.json")
		require.NoError(t, err)
		require.NoError(t, plain.Body.Close())
		require.Equal(t, http.StatusBadRequest, plain.StatusCode, "without TLS")

		cert, key := servers.issue()
		require.NoError(t, os.Rename(key, l.key))
		require.NoError(t, os.Rename(cert, l.cert))
		require.NotEqual(t, first, answered(t, l.address, good), "the certificate was renewed")

		require.NoError(t, os.Rename(newCopy(t, foreign.path), l.ca))
		refused(t, l.address, good, "unknown certificate authority")
		answered(t, l.address, bad)
	}
}

func newCopy(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	to := filepath.Join(t.TempDir(), "copy.pem")
	require.NoError(t, os.WriteFile(to, text, 0o600))
	return to
}
