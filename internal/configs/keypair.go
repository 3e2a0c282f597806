package configs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"
)

// keyPair is a certificate and its key in two files. Each handshake uses the current content of the files.
type keyPair struct{ *watched[tls.Certificate] }

// newKeyPair reads the two files. It returns the error of each file separately. If certificate and key do not match,
// that is certErr.
func newKeyPair(cert, key string) (p keyPair, certErr, keyErr error) {
	p.watched, certErr = watch(func() (*tls.Certificate, error) { return readKeyPair(cert, key) }, cert, key)
	var wrong *keyPairError
	if errors.As(certErr, &wrong) {
		return p, wrong.cert, wrong.key
	}
	return p, certErr, nil
}

// keyPairError has the error of each file.
type keyPairError struct{ cert, key error }

func (e *keyPairError) Error() string { return errors.Join(e.cert, e.key).Error() }

func readKeyPair(cert, key string) (*tls.Certificate, error) {
	certText, _, certErr := readFile(cert, maxFile)
	if certErr != nil {
		certErr = fmt.Errorf("it can't be read: %w", certErr)
	}
	keyText, info, keyErr := readFile(key, maxFile)
	if keyErr != nil {
		keyErr = fmt.Errorf("it can't be read: %w", keyErr)
	} else if wrong := tooOpen(key, info); wrong != "" {
		keyErr = errors.New(wrong)
	}
	if certErr != nil || keyErr != nil {
		return nil, &keyPairError{certErr, keyErr}
	}
	pair, err := tls.X509KeyPair(certText, keyText)
	if err != nil {
		return nil, fmt.Errorf("%s and %s are not a pair: set the key that the certificate was made with: %w", cert, key, err)
	}
	return &pair, nil
}

// server offers the pair to clients, and client sends it to servers that ask for a certificate.
func (p keyPair) server(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.current(), nil }
func (p keyPair) client(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return p.current(), nil
}

// CertificateEnds returns when the certificate of each knob expires. It first reads files that have changed, also if no
// handshake has used them.
func (c *Config) CertificateEnds() map[string]time.Time {
	ends := make(map[string]time.Time, len(c.pairs))
	for knob, p := range c.pairs {
		if pair := p.current(); pair != nil && pair.Leaf != nil {
			ends[knob] = pair.Leaf.NotAfter
		}
	}
	return ends
}
