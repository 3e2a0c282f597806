package configs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// Serve has the settings of the server `hongbao serve`.
type Serve struct {
	// Address for users; 0.0.0.0:8080 for every interface.
	//
	// Port 0 selects a free port.
	Listen string `knob:"serve.listen,common" default:"127.0.0.1:8080" form:"listen"`
	// Address of /livez, /readyz and /metrics, for probes and monitoring.
	OpsListen string `knob:"serve.ops_listen,common" default:"127.0.0.1:8082" form:"listen"`
	// Address for the administration API and the console. It is opened only if there is a ledger. Empty: it is not opened.
	ControlListen string `knob:"serve.control_listen,common" default:"127.0.0.1:8081" form:"ops"`
	// TLS and ControlTLS are the TLS configurations of the public and the control listener, with their certificates. A nil
	// configuration means no TLS.
	TLS, ControlTLS *tls.Config
	// The JSON Web Key Set of the tokens' issuer: the path of a file, which is read again when it changes, or an https://
	// URL, which is fetched every 5 minutes. Each key names its algorithm: HS256, RS256, ES256 or EdDSA. Has no default.
	Keys string `knob:"serve.keys,common"`
	// Value that a token must have in iss. Has no default.
	Issuer string `knob:"serve.issuer,common"`
	// Value that a token must have in aud. Has no default.
	Audience string `knob:"serve.audience,common"`
	// The claim of a token that has the user's id.
	UserClaim string `knob:"serve.user_claim" default:"sub"`
	// Sources of the facts that limits count by. device=claim:device_id takes fact device from the claim device_id of a
	// token. device=gateway:NAME takes it from NAME in the requests of a gateway with an API key. A fact may have one
	// source of each kind. A fact without a source is unknown.
	Facts []string `knob:"serve.facts,common"`
	// How far the clocks of this machine and of the tokens' issuer may be apart.
	Leeway time.Duration `knob:"serve.leeway" default:"5s" want:"0s to 1m"`
	// Requests of one user on average.
	Rate int `knob:"serve.rate,common" default:"5" want:"1 to 1_000_000 requests a second"`
	// Requests of one user at once (burst).
	Burst int `knob:"serve.burst,common" default:"20" want:"1 to 1_000_000 requests"`
	// Grabs and reads with one API key on average; a batch counts as the number of its grabs.
	KeyRate int `knob:"serve.key_rate,common" default:"10000" want:"1 to 1_000_000 grabs a second"`
	// Grabs and reads with one API key at once (burst); at least 128, the size of the largest batch.
	KeyBurst int `knob:"serve.key_burst" default:"20000" want:"128 to 1_000_000 grabs"`
	// Requests of one address on average, whoever sends them; an IPv6 address counts by its first 64 bits. 0 for no limit.
	AddressRate int `knob:"serve.address_rate,common" default:"0" want:"0 to 1_000_000 requests a second"`
	// Requests of one address at once (burst).
	AddressBurst int `knob:"serve.address_burst" default:"200" want:"1 to 1_000_000 requests"`
	// Networks of the proxies whose X-Forwarded-For is trusted, such as 10.0.0.0/8.
	TrustedProxies []string `knob:"serve.trusted_proxies"`
	// Other topics that a replay by the administration API or the console may write to. Empty: none. `hongbao replay` may
	// write to any topic.
	ReplayTopics []string `knob:"serve.replay_topics"`
	// Origins of web pages that may read responses, such as https://app.example.com.
	CORSOrigins []string `knob:"serve.cors_origins"`
	// Maximum of open connections of each listener; further connections wait until one is closed.
	Connections int `knob:"serve.connections" default:"20000" want:"1 to 1_000_000 connections"`
	// Maximum of open connections of one address, or of one IPv6 /64 network, to serve.listen; further connections are
	// closed immediately. Addresses of serve.trusted_proxies have no limit. 0 for no limit.
	AddressConnections int `knob:"serve.address_connections" default:"10000" want:"0 to 1_000_000 connections"`
	// Time in which a request's head must arrive.
	ReadHeaderTimeout time.Duration `knob:"serve.read_header_timeout" default:"5s" want:"1ms to 1m"`
	// Time in which a whole request must arrive.
	ReadTimeout time.Duration `knob:"serve.read_timeout" default:"10s" want:"1ms to 5m"`
	// Time in which a request must be answered; above producer.call_timeout.
	WriteTimeout time.Duration `knob:"serve.write_timeout" default:"30s" want:"2ms to 10m"`
	// Connections without requests are closed after this time. Keep it above the load balancer's own idle timeout.
	IdleTimeout time.Duration `knob:"serve.idle_timeout" default:"1m" want:"1ms to 1h"`
	// How long a server still accepts requests after SIGTERM. Meanwhile /readyz answers 503, so that load balancers send
	// it no new requests.
	DrainDelay time.Duration `knob:"serve.drain_delay" default:"5s" want:"0s to 10m"`
	// How long to wait for requests in flight after serve.drain_delay.
	DrainTimeout time.Duration `knob:"serve.drain_timeout" default:"20s" want:"1ms to 1h"`
	// File with the server's certificate, in PEM; empty to serve without TLS, behind a proxy that has a certificate.
	TLSCert string `knob:"serve.tls_cert,common"`
	// File with the key of the certificate, in PEM. Other users must not be able to read it, as with the file of a secret.
	TLSKey string `knob:"serve.tls_key,common"`
	// File with the certificates of the authorities that may sign a caller's certificate, in PEM. If it is set, only
	// callers with such a certificate may connect. The file is read again when it changes, like certificate and key.
	TLSClientCA string `knob:"serve.tls_client_ca"`
	// File with the certificate of the control listener, in PEM; empty to serve administration without TLS.
	ControlTLSCert string `knob:"serve.control_tls_cert"`
	// File with the key of the control listener's certificate, in PEM. Other users must not be able to read it, as with
	// the file of a secret.
	ControlTLSKey string `knob:"serve.control_tls_key"`
	// File with the certificates of the authorities that may sign the certificate of a caller of the control listener,
	// in PEM.
	ControlTLSClientCA string `knob:"serve.control_tls_client_ca"`
}

