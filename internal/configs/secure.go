package configs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// The SASL mechanisms of Kafka.
const (
	saslNone     = "none"
	saslPlain    = "plain"
	saslScram256 = "scram-sha-256"
	saslScram512 = "scram-sha-512"
	saslOAuth    = "oauthbearer"
)

// tls returns the TLS configuration of a section, or nil if TLS is off.
func (l *loader) tls(section string, t *TLS) *tls.Config {
	name := section + ".tls"
	if !l.p.fine(name, name+"_ca", name+"_cert", name+"_key", name+"_server_name") {
		return nil
	}
	if !t.On {
		if *t != (TLS{}) {
			l.bad(name, "it is false, but another %s_... is set: set it to true, or remove the others", name)
		}
		return nil
	}
	return l.tlsFiles(name, &t.TLSFiles)
}

// tlsFiles reads the files of a TLS client. The parameter name is the common prefix of their knobs.
func (l *loader) tlsFiles(name string, t *TLSFiles) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		c.RootCAs = l.roots(name+"_ca", t.CA).current()
	}
	switch {
	case t.Cert != "" && t.Key != "":
		c.GetClientCertificate = l.keyPair(name, t.Cert, t.Key).client
	case t.Cert != "":
		l.bad(name+"_key", "it is empty, but %s_cert is set: set both or none", name)
	case t.Key != "":
		l.bad(name+"_cert", "it is empty, but %s_key is set: set both or none", name)
	}
	return c
}

// ReadRoots reads a PEM file of CA certificates.
func ReadRoots(path string) (*x509.CertPool, error) {
	data, _, err := readFile(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("it can't be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s contains no certificate in PEM", path)
	}
	return pool, nil
}

// keyPair reads a certificate and its key, and watches both files. The parameter name is the common prefix of their
// knobs.
func (l *loader) keyPair(name, cert, key string) keyPair {
	p, certErr, keyErr := newKeyPair(cert, key)
	if certErr != nil {
		l.bad(name+"_cert", "%v", certErr)
	}
	if keyErr != nil {
		l.bad(name+"_key", "%v", keyErr)
	}
	l.watched = append(l.watched, p)
	l.pairs[name+"_cert"] = p
	return p
}

func (l *loader) checkSASL(c *Config) {
	k := &c.Kafka
	if !l.p.fine("kafka.sasl_mechanism", "kafka.sasl_username", "kafka.sasl_password", "kafka.sasl_token_file") {
		return
	}
	if k.SASLMechanism == saslOAuth {
		l.checkOAuth(c)
		return
	}
	if k.SASLTokenFile != "" {
		l.bad("kafka.sasl_token_file", "it is only for kafka.sasl_mechanism oauthbearer: set that, or remove the file")
	}
	if k.SASLMechanism == saslNone {
		if k.SASLUsername != "" || k.SASLPassword != "" {
			l.bad("kafka.sasl_mechanism", "it is none, but user or password are set: choose one, or remove both")
		}
		return
	}
	if k.SASLUsername == "" {
		l.bad("kafka.sasl_username", "it is empty, but kafka.sasl_mechanism is %s: set it", k.SASLMechanism)
	}
	if password := find("kafka.sasl_password"); k.SASLPassword == "" {
		l.bad(password.Name, "it is empty, but kafka.sasl_mechanism is %s: set %s or %s", k.SASLMechanism, password.Env(),
			password.Env()+fileSuffix)
	}
	if k.SASLMechanism == saslPlain && !k.TLS.On && !slices.Contains(c.Unsafe.Allow, unsafeSASL) {
		l.bad("kafka.sasl_mechanism", "plain sends the password in clear text: set kafka.tls to true, or use scram-sha-512, "+
			"or add %s to unsafe.allow", unsafeSASL)
	}
	if k.SASLUsername != "" && k.SASLPassword != "" {
		c.kafkaSASL = l.mechanism(k)
	}
}

func (l *loader) mechanism(k *Kafka) sasl.Mechanism {
	algorithm := scram.SHA512
	switch k.SASLMechanism {
	case saslPlain:
		return plain.Mechanism{Username: k.SASLUsername, Password: k.SASLPassword.Reveal()}
	case saslScram256:
		algorithm = scram.SHA256
	}
	m, err := scram.Mechanism(algorithm, k.SASLUsername, k.SASLPassword.Reveal())
	if err != nil { // the error could contain the password
		l.bad("kafka.sasl_password", "user or password contain characters that SCRAM does not allow")
	}
	return m
}
