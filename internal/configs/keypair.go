package configs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
)

// keyPair is a certificate and its key, in files. Each handshake looks whether the files have changed, and then reads
// them again. A pair that can't be used is told to the log once, and the pair before it goes on.
type keyPair struct {
	cert, key string
	log       atomic.Pointer[zap.Logger]

	mu    sync.Mutex
	seen  [2]os.FileInfo // the files as they were before the last reading
	valid *tls.Certificate
}

// newKeyPair reads the files; it tells apart what is wrong with each. Two that do not belong together are an error of
// cert.
func newKeyPair(cert, key string) (p *keyPair, certErr, keyErr error) {
	p = &keyPair{cert: cert, key: key}
	p.log.Store(zap.NewNop())
	p.seen = p.look()
	certErr, keyErr = p.read()
	return p, certErr, keyErr
}

func (p *keyPair) read() (certErr, keyErr error) {
	cert, _, certErr := readFile(p.cert, maxFile)
	if certErr != nil {
		certErr = fmt.Errorf("it can't be read: %w", certErr)
	}
	key, info, keyErr := readFile(p.key, maxFile)
	if keyErr != nil {
		keyErr = fmt.Errorf("it can't be read: %w", keyErr)
	} else if wrong := tooOpen(p.key, info); wrong != "" {
		keyErr = errors.New(wrong)
	}
	if certErr != nil || keyErr != nil {
		return certErr, keyErr
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s and %s are no pair, set the key that the certificate was made with: %w", p.cert, p.key, err),
			nil
	}
	p.valid = &pair
	return nil, nil
}

// look says what the files are like now; nil for one that can't be seen.
func (p *keyPair) look() (now [2]os.FileInfo) {
	for i, path := range []string{p.cert, p.key} {
		if info, err := os.Stat(path); err == nil {
			now[i] = info
		}
	}
	return now
}

// current is the pair for a handshake.
func (p *keyPair) current() *tls.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.look()
	if same(now[0], p.seen[0]) && same(now[1], p.seen[1]) {
		return p.valid
	}
	p.seen = now
	if err := errors.Join(p.read()); err != nil {
		p.log.Load().Error("a certificate or its key has changed, and can't be used; the one before goes on until the files "+
			"are right",
			zap.String("cert", p.cert), zap.String("key", p.key), zap.Error(err))
		return p.valid
	}
	p.log.Load().Info("a certificate or its key has changed, and was read again", zap.String("cert", p.cert))
	return p.valid
}

// same tells whether a file is what it was. Kubernetes changes a link, so that another file has the path.
func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// server gives the pair to clients, client to servers that ask for one.
func (p *keyPair) server(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.current(), nil }
func (p *keyPair) client(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return p.current(), nil
}
