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
	// Address (host:port) on which the server listens for users and gateways; 0.0.0.0:8080 for every interface.
	//
	// Port 0 selects a free port.
	Listen string `knob:"serve.listen,common" default:"127.0.0.1:8080" form:"listen"`
	// Address (host:port) of /livez, /readyz and /metrics, for probes and monitoring.
	OpsListen string `knob:"serve.ops_listen,common" default:"127.0.0.1:8082" form:"listen"`
	// TLS, if not nil, is the TLS configuration of the public listener, with its certificate.
	TLS *tls.Config
	// The JSON Web Key Set of the tokens' issuer: the path of a file, or an https:// URL. The server reads a changed file
	// again, and fetches a URL every 5 minutes. Each key names its algorithm: HS256, RS256, ES256 or EdDSA. There is no
	// default.
	Keys string `knob:"serve.keys,common"`
	// Value that the claim iss of a token must have. There is no default.
	Issuer string `knob:"serve.issuer,common"`
	// Value that the claim aud of a token must have. There is no default.
	Audience string `knob:"serve.audience,common"`
	// Name of the claim that has the user's id in a token.
	UserClaim string `knob:"serve.user_claim" default:"sub"`
	// Where the server finds the facts that limits count by. device=claim:device_id takes the fact device from the claim
	// device_id of a token. device=gateway:NAME takes the fact device from NAME in the requests of a gateway with an API
	// key. A fact may have one source of each kind. A fact without a source is unknown.
	Facts []string `knob:"serve.facts,common"`
	// The largest difference between the clocks of this machine and of the tokens' issuer.
	Leeway time.Duration `knob:"serve.leeway" default:"5s" want:"0s to 1m"`
	// The most requests of one user per second, on average. Each server counts its own requests.
	Rate int `knob:"serve.rate,common" default:"5" want:"1 to 1_000_000 requests a second"`
	// The most requests of one user at once (burst).
	Burst int `knob:"serve.burst,common" default:"20" want:"1 to 1_000_000 requests"`
	// The most grabs and reads with one API key per second, on average. A batch counts as the number of its grabs.
	KeyRate int `knob:"serve.key_rate,common" default:"10000" want:"1 to 1_000_000 grabs a second"`
	// The most grabs and reads with one API key at once (burst). The largest batch has 128 grabs. After an outage of a few
	// seconds a gateway repeats all that it sent meanwhile, at once.
	KeyBurst int `knob:"serve.key_burst" default:"100000" want:"128 to 1_000_000 grabs"`
	// The most requests from one address per second, on average, whoever sends them; 0 for no limit. An IPv6 address
	// counts by its first 64 bits.
	AddressRate int `knob:"serve.address_rate,common" default:"0" want:"0 to 1_000_000 requests a second"`
	// The most requests from one address at once (burst).
	AddressBurst int `knob:"serve.address_burst" default:"200" want:"1 to 1_000_000 requests"`
	// Networks of your proxies, such as 10.0.0.0/8. The server believes the header X-Forwarded-For of these proxies only.
	TrustedProxies []string `knob:"serve.trusted_proxies"`
	// Origins of the web pages that may read the server's answers (CORS), such as https://app.example.com.
	CORSOrigins []string `knob:"serve.cors_origins"`
	// The most open connections of each listener. Further connections wait until one is closed.
	Connections int `knob:"serve.connections" default:"20000" want:"1 to 1_000_000 connections"`
	// The most open connections from one address, or one IPv6 /64 network, to serve.listen; 0 for no limit. The server
	// closes further connections at once. Addresses in serve.trusted_proxies have no limit.
	AddressConnections int `knob:"serve.address_connections" default:"10000" want:"0 to 1_000_000 connections"`
	// Time limit for the arrival of a request's head.
	ReadHeaderTimeout time.Duration `knob:"serve.read_header_timeout" default:"5s" want:"1ms to 1m"`
	// Time limit for the arrival of a whole request.
	ReadTimeout time.Duration `knob:"serve.read_timeout" default:"10s" want:"1ms to 5m"`
	// Time limit for a request, until its answer is written. It must be longer than
	// producer.queue_timeout, producer.call_timeout and producer.undecided_timeout together.
	WriteTimeout time.Duration `knob:"serve.write_timeout" default:"30s" want:"2ms to 10m"`
	// After this time without a request, the server closes a connection. It must be longer than the load balancer's own
	// idle timeout.
	IdleTimeout time.Duration `knob:"serve.idle_timeout" default:"75s" want:"1ms to 1h"`
	// How long the server still accepts requests after SIGTERM. During this time /readyz answers 503, so that load
	// balancers send no new requests.
	DrainDelay time.Duration `knob:"serve.drain_delay" default:"5s" want:"0s to 10m"`
	// How long the stopping server waits for the running requests, after serve.drain_delay.
	DrainTimeout time.Duration `knob:"serve.drain_timeout" default:"20s" want:"1ms to 1h"`
	// File with the server's certificate, in PEM; empty to serve without TLS, behind a proxy that has a certificate.
	TLSCert string `knob:"serve.tls_cert,common"`
	// File with the key of the server's certificate, in PEM. Protect this file like the file of a secret.
	TLSKey string `knob:"serve.tls_key,common"`
	// File with the certificates of the authorities that may sign a caller's certificate, in PEM. If this knob is set,
	// only callers with such a certificate may connect. The server reads a changed file again.
	TLSClientCA string `knob:"serve.tls_client_ca"`
}

// AnswerTime returns how long the server may work on a request. The rest of WriteTimeout is for writing the answer.
func (c *Serve) AnswerTime() time.Duration {
	return answerTime(c.WriteTimeout)
}

func answerTime(write time.Duration) time.Duration { return max(write-time.Second, write/2) }

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
	} else if u.User != nil {
		errs = append(errs, errors.New("serve.keys has a user or a password, which would get into logs: remove it; a key set "+
			"is public"))
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
	l.checkListen(c, "serve.", s.Listen, s.TLSCert, UnsafeServeListen)
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
	if err := needsCert("serve.tls", c.Serve.TLSClientCA, c.serveTLS); err != nil {
		return err
	}
	grab := c.Producer.QueueTimeout + c.Producer.CallTimeout + c.Producer.UndecidedTimeout
	if write := c.Serve.WriteTimeout; grab >= write {
		return fmt.Errorf("producer.queue_timeout, producer.call_timeout and producer.undecided_timeout add up to %s, want less "+
			"than serve.write_timeout, which is %s: the answer to a slow grab would never be written; lower them or raise that",
			grab, write)
	}
	return nil
}

// ServeConfig returns the complete configuration of the server.
func (c *Config) ServeConfig() Serve {
	out := c.Serve
	out.TLS = c.serveTLS.Clone()
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
