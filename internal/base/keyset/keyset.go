// Package keyset reads JSON Web Key Sets: the keys that verify the tokens of users.
package keyset

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/MicahParks/jwkset"
)

// Algorithms returns the signature algorithms that tokens may use. Each type of key has one of them.
func Algorithms() []string { return []string{"HS256", "RS256", "ES256", "EdDSA"} }

// minSecret is the minimum length of an HS256 secret in bytes, minRSA that of an RSA key.
const minSecret, minRSA = 32, 256

// Key is a key with its algorithm. A key that can't be used has neither.
type Key struct {
	Alg string
	// Key is a []byte, *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey.
	Key any
}

// Set is what a key set has.
type Set struct {
	// Keys has the keys by their ids, also those that can't be used. If an id occurs twice, the first usable key counts.
	Keys map[string]Key
	// Usable is the number of usable keys. Skipped says for each other key which one it is, and why.
	Usable  int
	Skipped []error
}

// ErrSecret is why a set that others can read must not have a secret.
var ErrSecret = errors.New("a secret must not be published: put it into a file")

// Read parses a key set. One unusable key does not affect the others. noSecrets, if not nil, is why the set may have no
// secrets.
func Read(text []byte, noSecrets error) (Set, error) {
	var raw struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(text, &raw); err != nil {
		return Set{}, fmt.Errorf("it is not a JSON Web Key Set: %w", err)
	}
	if raw.Keys == nil {
		return Set{}, errors.New(`it has no keys: want {"keys": [...]}`)
	}
	s := Set{Keys: make(map[string]Key, len(raw.Keys))}
	for i, one := range raw.Keys {
		kid, key, err := read(one, noSecrets)
		if err == nil && s.Keys[kid].Key != nil {
			err = errors.New("the kid occurs twice, and the first key counts")
		}
		if err != nil {
			s.Skipped = append(s.Skipped, fmt.Errorf("key %d, %.80q: %w", i+1, kid, err))
			if _, known := s.Keys[kid]; !known && kid != "" {
				s.Keys[kid] = Key{}
			}
			continue
		}
		s.Keys[kid] = key
		s.Usable++
	}
	return s, nil
}

// read returns a key that verifies signatures, and its id. Without a usable key it returns an error.
func read(text []byte, noSecrets error) (kid string, k Key, err error) {
	var m jwkset.JWKMarshal
	if err := json.Unmarshal(text, &m); err != nil {
		return "", k, fmt.Errorf("it is not a JSON Web Key: %w", err)
	}
	jwk, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{Private: true}, jwkset.JWKValidateOptions{})
	if err != nil {
		return m.KID, k, err
	}
	key := jwk.Key()
	if private, ok := key.(interface{ Public() crypto.PublicKey }); ok {
		key = private.Public()
	}
	if k, err = keyOf(key, noSecrets); err != nil {
		return m.KID, Key{}, err
	}
	if m.KID == "" || m.USE == jwkset.UseEnc || m.ALG != "" && string(m.ALG) != k.Alg {
		return m.KID, Key{}, fmt.Errorf("want a kid, no use except sig, and alg %s or none for this type of key", k.Alg)
	}
	return m.KID, k, nil
}

// keyOf returns a key with the algorithm of its type.
func keyOf(key any, noSecrets error) (Key, error) {
	switch pub := key.(type) {
	case []byte:
		if len(pub) < minSecret {
			return Key{}, fmt.Errorf("the secret has %d bytes: want at least %d", len(pub), minSecret)
		}
		return Key{"HS256", key}, noSecrets
	case *rsa.PublicKey:
		if pub.Size() < minRSA {
			return Key{}, fmt.Errorf("the RSA key has %d bits: want at least %d", pub.Size()*8, minRSA*8)
		}
		return Key{"RS256", key}, nil
	case *ecdsa.PublicKey:
		if pub.Curve == elliptic.P256() {
			return Key{"ES256", key}, nil
		}
	case ed25519.PublicKey:
		return Key{"EdDSA", key}, nil
	}
	return Key{}, fmt.Errorf("want a key for one of %v", Algorithms())
}