// AnswerTime returns how long the server may work on a request. The rest of WriteTimeout is for writing the answer.
func (c *Serve) AnswerTime() time.Duration {
	return max(c.WriteTimeout-time.Second, c.WriteTimeout/2)
}

// KeysURL returns the URL of the key set. It returns "" if Keys is a file.
func (c *Serve) KeysURL() string {
	if strings.Contains(c.Keys, "://") {
		return c.Keys
	}
	return ""
}

// HasTokens reports whether users are authenticated by tokens.
func (c *Serve) HasTokens() bool { return c.Keys != "" || c.Issuer != "" || c.Audience != "" }

// Check returns everything that is wrong with the knobs.
func (c *Serve) Check() error {
	errs := knob.Check(c)
	if c.HasTokens() {
		errs = append(errs, c.checkTokens()...)
	}
	_, errFacts := c.FactSources()
	_, errProxies := c.Proxies()
	if errs = append(errs, errFacts, errProxies, c.checkOrigins()); errors.Join(errs...) == nil {
		return nil
	}
	return fmt.Errorf("server configuration: %w", errors.Join(errs...))
}

func (c *Serve) checkTokens() (errs []error) {
	for name, v := range map[string]string{"keys": c.Keys, "issuer": c.Issuer, "audience": c.Audience,
		"user_claim": c.UserClaim} {
		if v == "" {
			errs = append(errs, fmt.Errorf("serve.%s is empty: set it, or tokens for other services would be valid here", name))
		}
	}
	if u, err := url.Parse(c.KeysURL()); err != nil || c.KeysURL() != "" && u.Scheme != "https" &&
		(u.Scheme != "http" || !knob.IsLoopback(u.Hostname())) {
		errs = append(errs, errors.New("serve.keys is a URL, but not an https:// one: anyone on the network path could "+
			"insert keys"))
	}
	return errs
}

