package configs

import (
	"crypto/tls"
	"errors"
	"fmt"
)

// keyPair is a certificate and its key, in files. Each handshake takes those that are there now.
type keyPair struct{ *watched[tls.Certificate] }

// newKeyPair reads the files; it tells apart what is wrong with each. Two that do not belong together are an error of
// cert.
func newKeyPair(cert, key string) (p keyPair, certErr, keyErr error) {
	p.watched, _ = watch(func() (*tls.Certificate, error) {
		pair, certErr, keyErr := readKeyPair(cert, key)
		return &pair, errors.Join(certErr, keyErr)
	}, cert, key)
	_, certErr, keyErr = readKeyPair(cert, key)
	return p, certErr, keyErr
}

func readKeyPair(cert, key string) (pair tls.Certificate, certErr, keyErr error) {
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
		return pair, certErr, keyErr
	}
	if pair, certErr = tls.X509KeyPair(certText, keyText); certErr != nil {
		certErr = fmt.Errorf("%s and %s are no pair, set the key that the certificate was made with: %w", cert, key, certErr)
	}
	return pair, certErr, nil
}

// server gives the pair to clients, client to servers that ask for one.
func (p keyPair) server(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.current(), nil }
func (p keyPair) client(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return p.current(), nil
}
