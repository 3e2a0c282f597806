package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/knob"
	"github.com/hongbao-project/hongbao/internal/web"
)

// Config of a Server.
type Config struct {
	// Address that users reach; 0.0.0.0:8080 for every interface.
	//
	// Port 0 takes a free one.
	Listen string `knob:"serve.listen,common" default:"127.0.0.1:8080" form:"listen"`
	// Address of /livez and /readyz, for the machines that run this process.
	OpsListen string `knob:"serve.ops_listen,common" default:"127.0.0.1:8082" form:"listen"`
	// Address of administration; it is opened only where there is a ledger.
	ControlListen string `knob:"serve.control_listen,common" default:"127.0.0.1:8081" form:"listen"`
	// TLS and ControlTLS, if not nil, are what the public and the control listener offer; they hold the certificates.
	TLS, ControlTLS *tls.Config
	// The JSON Web Key Set of those who sign tokens: path of a file, which is read again when it has changed, or an
	// https:// URL, which is asked every 5 minutes. Each key names its algorithm: HS256, RS256, ES256 or EdDSA. Has no
	// default.
	Keys string `knob:"serve.keys,common"`
	// What a token's iss must be. Has no default.
	Issuer string `knob:"serve.issuer,common"`
	// What must be among a token's aud. Has no default.
	Audience string `knob:"serve.audience,common"`
	// The claim of a token that has the user's id.
	UserClaim string `knob:"serve.user_claim" default:"sub"`
	// Where each fact that limits count by comes from, as device=claim:device_id. A fact without a source is unknown.
	Facts []string `knob:"serve.facts,common"`
	// How far the clocks of this machine and of the tokens' issuer may be apart.
	Leeway time.Duration `knob:"serve.leeway" default:"5s" want:"0s to 1m"`
	// Requests of one user on average.
	Rate int `knob:"serve.rate,common" default:"5" want:"1 to 1_000_000 requests a second"`
	// Requests of one user at once.
	Burst int `knob:"serve.burst,common" default:"20" want:"1 to 1_000_000 requests"`
	// Open connections of each listener; more wait until one is closed.
	Connections int `knob:"serve.connections" default:"20000" want:"1 to 1_000_000 connections"`
	// A request's head at most.
	HeaderBytes int `knob:"serve.header_bytes" default:"16384" want:"1024 to 1_048_576 bytes"`
	// A request's body at most.
	BodyBytes int64 `knob:"serve.body_bytes" default:"4096" want:"512 to 1_048_576 bytes"`
	// A request's head must have arrived.
	ReadHeaderTimeout time.Duration `knob:"serve.read_header_timeout" default:"5s" want:"1ms to 1m"`
	// A request must have arrived whole.
	ReadTimeout time.Duration `knob:"serve.read_timeout" default:"10s" want:"1ms to 5m"`
	// A request must have been answered; above producer.call_timeout.
	WriteTimeout time.Duration `knob:"serve.write_timeout" default:"30s" want:"2ms to 10m"`
	// Connections without requests are closed after this; above the load balancer's own.
	IdleTimeout time.Duration `knob:"serve.idle_timeout" default:"1m" want:"1ms to 1h"`
	// How long a server that is told to stop still takes requests, while /readyz says 503, so that nobody sends it more.
	DrainDelay time.Duration `knob:"serve.drain_delay" default:"5s" want:"0s to 10m"`
	// Wait for requests under way after that.
	DrainTimeout time.Duration `knob:"serve.drain_timeout" default:"20s" want:"1ms to 1h"`
}

// DefaultConfig has every default; Keys, Issuer and Audience have none.
func DefaultConfig() Config { return knob.Defaults[Config]() }

// Limits are those of each listener's connections.
func (c *Config) Limits() web.Limits {
	return web.Limits{
		ReadHeaderTimeout: c.ReadHeaderTimeout, ReadTimeout: c.ReadTimeout, WriteTimeout: c.WriteTimeout,
		IdleTimeout: c.IdleTimeout, HeaderBytes: c.HeaderBytes,
	}
}

// AnswerTime is how long a request may take, so that there is time left to write its answer.
func (c *Config) AnswerTime() time.Duration {
	return max(c.WriteTimeout-time.Second, c.WriteTimeout/2)
}

// KeysURL is where the key set is asked for; empty if Keys names a file.
func (c *Config) KeysURL() string {
	if strings.Contains(c.Keys, "://") {
		return c.Keys
	}
	return ""
}

// Check tells everything that is wrong with the configuration at once.
func (c *Config) Check() error {
	errs := knob.Check(c)
	for name, v := range map[string]string{"keys": c.Keys, "issuer": c.Issuer, "audience": c.Audience,
		"user_claim": c.UserClaim} {
		if v == "" {
			errs = append(errs, fmt.Errorf("serve.%s is empty: set it, or tokens for others would be good here", name))
		}
	}
	if u, err := url.Parse(c.KeysURL()); err != nil || c.KeysURL() != "" && u.Scheme != "https" &&
		(u.Scheme != "http" || !knob.IsLoopback(u.Hostname())) {
		errs = append(errs, errors.New("serve.keys is a URL, but not an https:// one: anybody on the way could put keys in"))
	}
	if _, err := c.facts(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("server configuration: %w", errors.Join(errs...))
}

// facts gives the claim of each fact.
func (c *Config) facts() (map[string]string, error) {
	out := make(map[string]string, len(c.Facts))
	for _, item := range c.Facts {
		fact, source, _ := strings.Cut(item, "=")
		claim, ok := strings.CutPrefix(source, "claim:")
		err := hongbao.CheckFactName(fact)
		switch {
		case err != nil:
			return nil, fmt.Errorf("serve.facts: %.80q: the fact %.40q: %w", item, fact, err)
		case !ok || claim == "":
			return nil, fmt.Errorf("serve.facts: %.80q: want it as device=claim:device_id", item)
		case out[fact] != "":
			return nil, fmt.Errorf("serve.facts: the fact %q stands twice", fact)
		}
		out[fact] = claim
	}
	return out, nil
}
