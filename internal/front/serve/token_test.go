package serve

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// A token of each algorithm identifies the user and the facts in its claims.
func TestGoodTokens(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	for _, k := range []token{
		hs(), {jwt.SigningMethodRS256, rsaKey(), "rs"}, {jwt.SigningMethodES256, ecKey(), "es"},
		{jwt.SigningMethodEdDSA, edKey, "ed"},
	} {
		for name, text := range map[string]string{
			"one audience":     k.sign(t, "u-"+k.kid),
			"among audiences":  k.sign(t, "u-"+k.kid, claim("aud", []string{"shop", "hongbao"})),
			"with a jku":       k.sign(t, "u-"+k.kid, headField("jku", s.url+"/keys")), // nobody asks there
			"nbf in the past":  k.sign(t, "u-"+k.kid, claim("nbf", time.Now().Add(-time.Hour).Unix())),
			"another's in jwk": k.sign(t, "u-"+k.kid, headField("jwk", map[string]string{"kty": "oct", "k": "AAAA"})),
		} {
			r := s.call(t, "POST", "/v1/campaigns/granted/grabs", good, as(text))
			require.Equal(t, http.StatusOK, r.Status, "%s, %s: %s", k.kid, name, r.Text)
			all := s.grabbed()
			last := all[len(all)-1]
			require.Equal(t, "u-"+k.kid, last.User)
			require.Equal(t, map[string]string{"device": "d-u-" + k.kid}, last.Facts)
		}
	}
}

