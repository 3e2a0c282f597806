package serve

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// letter is what a gateway signs.
type letter struct {
	kid, user, facts, method, path, body string

	secret []byte
	at     time.Time
}

func grabLetter() letter {
	return letter{kid: "g1", user: "u1", facts: "dev=d1", method: "POST", path: "/v1/campaigns/granted/grabs", body: good,
		secret: gatewaySecret, at: time.Now()}
}

// sign gives the signature, made as docs/http.md says.
func (l letter) sign() string {
	hash := sha256.Sum256([]byte(l.body))
	mac := hmac.New(sha256.New, l.secret)
	fmt.Fprintf(mac, "hongbao-hmac-1\n%s\n%d\n%s\n%s\n%s\n%s\n%x", l.kid, l.at.Unix(), l.method, l.path, l.user, l.facts, hash)
	return hex.EncodeToString(mac.Sum(nil))
}

// signedBy sends the letter's headers.
func signedBy(l letter) tweak {
	return func(r *http.Request) {
		r.Header.Set("Authorization", fmt.Sprintf("Hongbao-HMAC %s:%d:%s", l.kid, l.at.Unix(), l.sign()))
		header("Hongbao-User", l.user)(r)
		header("Hongbao-Facts", l.facts)(r)
	}
}

// A signed grab is the grab of the user and the facts that were signed.
func TestSignedGrabs(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	for name, change := range map[string]func(*letter){
		"as it is": func(*letter) {}, "29 s late": func(l *letter) { l.at = l.at.Add(-29 * time.Second) },
		"28 s early": func(l *letter) { l.at = l.at.Add(28 * time.Second) },
	} {
		l := grabLetter()
		change(&l)
		r := s.call(t, l.method, l.path, l.body, signedBy(l))
		require.Equal(t, http.StatusOK, r.Status, "%s: %s", name, r.Text)
		all := s.grabbed()
		last := all[len(all)-1]
		require.Equal(t, "u1", last.User)
		require.Equal(t, "r1", last.RequestID)
		require.Equal(t, map[string]string{"device": "d1"}, last.Facts)
	}
	mine := letter{kid: "g1", user: "u7", method: "GET", path: "/v1/campaigns/granted/grabs/me", secret: gatewaySecret,
		at: time.Now()}
	r := s.call(t, "GET", mine.path, "", signedBy(mine))
	require.Equal(t, "u7", r.Body["user"])
	again := grabLetter()
	for range 2 {
		require.Equal(t, http.StatusOK, s.call(t, again.method, again.path, again.body, signedBy(again)).Status, "sent again")
	}
}

