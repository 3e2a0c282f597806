package configs

import (
	"crypto/tls"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/httpapi"
	"github.com/hongbao-project/hongbao/internal/remote"
)

// Where the sink balance settles.
const (
	SettleLedger = "ledger"
	SettleRemote = "remote"
)

// Settlement says where grants are settled.
type Settlement struct{ Kind string }

// Remote holds the knobs of package internal/remote.
type Remote struct {
	URL                                                 string
	Token                                               Secret
	TLS                                                 TLSFiles
	ConnectTimeout, HeaderTimeout, Timeout, IdleTimeout time.Duration
	BodyBytes                                           int64
	Concurrency, BatchCredits                           int
	Retention, Margin                                   time.Duration
	Queryable                                           bool
	QueryFinal, ClaimTime                               time.Duration
	Repeats                                             int
	Pause                                               time.Duration
	BreakerFailures                                     int
	BreakerOpen, MaxRetryAfter                          time.Duration
}

// Balance holds the knobs of the server `hongbao balance`.
type Balance struct {
	Listen                                                                   string
	Token                                                                    Secret
	TLSCert, TLSKey                                                          string
	ReadHeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout, HandleTimeout time.Duration
	DrainTimeout                                                             time.Duration
	HeaderBytes                                                              int
	BodyBytes, BatchBytes                                                    int64
	BatchCredits, InFlight                                                   int
}

var settlementKnobs = []knob{
	{name: "settlement.kind", field: func(c *Config) any { return &c.Settlement.Kind }, def: SettleLedger,
		choices: []string{SettleLedger, SettleRemote},
		doc: "Where the sink balance settles: in the ledger's database, or at a remote balance system over HTTP, and the " +
			"ledger records it. Never change it while grants are open."},
}

var remoteKnobs = []knob{
	{name: "remote.url", field: func(c *Config) any { return &c.Remote.URL }, check: baseURL,
		doc: "Where the remote's API begins, http(s)://host[:port][/path]; /v1/credits is put behind it."},
	{name: "remote.token", field: func(c *Config) any { return &c.Remote.Token }, secret: alwaysSecret,
		doc: "Bearer token for the remote."},
	{name: "remote.tls_ca", field: func(c *Config) any { return &c.Remote.TLS.CA },
		doc: "File with the certificates of those who may sign the remote's, in PEM; empty for the system's."},
	{name: "remote.tls_cert", field: func(c *Config) any { return &c.Remote.TLS.Cert }, doc: "File with the client's " +
		"certificate, in PEM."},
	{name: "remote.tls_key", field: func(c *Config) any { return &c.Remote.TLS.Key },
		doc: "File with the key of the client's certificate, in PEM; closed to others as a secret's file is."},
	{name: "remote.tls_server_name", field: func(c *Config) any { return &c.Remote.TLS.ServerName },
		doc: "Name that the remote's certificate must have; empty for the host in remote.url."},
	{name: "remote.connect_timeout", field: func(c *Config) any { return &c.Remote.ConnectTimeout }, def: "2s", low: ms,
		high: minute,
		doc:  "One connect, and one TLS handshake."},
	{name: "remote.header_timeout", field: func(c *Config) any { return &c.Remote.HeaderTimeout }, def: "5s", low: ms,
		high: 5 * minute,
		doc:  "Wait for the answer's head once the request is written."},
	{name: "remote.timeout", field: func(c *Config) any { return &c.Remote.Timeout }, def: "8s", low: ms,
		high: 10 * minute, doc: "One request as a whole."},
	{name: "remote.idle_timeout", field: func(c *Config) any { return &c.Remote.IdleTimeout }, def: "30s", low: ms,
		high: hour,
		doc:  "Unused connections are closed after this; below the remote's own."},
	{name: "remote.body_bytes", field: func(c *Config) any { return &c.Remote.BodyBytes }, def: "4096", unit: "bytes",
		low: 512, high: 1 << 20,
		doc: "An answer about one credit at most."},
	{name: "remote.concurrency", field: func(c *Config) any { return &c.Remote.Concurrency }, def: "256", unit: "requests",
		low: 1, high: 10_000,
		doc: "Requests of one process under way at once."},
	{name: "remote.batch_credits", field: func(c *Config) any { return &c.Remote.BatchCredits }, def: "0", unit: "credits",
		high: 1_000,
		doc: "Credits in one request to /v1/credits:batch; 0 if the remote has no such endpoint. For idempotent remotes " +
			"only."},
	{name: "remote.retention", field: func(c *Config) any { return &c.Remote.Retention }, high: 3650 * day,
		doc: "How long the remote surely remembers an Idempotency-Key; 0s if it is not idempotent. No default: it must be " +
			"declared for settlement.kind remote."},
	{name: "remote.margin", field: func(c *Config) any { return &c.Remote.Margin }, def: "5m", high: 30 * day,
		doc: "Taken off the retention, for clocks that differ and requests that are slow."},
	{name: "remote.queryable", field: func(c *Config) any { return &c.Remote.Queryable },
		doc: "The remote answers GET /v1/credits/{reference}. No default: it must be declared for settlement.kind remote. A " +
			"remote that is neither idempotent nor queryable gets each credit at most once, and a person decides about what is " +
			"unknown."},
	{name: "remote.query_final", field: func(c *Config) any { return &c.Remote.QueryFinal }, def: "0s", high: 365 * day,
		doc: "How long after it was sent a request can still take effect: then 'not found' is final, and the credit is sent " +
			"anew. 0s: never."},
	{name: "remote.claim_time", field: func(c *Config) any { return &c.Remote.ClaimTime }, def: "20s", low: ms,
		high: 30 * minute,
		doc:  "How long only the worker that began a credit asks for it; then others may find out about it."},
	{name: "remote.repeats", field: func(c *Config) any { return &c.Remote.Repeats }, def: "3", high: 20,
		doc: "How often an unknown answer is resolved again before the grant goes back to the consumer, which tries again " +
			"later."},
	{name: "remote.pause", field: func(c *Config) any { return &c.Remote.Pause }, def: "100ms", low: ms, high: minute,
		doc: "Wait before the first of these; it doubles."},
	{name: "remote.breaker_failures", field: func(c *Config) any { return &c.Remote.BreakerFailures }, def: "50", low: 1,
		high: 1e6,
		doc:  "Failures in a row that stop all requests."},
	{name: "remote.breaker_open", field: func(c *Config) any { return &c.Remote.BreakerOpen }, def: "5s", low: ms,
		high: hour,
		doc:  "How long they are stopped before one is let through."},
	{name: "remote.max_retry_after", field: func(c *Config) any { return &c.Remote.MaxRetryAfter }, def: "1m", low: ms,
		high: hour,
		doc:  "The longest silence that a Retry-After of the remote can ask for."},
}