// Proxies returns the networks of trusted proxies.
func (c *Serve) Proxies() ([]netip.Prefix, error) {
	out := make([]netip.Prefix, len(c.TrustedProxies))
	for i, text := range c.TrustedProxies {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() {
			return nil, fmt.Errorf("serve.trusted_proxies: %.80q: want a network, as 10.0.0.0/8", text)
		}
		out[i] = p
	}
	return out, nil
}

func (c *Serve) checkOrigins() error {
	for _, text := range c.CORSOrigins {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Scheme+"://"+u.Host != text ||
			strings.Contains(text, "*") {
			return fmt.Errorf("serve.cors_origins: %.80q: want an origin as browsers write it, https://app.example.com", text)
		}
	}
	return nil
}

// The kinds of sources of facts.
const (
	FactFromClaim   = "claim"
	FactFromGateway = "gateway"
)

// FactSources maps each kind of source, and the name of a fact in that source, to the name of the fact.
type FactSources map[string]map[string]string

// FactSources parses Facts.
func (c *Serve) FactSources() (FactSources, error) {
	out := FactSources{FactFromClaim: {}, FactFromGateway: {}}
	seen := map[string]bool{}
	for _, item := range c.Facts {
		fact, source, _ := strings.Cut(item, "=")
		kind, name, _ := strings.Cut(source, ":")
		err := hongbao.CheckFactName(fact)
		switch {
		case err != nil:
			return nil, fmt.Errorf("serve.facts: %.80q: the fact %.40q: %w", item, fact, err)
		case out[kind] == nil || name == "":
			return nil, fmt.Errorf("serve.facts: %.80q: want it as device=claim:device_id or "+
				"device=gateway:device", item)
		case kind != FactFromClaim && hongbao.CheckFactName(name) != nil:
			return nil, fmt.Errorf("serve.facts: %.80q: %.40q: want a name like that of a fact", item, name)
		case seen[kind+" "+fact] || out[kind][name] != "":
			return nil, fmt.Errorf("serve.facts: %.80q: the fact has such a source already, or the source a fact", item)
		}
		out[kind][name], seen[kind+" "+fact] = fact, true
	}
	return out, nil
}

// checkServe compares the knobs of the server with each other. CheckServe makes the checks that only a process that
// serves must pass.
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

// clientCA makes the server require certificates of its callers, if path is not empty. The parameter name is the common
// prefix of the knobs. If the server has no certificate, clientCA does nothing, because CheckServe reports that.
func (l *loader) clientCA(t *tls.Config, name, path string) {
	if path == "" || t == nil || !l.p.fine(name+"_cert", name+"_client_ca") {
		return
	}
	ca, err := watch(func() (*x509.CertPool, error) { return ReadRoots(path) }, path)
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

// CheckServe returns problems that concern only the server. Other commands may share the server's configuration file,
// so Load does not report these problems.
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
			"grab would never be written; lower the first or raise the second", call, write)
	}
	return nil
}

// ServeConfig returns the server's complete configuration.
func (c *Config) ServeConfig() Serve {
	out := c.Serve
	out.TLS, out.ControlTLS = c.serveTLS.Clone(), c.controlTLS.Clone()
	return out
}

// ServeKeyFile returns a function that reads the file of serve.keys. The function also reports if other users can read
// the file. ServeKeyFile returns nil if serve.keys is not a file.
func (c *Config) ServeKeyFile() func() (text []byte, open string, err error) {
	if c.Serve.KeysURL() != "" {
		return nil
	}
	return keyFile(c.Serve.Keys)
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