func badTokens(t testing.TB) map[string]string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(rsaKey().Public())
	require.NoError(t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	ok, past := hs().sign(t, "u1"), claim("exp", time.Now().Add(-time.Minute).Unix())
	parts := strings.Split(ok, ".")
	b64 := base64.RawURLEncoding.EncodeToString
	none := token{jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "hs"}
	otherPayload := b64([]byte(strings.Replace(string(must(base64.RawURLEncoding.DecodeString(parts[1]))), "u1", "u2", 1)))
	return map[string]string{
		"no token":               "",
		"no parts":               "x",
		"a header alone":         parts[0],
		"two parts":              parts[0] + "." + parts[1],
		"four parts":             ok + ".x",
		"alg none":               none.sign(t, "u1"),
		"alg none, signed":       b64([]byte(`{"alg":"none","kid":"hs"}`)) + "." + parts[1] + "." + parts[2],
		"alg None":               b64([]byte(`{"alg":"None","kid":"hs"}`)) + "." + parts[1] + ".",
		"no signature":           parts[0] + "." + parts[1] + ".",
		"another payload":        parts[0] + "." + otherPayload + "." + parts[2],
		"RS key as HS secret":    token{jwt.SigningMethodHS256, public, "rs"}.sign(t, "u1"),
		"RS DER as HS secret":    token{jwt.SigningMethodHS256, der, "rs"}.sign(t, "u1"),
		"HS secret, RS kid":      token{jwt.SigningMethodHS256, secret, "rs"}.sign(t, "u1"),
		"RS key, PS256":          token{jwt.SigningMethodPS256, rsaKey(), "rs"}.sign(t, "u1"),
		"RS key, RS512":          token{jwt.SigningMethodRS512, rsaKey(), "rs"}.sign(t, "u1"),
		"HS512":                  token{jwt.SigningMethodHS512, secret, "hs"}.sign(t, "u1"),
		"wrong secret":           token{jwt.SigningMethodHS256, []byte("another secret of thirty-two bytes"), "hs"}.sign(t, "u1"),
		"empty secret":           token{jwt.SigningMethodHS256, []byte{}, "hs"}.sign(t, "u1"),
		"unknown kid":            token{jwt.SigningMethodHS256, secret, "zz"}.sign(t, "u1"),
		"kid of another":         token{jwt.SigningMethodES256, ecKey(), "ed"}.sign(t, "u1"),
		"no kid":                 hs().sign(t, "u1", headField("kid", nil)),
		"kid is a number":        hs().sign(t, "u1", headField("kid", 7)),
		"crit":                   hs().sign(t, "u1", headField("crit", []string{"exp"})),
		"expired":                hs().sign(t, "u1", past),
		"expired RS256":          token{jwt.SigningMethodRS256, rsaKey(), "rs"}.sign(t, "u1", past),
		"expired ES256":          token{jwt.SigningMethodES256, ecKey(), "es"}.sign(t, "u1", past),
		"expired EdDSA":          token{jwt.SigningMethodEdDSA, edKey, "ed"}.sign(t, "u1", past),
		"no exp":                 hs().sign(t, "u1", claim("exp", nil)),
		"exp is a text":          hs().sign(t, "u1", claim("exp", "tomorrow")),
		"nbf in the future":      hs().sign(t, "u1", claim("nbf", time.Now().Add(time.Minute).Unix())),
		"other issuer":           hs().sign(t, "u1", claim("iss", "https://id.test/")),
		"no issuer":              hs().sign(t, "u1", claim("iss", nil)),
		"other audience":         hs().sign(t, "u1", claim("aud", "shop")),
		"no audience":            hs().sign(t, "u1", claim("aud", nil)),
		"no user":                hs().sign(t, "u1", claim("sub", nil)),
		"user is a number":       hs().sign(t, "u1", claim("sub", 7)),
		"user is empty":          hs().sign(t, ""),
		"user with a NUL":        hs().sign(t, "u\x00"),
		"user with a space":      hs().sign(t, "u 1"),
		"user in Cyrillic":       hs().sign(t, "\u0430dmin"),
		"user of 2 KB":           hs().sign(t, strings.Repeat("u", 2_000)),
		"user that breaks a key": hs().sign(t, "u\r\n1"),
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// All invalid tokens get the same answer, and nothing is grabbed.
func TestBadTokens(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	var first string
	for name, text := range badTokens(t) {
		for _, path := range []string{"/v1/campaigns/granted/grabs", "/v1/campaigns/granted/grabs/me"} {
			method := http.MethodGet
			if strings.HasSuffix(path, "grabs") {
				method = http.MethodPost
			}
			r := s.call(t, method, path, good, as(text))
			r.Refused(t, "unauthorized", name)
			require.Equal(t, "Bearer", r.Head.Get("WWW-Authenticate"))
			answer := strings.Replace(r.Text, r.Head.Get("X-Request-Id"), "", 1)
			if first == "" {
				first = answer
			}
			require.Equal(t, first, answer, name)
		}
	}
	for name, change := range map[string]tweak{
		"none":        header("Authorization", ""),
		"basic":       header("Authorization", "Basic "+hs().sign(t, "u1")),
		"no scheme":   header("Authorization", hs().sign(t, "u1")),
		"two headers": func(r *http.Request) { r.Header.Add("Authorization", "Bearer x") },
	} {
		s.call(t, "POST", "/v1/campaigns/granted/grabs", good, change).Refused(t, "unauthorized", name)
	}
	require.Empty(t, s.grabbed())
}

// A claim whose value can't be a fact is ignored. A campaign that counts by that fact refuses the grab.
func TestFactsComeFromClaims(t *testing.T) {
	t.Parallel()
	s := setup(t, options{cfg: func(c *Config) { c.Facts = []string{"device=claim:dev", "channel=claim:ch"} }})
	for _, change := range []any{nil, 7, "", "two words", "-", strings.Repeat("d", 129)} {
		r := s.call(t, "POST", "/v1/campaigns/granted/grabs", good, as(hs().sign(t, "u1", claim("dev", change))))
		require.Equal(t, http.StatusOK, r.Status)
		all := s.grabbed()
		require.Empty(t, all[len(all)-1].Facts, "%v", change)
	}
	s.call(t, "POST", "/v1/campaigns/granted/grabs", good, as(hs().sign(t, "u1", claim("ch", "app"))))
	all := s.grabbed()
	require.Equal(t, map[string]string{"device": "d-u1", "channel": "app"}, all[len(all)-1].Facts)
}

// The server does not start with an unusable key set, and its error says what is wrong.
func TestBadKeySets(t *testing.T) {
	t.Parallel()
	weak, err := json.Marshal(map[string]string{"kty": "oct", "kid": "x", "alg": "HS256", "k": "AAAA"})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		text []byte
		open string
		want string
	}{
		"no JSON":       {[]byte("keys"), "", "not a JSON Web Key Set"},
		"no keys":       {[]byte(`{"keys":[]}`), "", "it has no keys"},
		"weak secret":   {set(t, weak), "", "the secret has 3 bytes: want at least 32"},
		"no kid":        {set(t, jwk(t, secret, "", "HS256")), "", "want a kid"},
		"another's alg": {set(t, jwk(t, rsaKey().Public(), "x", "HS256")), "", "alg RS256 or none"},
		"unknown alg":   {set(t, jwk(t, rsaKey().Public(), "x", "PS256")), "", "alg RS256 or none"},
		"open secret":   {set(t, jwk(t, secret, "hs", "HS256")), "it is open to others", "it is a secret, but it is open to others"},
	} {
		_, err := newFileKeys(func() ([]byte, string, error) { return c.text, c.open, nil }, zap.NewNop())
		require.ErrorContains(t, err, c.want, name)
	}
	public := set(t, jwk(t, rsaKey().Public(), "rs", "RS256"))
	_, err = newFileKeys(func() ([]byte, string, error) { return public, "it is open to others", nil },
		zap.NewNop())
	require.NoError(t, err, "anyone may read public keys")
}

// The server reads a changed key set within a second. If the new set is unusable, the previous keys stay valid.
func TestKeySetIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text atomic.Pointer[[]byte]
		put := func(b []byte) { text.Store(&b) }
		put(set(t, jwk(t, secret, "old", "HS256")))
		var fails error
		k, err := newFileKeys(func() ([]byte, string, error) { return *text.Load(), "", fails }, zap.NewNop())
		require.NoError(t, err)
		has := func(kid string) bool {
			_, err := k.find(t.Context(), kid, "HS256")
			return err == nil
		}
		require.True(t, has("old"))
		put(set(t, jwk(t, secret, "new", "HS256")))
		require.False(t, has("new"), "the file is read once a second")
		retry.Pause(t.Context(), fileAge)
		require.True(t, has("new"))
		require.False(t, has("old"), "a removed key no longer verifies tokens")
		put([]byte("junk"))
		retry.Pause(t.Context(), fileAge)
		require.True(t, has("new"))
		fails = errors.New("gone")
		retry.Pause(t.Context(), fileAge)
		require.True(t, has("new"))
		fails = nil
		for _, half := range []string{"", `{"keys":[`, `{"keys":null}`, "{}", "[]"} {
			put([]byte(half))
			retry.Pause(t.Context(), fileAge)
			require.True(t, has("new"), "%q", half)
		}
		put([]byte(`{"keys":[]}`))
		retry.Pause(t.Context(), fileAge)
		require.False(t, has("new"), "the last key was removed")
	})
}