var balanceKnobs = []knob{
	{name: "balance.listen", field: func(c *Config) any { return &c.Balance.Listen }, def: "127.0.0.1:8081",
		check: hostPort,
		doc:   "Address to listen on; 0.0.0.0:8081 for every interface."},
	{name: "balance.token", field: func(c *Config) any { return &c.Balance.Token }, secret: alwaysSecret,
		doc: "Token for `hongbao balance client add`, which keeps its hash, 32 to 512 characters; empty: it draws one. The " +
			"server does not need it."},
	{name: "balance.tls_cert", field: func(c *Config) any { return &c.Balance.TLSCert },
		doc: "File with the server's certificate, in PEM; empty to serve without TLS, behind a proxy that has it."},
	{name: "balance.tls_key", field: func(c *Config) any { return &c.Balance.TLSKey },
		doc: "File with the key of the certificate, in PEM; closed to others as a secret's file is."},
	{name: "balance.read_header_timeout", field: func(c *Config) any { return &c.Balance.ReadHeaderTimeout }, def: "5s",
		low: ms, high: minute,
		doc: "A request's head must have arrived."},
	{name: "balance.read_timeout", field: func(c *Config) any { return &c.Balance.ReadTimeout }, def: "10s", low: ms,
		high: 5 * minute,
		doc:  "A request must have arrived whole."},
	{name: "balance.write_timeout", field: func(c *Config) any { return &c.Balance.WriteTimeout }, def: "30s", low: 2 * ms,
		high: 10 * minute,
		doc:  "A request must have been answered."},
	{name: "balance.idle_timeout", field: func(c *Config) any { return &c.Balance.IdleTimeout }, def: "1m", low: ms,
		high: hour,
		doc:  "Connections without requests are closed after this; above the callers' own."},
	{name: "balance.handle_timeout", field: func(c *Config) any { return &c.Balance.HandleTimeout }, def: "15s", low: ms,
		high: 9 * minute,
		doc:  "Work on one request."},
	{name: "balance.drain_timeout", field: func(c *Config) any { return &c.Balance.DrainTimeout }, def: "20s", low: ms,
		high: hour,
		doc:  "Wait for requests under way when it is told to stop."},
	{name: "balance.header_bytes", field: func(c *Config) any { return &c.Balance.HeaderBytes }, def: "16384",
		unit: "bytes", low: 1024, high: 1 << 20,
		doc: "A request's head at most."},
	{name: "balance.body_bytes", field: func(c *Config) any { return &c.Balance.BodyBytes }, def: "4096", unit: "bytes",
		low: 512, high: 1 << 20,
		doc: "The body of one credit at most."},
	{name: "balance.batch_bytes", field: func(c *Config) any { return &c.Balance.BatchBytes }, def: "1048576",
		unit: "bytes", low: 512, high: 16 << 20,
		doc: "The body of a batch at most."},
	{name: "balance.batch_credits", field: func(c *Config) any { return &c.Balance.BatchCredits }, def: "500",
		unit: "credits", low: 1, high: 1_000,
		doc: "Credits of a batch at most."},
	{name: "balance.in_flight", field: func(c *Config) any { return &c.Balance.InFlight }, def: "1000", unit: "requests",
		low: 1, high: 100_000,
		doc: "Requests under way; more are answered 503."},
}