// A signature is good for one user, time, method, path, query, facts and body, and for nothing else. The answer does
// not say what is wrong.
func TestBadSignatures(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	var first string
	check := func(name string, signed, sent letter, tweaks ...tweak) {
		t.Helper()
		r := s.call(t, sent.method, sent.path, sent.body, append([]tweak{signedBy(signed), func(r *http.Request) {
			header("Hongbao-User", sent.user)(r)
			header("Hongbao-Facts", sent.facts)(r)
		}}, tweaks...)...)
		r.Refused(t, "unauthorized", name)
		answer := strings.Replace(r.Text, r.Head.Get("X-Request-Id"), "", 1)
		if first == "" {
			first = answer
		}
		require.Equal(t, first, answer, name)
	}
	for name, change := range map[string]func(*letter){
		"another user":   func(l *letter) { l.user = "u2" },
		"no user":        func(l *letter) { l.user = "" },
		"other facts":    func(l *letter) { l.facts = "dev=d2" },
		"no facts":       func(l *letter) { l.facts = "" },
		"moved facts":    func(l *letter) { l.user, l.facts = "u1\tdev=d1", "" },
		"another path":   func(l *letter) { l.path = "/v1/campaigns/already_granted/grabs" },
		"escaped path":   func(l *letter) { l.path = "/v1/campaigns/grante%64/grabs" },
		"a query":        func(l *letter) { l.path += "?x=1" },
		"an empty query": func(l *letter) { l.path += "?" },
		"another body":   func(l *letter) { l.body = `{"request_id":"r2"}` },
		"a blank":        func(l *letter) { l.body += " " },
		"another method": func(l *letter) {
			l.method, l.path, l.body = "GET", "/v1/campaigns/granted/grabs/me", ""
		},
	} {
		signed, sent := grabLetter(), grabLetter()
		change(&sent)
		check(name, signed, sent)
	}
	for name, change := range map[string]func(*letter){
		"late":           func(l *letter) { l.at = l.at.Add(-32 * time.Second) },
		"early":          func(l *letter) { l.at = l.at.Add(32 * time.Second) },
		"unknown key":    func(l *letter) { l.kid = "g2" },
		"no key":         func(l *letter) { l.kid = "" },
		"another secret": func(l *letter) { l.secret = secret },
		"empty secret":   func(l *letter) { l.secret = nil },
		"1970":           func(l *letter) { l.at = time.Unix(0, 0) },
	} {
		l := grabLetter()
		change(&l)
		check(name, l, l)
	}
	l := grabLetter()
	ok := fmt.Sprintf("Hongbao-HMAC g1:%d:%s", l.at.Unix(), l.sign())
	for name, text := range map[string]string{
		"another time": fmt.Sprintf("Hongbao-HMAC g1:%d:%s", l.at.Unix()+1, l.sign()), "cut": ok[:len(ok)-2], "odd": ok[:len(ok)-1],
		"longer": ok + "00", "no signature": fmt.Sprintf("Hongbao-HMAC g1:%d:", l.at.Unix()), "two parts": "Hongbao-HMAC g1:1",
		"four parts": ok + ":1", "nothing": "Hongbao-HMAC", "as a bearer": "Bearer " + ok, "a time in words": "Hongbao-HMAC g1:now:00",
		"a time beyond": "Hongbao-HMAC g1:99999999999999999999:00", "the lowest time": "Hongbao-HMAC g1:-9223372036854775808:00",
	} {
		check(name, l, l, header("Authorization", text))
	}
	check("two users", l, l, func(r *http.Request) { r.Header.Add("Hongbao-User", "u2") })
	check("two facts", l, l, func(r *http.Request) { r.Header.Add("Hongbao-Facts", "dev=d2") })
	check("beside a token", l, l, func(r *http.Request) { r.Header.Add("Authorization", "Bearer "+hs().sign(t, "u1")) })
	require.Empty(t, s.grabbed())

	none := setup(t, options{cfg: func(c *Config) { c.GatewayKeys = "" }})
	none.call(t, l.method, l.path, l.body, signedBy(l)).Refused(t, "unauthorized")
}

// What a gateway has signed must be a grab all the same.
func TestSignedNonsense(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	for name, c := range map[string]struct {
		change func(*letter)
		code   string
	}{
		"no request id":   {func(l *letter) { l.body = "{}" }, "request_id_required"},
		"no body":         {func(l *letter) { l.body = "" }, "body_required"},
		"50 MB":           {func(l *letter) { l.body = strings.Repeat(" ", 50<<20) }, "body_too_large"},
		"twice":           {func(l *letter) { l.body = `{"request_id":"r1","request_id":"r2"}` }, "duplicate_field"},
		"a user inside":   {func(l *letter) { l.body = `{"request_id":"r1","user":"u2"}` }, "unknown_field"},
		"user with space": {func(l *letter) { l.user = "u 1" }, "user_invalid"},
		"user in Chinese": {func(l *letter) { l.user = "红包" }, "user_invalid"},
		"long user":       {func(l *letter) { l.user = strings.Repeat("u", 129) }, "user_invalid"},
		"unknown fact":    {func(l *letter) { l.facts = "ip=1" }, "facts_invalid"},
		"a fact's name":   {func(l *letter) { l.facts = "device=d1" }, "facts_invalid"},
		"another kind's":  {func(l *letter) { l.facts = "shop=s1" }, "facts_invalid"},
		"fact twice":      {func(l *letter) { l.facts = "dev=d1 dev=d2" }, "facts_invalid"},
		"no value":        {func(l *letter) { l.facts = "dev=" }, "facts_invalid"},
		"two blanks":      {func(l *letter) { l.facts = "dev=d1  dev=d1" }, "facts_invalid"},
		"odd campaign":    {func(l *letter) { l.path = "/v1/campaigns/%2e%2e/grabs" }, "campaign_invalid"},
	} {
		l := grabLetter()
		c.change(&l)
		s.call(t, l.method, l.path, l.body, signedBy(l)).Refused(t, c.code, name)
	}
	require.Empty(t, s.grabbed())
}

