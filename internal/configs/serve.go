package configs

import (
	"crypto/tls"
	"fmt"

	"github.com/hongbao-project/hongbao/internal/serve"
)

// Serve is the server `hongbao serve`.
type Serve struct {
	serve.Config
	// File with the server's certificate, in PEM; empty to serve without TLS, behind a proxy that has it.
	TLSCert string `knob:"serve.tls_cert,common"`
	// File with the key of the certificate, in PEM; closed to others as a secret's file is.
	TLSKey string `knob:"serve.tls_key,common"`
	// File with the certificates of those who may sign a caller's, in PEM; then only callers with such a certificate are
	// let in. Empty: callers need none.
	TLSClientCA string `knob:"serve.tls_client_ca"`
}

// checkServe compares the knobs of the server with each other. Where it is compared with the producer's is CheckServe:
// who does not serve may have any.
func (l *loader) checkServe(c *Config) {
	s := &c.Serve
	l.order("serve.read_header_timeout", s.ReadHeaderTimeout, "not above serve.read_timeout", s.ReadTimeout+1, "",
		"serve.read_timeout")
	c.serveTLS = l.serverTLS("serve.tls", s.TLSCert, s.TLSKey)
	if l.p.fine("serve.tls_cert", "serve.tls_client_ca") && s.TLSClientCA != "" {
		l.clientCA(c.serveTLS, s.TLSClientCA)
	}
	l.checkListen(c, "serve", s.Listen, s.TLSCert, UnsafeServeListen)
}

// clientCA makes the server ask callers for a certificate.
func (l *loader) clientCA(t *tls.Config, path string) {
	if t == nil {
		l.bad("serve.tls_client_ca", "it is set, but serve.tls_cert is not: set both or none")
		return
	}
	t.ClientAuth, t.ClientCAs = tls.RequireAndVerifyClientCert, l.roots("serve.tls_client_ca", path)
}

// CheckServe compares the knobs of the server with the producer's.
func (c *Config) CheckServe() error {
	if call, write := c.Producer.CallTimeout, c.Serve.WriteTimeout; call >= write {
		return fmt.Errorf("producer.call_timeout is %s, want it below serve.write_timeout, which is %s: the answer to a slow "+
			"grab would never be written; lower the one or raise the other", call, write)
	}
	return nil
}

// ServeConfig is complete.
func (c *Config) ServeConfig() serve.Config {
	out := c.Serve.Config
	out.TLS = c.serveTLS.Clone()
	return out
}

// ServeKeyFile reads the key set of serve.keys, and says who else can; nil if that is a URL.
func (c *Config) ServeKeyFile() func() (text []byte, open string, err error) {
	if c.Serve.KeysURL() != "" {
		return nil
	}
	path := c.Serve.Keys
	return func() ([]byte, string, error) {
		text, info, err := readFile(path, maxFile)
		if err != nil {
			return nil, "", err
		}
		return text, tooOpen(path, info), nil
	}
}