func baseURL(s string) string {
	u, err := url.Parse(s)
	if s != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "") {
		return "want http(s)://host[:port][/path], without user and query"
	}
	return ""
}

// checkRemote compares the knobs of the remote, and those of the balance server, with each other and with the
// consumer's.
func (l *loader) checkRemote(c *Config) {
	r, b := &c.Remote, &c.Balance
	if c.Settlement.Kind == SettleRemote && l.p.fine("settlement.kind", "remote.url") && r.URL == "" {
		l.bad("remote.url", "it is empty, but settlement.kind is remote: set where the balance system is")
	}
	if c.Settlement.Kind == SettleRemote && l.p.fine("settlement.kind", "remote.retention", "remote.queryable") &&
		(l.sources["remote.retention"] == "" || l.sources["remote.queryable"] == "") {
		l.bad("remote.retention", "it and remote.queryable have no default: declare both. What does the remote promise? How "+
			"long does it surely remember an Idempotency-Key (0s: it does not), and does it answer questions by reference "+
			"(true or false)? What it does not keep can pay twice")
	}
	if c.Settlement.Kind == SettleRemote && l.p.fine("settlement.kind", "deployment.id") &&
		len(c.Deployment.ID) > remote.MaxDeployment {
		l.bad("deployment.id", "it has %d characters, but settlement.kind is remote: its keys take %d", len(c.Deployment.ID),
			remote.MaxDeployment)
	}
	l.order("remote.timeout", r.Timeout, "not above remote.claim_time", r.ClaimTime+1,
		"others would ask before its answer", "remote.claim_time")
	if c.Settlement.Kind == SettleRemote {
		l.order("remote.claim_time", r.ClaimTime, "below consumer.lease", c.Consumer.Lease,
			"two workers could ask for one credit", "consumer.lease")
		l.order("remote.claim_time", r.ClaimTime, "below consumer.handle_timeout", c.Consumer.HandleTimeout,
			"a slow remote would count as no progress", "consumer.handle_timeout")
	}
	if r.Retention > 0 {
		l.order("remote.margin", r.Margin, "below remote.retention", r.Retention, "", "remote.retention")
		l.order("remote.claim_time", r.ClaimTime, "below remote.margin", r.Margin,
			"a repeat could arrive when the key is forgotten", "remote.margin")
	}
	if r.QueryFinal > 0 {
		l.order("remote.claim_time", r.ClaimTime, "not above remote.query_final", r.QueryFinal+1, "", "remote.query_final")
	}
	if l.p.fine("remote.batch_credits", "remote.retention") && r.BatchCredits > 0 && r.Retention == 0 {
		l.p.tell("remote.batch_credits", l.source("remote.batch_credits"),
			"it is %d, want it 0 with remote.retention 0s: batches are for idempotent remotes", r.BatchCredits)
	}
	if l.p.fine("remote.query_final", "remote.queryable") && r.QueryFinal > 0 && !r.Queryable {
		l.p.tell("remote.query_final", l.source("remote.query_final"), "want it 0s with remote.queryable false")
	}
	c.remoteTLS = l.remoteTLS(r)
	l.order("balance.handle_timeout", b.HandleTimeout, "below balance.write_timeout", b.WriteTimeout,
		"its answer would never be written", "balance.write_timeout")
	c.balanceTLS = l.balanceTLS(b)
	l.checkPlain(c)
}