// A gateway's file has secrets only.
func TestGatewayKeysAreSecrets(t *testing.T) {
	t.Parallel()
	f, text := &fake{}, set(t, jwk(t, rsaKey().Public(), "rs", "RS256"))
	cfg := testConfig()
	cfg.Keys, cfg.Issuer, cfg.Audience = "", "", ""
	s, err := New(cfg, Deps{Grabber: f, Reader: f, Log: noLog,
		GatewayKeyFile: func() ([]byte, string, error) { return text, "", nil }})
	require.NoError(t, err)
	require.ErrorContains(t, s.Run(t.Context(), nil), "want secrets")
}

// A key that is taken out of the file is dead once the file was read again, the last one as well; the log tells of that.
func TestGatewayKeyIsTakenOut(t *testing.T) {
	t.Parallel()
	var file atomic.Pointer[[]byte]
	put := func(text []byte) { file.Store(&text) }
	one, two := jwk(t, gatewaySecret, "g1", "HS256"), jwk(t, secret, "g2", "HS256")
	put(set(t, one, two))
	s := setup(t, options{gatewayKeys: func() ([]byte, string, error) { return *file.Load(), "", nil }})
	first, second := grabLetter(), grabLetter()
	second.kid, second.secret = "g2", secret
	status := func(l letter) int { return s.call(t, l.method, l.path, l.body, signedBy(l)).Status }
	require.Equal(t, http.StatusOK, status(first))
	require.Equal(t, http.StatusOK, status(second))
	ends := func(l letter) {
		t.Helper()
		testkit.Eventually(t, 20*time.Second, func() bool { return status(l) == http.StatusUnauthorized }, "%s ends", l.kid)
	}
	put(set(t, two))
	ends(first)
	require.Equal(t, http.StatusOK, status(second))
	require.Zero(t, s.logs.FilterField(zap.String("code", "keys_unread")).Len())
	put([]byte(`{"keys":[]}`))
	ends(second)
	require.Equal(t, 1, s.logs.FilterField(zap.String("code", "keys_unread")).
		FilterMessageSnippet("the key set has no keys any more").Len())
	put(set(t, one))
	testkit.Eventually(t, 20*time.Second, func() bool { return status(first) == http.StatusOK }, "a key is put in")
}

// The page's example of a signature is right.
func TestPageSigns(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/http.md")
	require.NoError(t, err)
	find := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(string(page))
		require.Len(t, m, 2, pattern)
		return m[1]
	}
	signed := find("(?s)```text\n(hongbao-hmac-1\n.*?)\n```")
	mac := hmac.New(sha256.New, []byte(find("secret `([^`]+)`")))
	mac.Write([]byte(signed))
	require.Equal(t, find(`Hongbao-HMAC g1:\d+:([0-9a-f]{64})`), hex.EncodeToString(mac.Sum(nil)))
	lines := strings.Split(signed, "\n")
	require.Len(t, lines, 8)
	body := sha256.Sum256([]byte(find(`-d '([^']+)' 'https://grab`)))
	require.Equal(t, hex.EncodeToString(body[:]), lines[7])
	require.Equal(t, find(`Hongbao-HMAC g1:(\d+):`), lines[2])
	require.Equal(t, find(`Hongbao-User: (\S+)'`), lines[5])
	require.Equal(t, find(`Hongbao-Facts: ([^']+)'`), lines[6])
	require.Equal(t, find(`'https://grab.example.com(\S+)'`), lines[4])
}
