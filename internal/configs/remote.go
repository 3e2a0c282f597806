package configs

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/sinks/remote"
)

// checkRemote compares the knobs of the remote and of the balance server with each other and with the consumer's knobs.
func (l *loader) checkRemote(c *Config) {
	r, b := &c.Remote, &c.Balance
	if c.Settlement.Kind == SettleRemote && l.p.fine("settlement.kind", "remote.url") && r.URL == "" {
		l.bad("remote.url", "it is empty, but settlement.kind is remote: set the URL of the balance system")
	}
	if c.Settlement.Kind == SettleRemote && l.p.fine("settlement.kind", "remote.retention", "remote.queryable") &&
		(l.sources["remote.retention"] == "" || l.sources["remote.queryable"] == "") {
		l.bad("remote.retention", "it and remote.queryable have no default: declare both. How long does the remote "+
			"certainly remember an Idempotency-Key (0s: it does not)? Does it answer queries by reference (true or false)? "+
			"A promise that the remote does not keep can pay twice")
	}
	if c.Settlement.Kind == SettleRemote && l.p.fine("settlement.kind", "deployment.id") &&
		len(c.Deployment.ID) > remote.MaxDeployment {
		l.bad("deployment.id", "it has %d characters, but settlement.kind is remote: want at most %d", len(c.Deployment.ID),
			remote.MaxDeployment)
	}
	l.order("remote.timeout", r.Timeout, "not above remote.claim_time", r.ClaimTime+1,
		"other workers would ask before the answer arrives", "remote.claim_time")
	if c.Settlement.Kind == SettleRemote {
		l.order("remote.claim_time", r.ClaimTime, "below consumer.lease", c.Consumer.Lease,
			"two workers could request the same credit", "consumer.lease")
		l.order("remote.claim_time", r.ClaimTime, "below consumer.handle_timeout", c.Consumer.HandleTimeout,
			"a slow remote would count as no progress", "consumer.handle_timeout")
	}
	if r.Retention > 0 {
		l.order("remote.margin", r.Margin, "below remote.retention", r.Retention, "", "remote.retention")
		l.order("remote.claim_time", r.ClaimTime, "below remote.margin", r.Margin,
			"a repeat could arrive after the remote has forgotten the key", "remote.margin")
	}
	if r.QueryFinal > 0 {
		l.order("remote.claim_time", r.ClaimTime, "not above remote.query_final", r.QueryFinal+1, "", "remote.query_final")
	}
	if l.p.fine("remote.batch_credits", "remote.retention") && r.BatchCredits > 0 && r.Retention == 0 {
		l.p.contradict("remote.batch_credits", l.source("remote.batch_credits"),
			"it is %d, want it 0 with remote.retention 0s: batches are for idempotent remotes", r.BatchCredits)
	}
	if l.p.fine("remote.query_final", "remote.queryable") && r.QueryFinal > 0 && !r.Queryable {
		l.p.contradict("remote.query_final", l.source("remote.query_final"), "want it 0s with remote.queryable false")
	}
	c.remoteTLS = l.httpsTLS("remote", r.URL, &r.TLS)
	l.order("balance.handle_timeout", b.HandleTimeout, "below balance.write_timeout", b.WriteTimeout,
		"its answer would never be written", "balance.write_timeout")
	c.balanceTLS = l.serverTLS("balance.tls", b.TLSCert, b.TLSKey)
	l.checkPlain(c)
}

// checkPlain refuses to send the remote's token in clear text to another machine, and to accept tokens in clear text.
func (l *loader) checkPlain(c *Config) {
	u, err := url.Parse(c.Remote.URL)
	if err == nil && l.p.fine("remote.url", "remote.token", "unsafe.allow") && u.Scheme == "http" &&
		c.Remote.Token != "" &&
		!knob.IsLoopback(u.Hostname()) && !slices.Contains(c.Unsafe.Allow, UnsafeRemoteToken) {
		l.bad("remote.url", "it is http, so remote.token would be sent in clear text: use https, or add %s to unsafe.allow",
			UnsafeRemoteToken)
	}
	l.checkListen(c, "balance.", c.Balance.Listen, c.Balance.TLSCert, UnsafeBalanceListen)
}

// checkListen refuses to accept tokens or keys in clear text from other machines. The parameter name is the common
// prefix of the listener's knobs.
func (l *loader) checkListen(c *Config, name, listen, cert, allow string) {
	host, _, err := net.SplitHostPort(listen)
	if err == nil && l.p.fine(name+"listen", name+"tls_cert", name+"tls_key", "unsafe.allow") && cert == "" &&
		!knob.IsLoopback(host) && !slices.Contains(c.Unsafe.Allow, allow) {
		l.bad(name+"listen", "it is not on loopback, and %[1]stls_cert is empty, so tokens would arrive in clear text: "+
			"set %[1]stls_cert and %[1]stls_key, or add %[2]s to unsafe.allow", name, allow)
	}
}

// httpsTLS returns the TLS configuration for a URL, or nil for the system's authorities and no certificate. The
// parameter section is the common prefix of the knobs.
func (l *loader) httpsTLS(section, address string, t *TLSFiles) *tls.Config {
	name, at := section+".tls", section+".url"
	if *t == (TLSFiles{}) || !l.p.fine(at, name+"_ca", name+"_cert", name+"_key", name+"_server_name") {
		return nil
	}
	if !strings.HasPrefix(address, "https://") {
		l.bad(at, "it does not begin with https://, but a %s_... is set: use https, or remove these", name)
		return nil
	}
	c := l.tlsFiles(name, t)
	if w := l.authorities[name+"_ca"]; w != nil {
		server, err := url.Parse(address)
		if err != nil {
			return nil // the check of the knob reports it
		}
		verifyBy(c, cmp.Or(c.ServerName, server.Hostname()), w.current)
	}
	return c
}

// serverTLS returns the TLS configuration of a server, or nil if it has no certificate. The parameter name is the
// common prefix of the two knobs.
func (l *loader) serverTLS(name, cert, key string) *tls.Config {
	switch {
	case cert == "" && key == "":
		return nil
	case cert == "":
		l.bad(name+"_cert", "it is empty, but %s_key is set: set both or none", name)
		return nil
	case key == "":
		l.bad(name+"_key", "it is empty, but %s_cert is set: set both or none", name)
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: l.keyPair(name, cert, key).server}
}