// checkPlain refuses what would send a token in clear text to another machine, or take one from it.
func (l *loader) checkPlain(c *Config) {
	u, err := url.Parse(c.Remote.URL)
	if err == nil && l.p.fine("remote.url", "remote.token", "unsafe.allow") && u.Scheme == "http" &&
		c.Remote.Token != "" &&
		!loopback(u.Hostname()) && !slices.Contains(c.Unsafe.Allow, UnsafeRemoteToken) {
		l.bad("remote.url", "it is http, so remote.token would be sent in clear text: use https, or add %s to unsafe.allow",
			UnsafeRemoteToken)
	}
	host, _, err := net.SplitHostPort(c.Balance.Listen)
	if err == nil && l.p.fine("balance.listen", "balance.tls_cert", "balance.tls_key", "unsafe.allow") &&
		c.Balance.TLSCert == "" &&
		!loopback(host) && !slices.Contains(c.Unsafe.Allow, UnsafeBalanceListen) {
		l.bad("balance.listen", "it is not on loopback, and balance.tls_cert is empty, so tokens would come in clear text: "+
			"set balance.tls_cert and balance.tls_key, or add %s to unsafe.allow", UnsafeBalanceListen)
	}
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// remoteTLS reads the files for an https remote; nil for the system's roots.
func (l *loader) remoteTLS(r *Remote) *tls.Config {
	const name = "remote.tls"
	if r.TLS == (TLSFiles{}) || !l.p.fine("remote.url", name+"_ca", name+"_cert", name+"_key", name+"_server_name") {
		return nil
	}
	if !strings.HasPrefix(r.URL, "https://") {
		l.bad("remote.url", "it does not begin with https://, but a remote.tls_... is set: use https, or remove those")
		return nil
	}
	return l.tlsFiles(name, &r.TLS)
}

// balanceTLS reads the server's certificate; nil without.
func (l *loader) balanceTLS(b *Balance) *tls.Config {
	switch {
	case b.TLSCert == "" && b.TLSKey == "":
		return nil
	case b.TLSCert == "":
		l.bad("balance.tls_cert", "it is empty, but balance.tls_key is set: set both or none")
		return nil
	case b.TLSKey == "":
		l.bad("balance.tls_key", "it is empty, but balance.tls_cert is set: set both or none")
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: l.keyPair("balance.tls", b.TLSCert, b.TLSKey).server}
}

// RemoteConfig is complete.
func (c *Config) RemoteConfig() remote.Config {
	r := &c.Remote
	return remote.Config{
		URL: r.URL, Token: r.Token.Reveal(), TLS: c.remoteTLS.Clone(), Deployment: c.Deployment.ID,
		ConnectTimeout: r.ConnectTimeout, HeaderTimeout: r.HeaderTimeout, Timeout: r.Timeout, IdleTimeout: r.IdleTimeout,
		BodyBytes: r.BodyBytes, Concurrency: r.Concurrency, BatchCredits: r.BatchCredits, Retention: r.Retention,
		Margin:    r.Margin,
		Queryable: r.Queryable, QueryFinal: r.QueryFinal, ClaimTime: r.ClaimTime, Repeats: r.Repeats, Pause: r.Pause,
		BreakerFailures: r.BreakerFailures, BreakerOpen: r.BreakerOpen, MaxRetryAfter: r.MaxRetryAfter,
	}
}

// BalanceConfig is complete.
func (c *Config) BalanceConfig() httpapi.Config {
	b := &c.Balance
	return httpapi.Config{
		Listen: b.Listen, TLS: c.balanceTLS.Clone(), ReadHeaderTimeout: b.ReadHeaderTimeout, ReadTimeout: b.ReadTimeout,
		WriteTimeout: b.WriteTimeout, IdleTimeout: b.IdleTimeout, HandleTimeout: b.HandleTimeout,
		DrainTimeout: b.DrainTimeout,
		HeaderBytes:  b.HeaderBytes, BodyBytes: b.BodyBytes, BatchBytes: b.BatchBytes, BatchCredits: b.BatchCredits,
		InFlight: b.InFlight,
	}
}
