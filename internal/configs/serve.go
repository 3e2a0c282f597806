package configs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/hongbao-project/hongbao/internal/front/serve"
)

// Serve is the server `hongbao serve`.
type Serve struct {
	serve.Config
	// File with the server's certificate, in PEM; empty to serve without TLS, behind a proxy that has it.
	TLSCert string `knob:"serve.tls_cert,common"`
	// File with the key of the certificate, in PEM; closed to others as a secret's file is.
	TLSKey string `knob:"serve.tls_key,common"`
	// File with the certificates of those who may sign a caller's, in PEM; then only callers with such a certificate are
	// let in. Empty: callers need none. Read again when it changes, as certificate and key are.
	TLSClientCA string `knob:"serve.tls_client_ca"`
	// File with the certificate of the control listener, in PEM; empty to serve administration without TLS.
	ControlTLSCert string `knob:"serve.control_tls_cert"`
	// File with the key of the control listener's certificate, in PEM; closed to others as a secret's file is.
	ControlTLSKey string `knob:"serve.control_tls_key"`
	// File with the certificates of those who may sign the certificate of a caller of the control listener, in PEM.
	ControlTLSClientCA string `knob:"serve.control_tls_client_ca"`
}

// checkServe compares the knobs of the server with each other. CheckServe has the rest: who does not serve may
// have any.
func (l *loader) checkServe(c *Config) {
	s := &c.Serve
	l.order("serve.read_header_timeout", s.ReadHeaderTimeout, "not above serve.read_timeout", s.ReadTimeout+1, "",
		"serve.read_timeout")
	c.serveTLS = l.serverTLS("serve.tls", s.TLSCert, s.TLSKey)
	l.clientCA(c.serveTLS, "serve.tls", s.TLSClientCA)
	c.controlTLS = l.serverTLS("serve.control_tls", s.ControlTLSCert, s.ControlTLSKey)
	l.clientCA(c.controlTLS, "serve.control_tls", s.ControlTLSClientCA)
	l.checkListen(c, "serve.", s.Listen, s.TLSCert, UnsafeServeListen)
	l.checkListen(c, "serve.control_", s.ControlListen, s.ControlTLSCert, UnsafeControlListen)
}

// clientCA makes the server ask callers for a certificate, if path is not empty. name is what the knobs' names begin
// with. Without a certificate of the server there is nothing to do here: CheckServe refuses it.
func (l *loader) clientCA(t *tls.Config, name, path string) {
	if path == "" || t == nil || !l.p.fine(name+"_cert", name+"_client_ca") {
		return
	}
	ca, err := watch(func() (*x509.CertPool, error) { return readRoots(path) }, path)
	if err != nil {
		l.bad(name+"_client_ca", "%v", err)
	}
	l.watched = append(l.watched, ca)
	t.ClientAuth, t.ClientCAs = tls.RequireAndVerifyClientCert, ca.valid
	t.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := t.Clone()
		now.GetConfigForClient, now.ClientCAs = nil, ca.current()
		return now, nil
	}
}

// CheckServe says what stops the server and no other command: these may share the server's file of knobs, but not its
// flags.
func (c *Config) CheckServe() error {
	for _, ca := range []struct {
		name, path string
		tls        *tls.Config
	}{
		{"serve.tls", c.Serve.TLSClientCA, c.serveTLS}, {"serve.control_tls", c.Serve.ControlTLSClientCA, c.controlTLS},
	} {
		if ca.path != "" && ca.tls == nil {
			return fmt.Errorf("%[1]s_client_ca is set, but %[1]s_cert is not: set both or none", ca.name)
		}
	}
	if call, write := c.Producer.CallTimeout, c.Serve.WriteTimeout; call >= write {
		return fmt.Errorf("producer.call_timeout is %s, want it below serve.write_timeout, which is %s: the answer to a slow "+
			"grab would never be written; lower the one or raise the other", call, write)
	}
	return nil
}

// ServeConfig is complete.
func (c *Config) ServeConfig() serve.Config {
	out := c.Serve.Config
	out.TLS, out.ControlTLS = c.serveTLS.Clone(), c.controlTLS.Clone()
	return out
}

// ServeKeyFile reads the key set of serve.keys, and says who else can; nil if that is no file.
func (c *Config) ServeKeyFile() func() (text []byte, open string, err error) {
	if c.Serve.KeysURL() != "" {
		return nil
	}
	return keyFile(c.Serve.Keys)
}

// ServeGatewayKeyFile does the same for serve.gateway_keys.
func (c *Config) ServeGatewayKeyFile() func() (text []byte, open string, err error) {
	return keyFile(c.Serve.GatewayKeys)
}

func keyFile(path string) func() (text []byte, open string, err error) {
	if path == "" {
		return nil
	}
	return func() ([]byte, string, error) {
		text, info, err := readFile(path, maxFile)
		if err != nil {
			return nil, "", err
		}
		return text, tooOpen(path, info), nil
	}
}
