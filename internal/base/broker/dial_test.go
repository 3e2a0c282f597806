package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/stretchr/testify/require"
)

// request is the head of a request for the versions of the API: size 10, key 18, version 0, correlation id 1.
var request = []byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0, 0}

// ask sends the request, and returns all that the server answers.
func ask(t *testing.T, d Dialer, address string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := d.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = c.Write(request)
	require.NoError(t, err)
	return io.ReadAll(c)
}

func TestFirstAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ answer, problem string }{
		"a broker":            {"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00", ""},
		"the largest answer":  {"\x00\x10\x00\x00\x00\x00\x00\x01more", ""},
		"a size above":        {"\x00\x10\x00\x01\x00\x00\x00\x01more", `not as Kafka: its first bytes are "\x00\x10\x00\x01\x00\x00\x00\x01"`},
		"a size below 4":      {"\x00\x00\x00\x03\x00\x00\x00\x01", "not as Kafka"},
		"a web server":        {"HTTP/1.1 400 Bad Request\r\n\r\n", `not as Kafka: its first bytes are "HTTP/1.1"; check the host and port in kafka.brokers`},
		"a short text":        {"BAD\n", `not as Kafka: its first bytes are "BAD\n"`},
		"gRPC":                {"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00", "not as Kafka"},
		"an alert of TLS":     {"\x15\x03\x03\x00\x02\x02\x0a", "alert of TLS: set kafka.tls to true"},
		"none, a broken line": {"", "does not answer as Kafka: EOF; check kafka.brokers and kafka.tls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := testkit.Answering(t, c.answer)
			got, err := ask(t, Dialer{Timeout: 10 * time.Second}, address)
			if c.problem == "" {
				require.NoError(t, err)
				require.Equal(t, c.answer, string(got), "the client gets the head, too")
				return
			}
			require.ErrorContains(t, err, c.problem)
			require.ErrorContains(t, err, address)
			require.Empty(t, got)
		})
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS()
	t.Cleanup(web.Close)
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	known := Dialer{Timeout: 10 * time.Second, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	unknown := Dialer{Timeout: 10 * time.Second, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}}
	const answer = "\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00"
	over := func(answer string) string { return testkit.Answering(t, answer, web.TLS.Certificates...) }
	for name, c := range map[string]struct {
		dialer           Dialer
		address, problem string
	}{
		"a broker":                          {known, over(answer), ""},
		"a web server":                      {known, over("HTTP/1.1 400 Bad Request"), `not as Kafka: its first bytes are "HTTP/1.1"`},
		"a broker without TLS":              {known, testkit.Answering(t, ""), "does not answer by TLS: EOF; set kafka.tls to false"},
		"a web server without TLS":          {known, testkit.Answering(t, "HTTP/1.1 400 Bad Request"), "does not answer by TLS: tls: first record"},
		"a certificate of another":          {unknown, over(answer), "TLS handshake with "},
		"TLS, asked by a client without it": {Dialer{Timeout: 10 * time.Second}, over(answer), "check kafka.brokers and kafka.tls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ask(t, c.dialer, c.address)
			if c.problem == "" {
				require.NoError(t, err)
				require.Equal(t, answer, string(got))
				return
			}
			require.ErrorContains(t, err, c.problem)
			require.ErrorContains(t, err, c.address)
		})
	}
	_, err := ask(t, unknown, over(answer))
	var certificate *tls.CertificateVerificationError
	require.ErrorAs(t, err, &certificate)
	require.NotContains(t, err.Error(), "kafka.tls", "both sides use TLS")
	named := known
	named.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: "kafka.internal"}
	_, err = ask(t, named, over(answer))
	require.ErrorContains(t, err, "kafka.internal")
}
