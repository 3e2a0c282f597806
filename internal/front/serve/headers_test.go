package serve

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
)

// testVerifier returns a verifier of the keys of the tests.
func testVerifier(t testing.TB) *verifier {
	t.Helper()
	text := allKeys(t)
	known, err := newFileKeys(func() ([]byte, string, error) { return text, "", nil }, zap.NewNop())
	require.NoError(t, err)
	cfg := testConfig()
	return newVerifier(&cfg, map[string]string{"dev": "device"}, known)
}

// libraryCheck is the check by the parser of golang-jwt, with the same rules. It returns the user of a valid token.
func libraryCheck(keys keySet) func(ctx context.Context, text string) (user string, err error) {
	cfg := testConfig()
	parser := jwt.NewParser(jwt.WithValidMethods(algorithms), jwt.WithStrictDecoding(), jwt.WithIssuer(cfg.Issuer),
		jwt.WithAudience(cfg.Audience), jwt.WithExpirationRequired(), jwt.WithLeeway(cfg.Leeway))
	return func(ctx context.Context, text string) (string, error) {
		claims := jwt.MapClaims{}
		_, err := parser.ParseWithClaims(text, claims, func(t *jwt.Token) (any, error) {
			kid, _ := t.Header["kid"].(string)
			if _, critical := t.Header["crit"]; critical || kid == "" {
				return nil, errUnknownKey
			}
			key, err := keys.find(ctx, kid, t.Method.Alg())
			if _, shared := key.(*sharedKey); shared {
				key = secret
			}
			return key, err
		})
		user, _ := claims["sub"].(string)
		return user, err
	}
}

// No header makes the check of tokens panic, and it accepts only what the parser of golang-jwt accepts, too.
func FuzzToken(f *testing.F) {
	v := testVerifier(f)
	library := libraryCheck(v.keys)
	for _, k := range []token{hs(), {jwt.SigningMethodRS256, rsaKey(), "rs"}, {jwt.SigningMethodES256, ecKey(), "es"}} {
		text := k.sign(f, "u1")
		head, _, _ := strings.Cut(text, ".")
		f.Add(text)
		f.Add(head) // panicked before
		f.Add(head + ".")
	}
	for _, text := range badTokens(f) {
		f.Add(text)
	}
	r, err := http.NewRequestWithContext(f.Context(), http.MethodPost, "/", http.NoBody)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string) {
		who := &caller{facts: map[string]string{}, claims: jwt.MapClaims{}}
		if v.identify(r, text, who) != nil {
			return
		}
		require.NoError(t, hongbao.CheckID(who.user))
		user, err := library(t.Context(), text)
		require.NoError(t, err)
		require.Equal(t, user, who.user)
	})
}

// A gateway's headers give a valid user and known facts, or a refusal.
func FuzzGatewayHeaders(f *testing.F) {
	names := map[string]string{"dev": "device", "shop": "shop"}
	for _, facts := range []string{"", "dev=d1 shop=s1", "dev=d1 dev=d2", "dev=", "=", "dev", " ", "dev==", "x=1"} {
		f.Add("u1", facts)
	}
	f.Fuzz(func(t *testing.T, user, facts string) {
		if id, err := userOf(user, true); err == nil {
			require.NoError(t, hongbao.CheckID(id))
		}
		to := map[string]string{}
		if readFacts(facts, names, to) != nil {
			return
		}
		for _, fact := range slices.Collect(maps.Keys(to)) {
			require.Contains(t, []string{"device", "shop"}, fact)
			require.NoError(t, hongbao.CheckID(to[fact]))
		}
	})
}

// A client can't choose the address that its rate counts by: a header changes nothing unless a trusted proxy sent it.
func FuzzForwardedFor(f *testing.F) {
	a := &addresses{trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for _, text := range []string{"", "192.0.2.7", "x, 192.0.2.7:80", "[2001:db8::1%eth0]:443", ",,", "[", "fe80::1%"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := &http.Request{RemoteAddr: "192.0.2.9:1", Header: http.Header{"X-Forwarded-For": {text}}}
		require.Equal(t, "192.0.2.9/32", a.of(r).String())
		r.RemoteAddr = "10.0.0.1:1"
		require.True(t, a.of(r).IsValid())
	})
}

// BenchmarkToken measures the check of a token, ours and that of golang-jwt's parser with a Keyfunc.
func BenchmarkToken(b *testing.B) {
	v := testVerifier(b)
	library := libraryCheck(v.keys)
	for _, k := range []token{hs(), {jwt.SigningMethodRS256, rsaKey(), "rs"}, {jwt.SigningMethodES256, ecKey(), "es"}} {
		text := k.sign(b, "u1")
		b.Run("ours/"+k.kid, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				who := callers.Get().(*caller)
				require.NoError(b, v.verify(b.Context(), text, who))
				who.release()
			}
		})
		b.Run("golang-jwt/"+k.kid, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := library(b.Context(), text)
				require.NoError(b, err)
			}
		})
	}
}