// One key that can't be used does not affect the others: the log names it. A new set without any usable key changes
// nothing. A key without alg has the algorithm of its type.
func TestUnusableKeysAreSkipped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		text := set(t, jwk(t, secret, "hs", ""), jwk(t, rsaKey().Public(), "ps", "PS256"), jwk(t, ecKey().Public(), "hs", ""))
		k, err := newFileKeys(func() ([]byte, string, error) { return text, "", nil }, zap.New(core))
		require.NoError(t, err)
		works := func(kid string) bool {
			_, err := k.find(t.Context(), kid, "HS256")
			return err == nil
		}
		require.True(t, works("hs"), "of two keys with one kid the first counts")
		require.False(t, works("ps"))
		lines := logs.FilterField(zap.String("code", "keys_unread")).All()
		require.Len(t, lines, 1)
		require.Contains(t, lines[0].ContextMap()["error"], `key 2, "ps"`)
		text = set(t, jwk(t, rsaKey().Public(), "ps", "PS256"))
		retry.Pause(t.Context(), fileAge)
		require.True(t, works("hs"), "the new set has no usable key")
		text = set(t, jwk(t, secret, "other", ""))
		retry.Pause(t.Context(), fileAge)
		require.False(t, works("hs"))
		require.True(t, works("other"))
	})
}

// An unknown kid triggers a fetch of the URL, but many unknown kids trigger no more than one. The server ignores
// secrets in a fetched set and follows no redirects.
func TestKeysFromURL(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	var text atomic.Pointer[[]byte]
	put := func(b []byte) { text.Store(&b) }
	put(set(t, jwk(t, rsaKey().Public(), "rs", "RS256"), jwk(t, secret, "hs", "HS256"),
		jwk(t, ecKey().Public(), "any", "")))
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/", http.StatusFound)
			return
		}
		_, _ = w.Write(*text.Load())
	}))
	t.Cleanup(keys.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	s := setup(t, options{cfg: func(c *Config) { c.Keys = keys.URL }})
	grab := func(k token) int {
		return s.call(t, "POST", "/v1/campaigns/granted/grabs", good, as(k.sign(t, "u1"))).Status
	}
	require.Equal(t, http.StatusOK, grab(token{jwt.SigningMethodRS256, rsaKey(), "rs"}))
	require.Equal(t, http.StatusUnauthorized, grab(hs()), "a secret is not published")
	require.Equal(t, http.StatusOK, grab(token{jwt.SigningMethodES256, ecKey(), "any"}), "its type has one algorithm")
	put(set(t, jwk(t, edKey.Public(), "new", "EdDSA")))
	require.Equal(t, http.StatusOK, grab(token{jwt.SigningMethodEdDSA, edKey, "new"}), "an unknown kid triggers one fetch")
	require.Equal(t, http.StatusUnauthorized, grab(token{jwt.SigningMethodRS256, rsaKey(), "rs"}), "a key that is gone")
	before := asked.Load()
	for i := range 50 {
		grab(token{jwt.SigningMethodEdDSA, edKey, fmt.Sprint("unknown", i)})
	}
	require.Equal(t, before, asked.Load(), "many unknown kids trigger no further fetch")

	moved := setup(t, options{cfg: func(c *Config) { c.Keys = keys.URL + "/moved" }})
	r := moved.call(t, "POST", "/v1/campaigns/granted/grabs", good,
		as(token{jwt.SigningMethodEdDSA, edKey, "new"}.sign(t, "u1")))
	r.Refused(t, "unavailable", "without any keys the server can't tell whether the token is valid")
	require.NotZero(t, moved.logs.FilterMessageSnippet("the key set can't be read").Len())
}
