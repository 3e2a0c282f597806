package keyset

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// entra returns a key as Microsoft Entra publishes it: with a certificate, and without alg.
func entra(t *testing.T, kid string) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "accounts"},
		NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	thumbprint := sha1.Sum(cert)
	text, err := json.Marshal(map[string]any{"kty": "RSA", "use": "sig", "kid": kid, "x5t": b64(thumbprint[:]), "e": "AQAB",
		"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()), "x5c": []string{base64.StdEncoding.EncodeToString(cert)},
		"issuer": "https://login.microsoftonline.com/{tenantid}/v2.0"})
	require.NoError(t, err)
	return string(text)
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func curve(t *testing.T, c elliptic.Curve, name, kid string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(c, rand.Reader)
	require.NoError(t, err)
	point, err := key.PublicKey.Bytes()
	require.NoError(t, err)
	half := len(point) / 2
	return fmt.Sprintf(`{"kty":"EC","crv":%q,"kid":%q,"x":%q,"y":%q}`, name, kid, b64(point[1:1+half]), b64(point[1+half:]))
}

// Without alg a key has the algorithm of its type. An unusable key is skipped and named, and the others work.
func TestRead(t *testing.T) {
	t.Parallel()
	pub, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	secret := b64([]byte(strings.Repeat("s", 32)))
	text := `{"keys":[` + strings.Join([]string{
		entra(t, "rs"), curve(t, elliptic.P256(), "P-256", "es"), `{"kty":"OKP","crv":"Ed25519","kid":"ed","x":"` + b64(pub) + `"}`,
		`{"kty":"oct","kid":"hs","k":"` + secret + `"}`,
		`{"kty":"oct","kid":"weak","k":"AAAA"}`, curve(t, elliptic.P384(), "P-384", "p384"), `{"kid":7}`, `{"kty":"none","kid":"odd"}`,
		strings.Replace(entra(t, "ps"), `"use"`, `"alg":"PS256","use"`, 1), strings.Replace(entra(t, "enc"), `"sig"`, `"enc"`, 1),
		strings.Replace(entra(t, "as hs"), `"use"`, `"alg":"HS256","use"`, 1), entra(t, ""), entra(t, "rs"),
	}, ",") + `]}`
	s, err := Read([]byte(text), nil)
	require.NoError(t, err)
	algs := map[string]string{}
	for kid, k := range s.Keys {
		algs[kid] = k.Alg
	}
	require.Equal(t, map[string]string{"rs": "RS256", "es": "ES256", "ed": "EdDSA", "hs": "HS256",
		"weak": "", "p384": "", "odd": "", "ps": "", "enc": "", "as hs": ""}, algs)
	require.Equal(t, 4, s.Usable)
	require.Len(t, s.Skipped, 9)
	all := fmt.Sprint(s.Skipped)
	for _, want := range []string{`key 5, "weak": the secret has 3 bytes: want at least 32`, `"ps": want a kid`, `key 13, "rs": the kid occurs twice`} {
		require.Contains(t, all, want)
	}
	s, err = Read([]byte(text), ErrSecret)
	require.NoError(t, err)
	require.Nil(t, s.Keys["hs"].Key)
	require.Equal(t, []string{"ed", "es", "rs"}, usable(s))
	for _, wrong := range []string{"", "keys", "{}", `{"keys":null}`, "[]", `{"keys":`} {
		_, err := Read([]byte(wrong), nil)
		require.Error(t, err, wrong)
	}
}

func usable(s Set) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.Keys)), func(kid string) bool { return s.Keys[kid].Key == nil })
}

// Whatever a set has, a usable key has one of the algorithms.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"oct","kid":"hs","k":"` + b64([]byte(strings.Repeat("s", 32))) + `"},{"kty":"EC","crv":"P-256"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Read(text, nil)
		if err != nil {
			return
		}
		for kid, k := range s.Keys {
			require.NotEmpty(t, kid)
			require.True(t, k.Key == nil || slices.Contains(Algorithms(), k.Alg))
		}
		require.Len(t, usable(s), s.Usable)
	})
}
