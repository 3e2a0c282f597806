package test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// secret is the key that signs the tokens of the tests.
var secret = []byte("a secret of the tests' own, of 32 bytes or more")

// keyFile writes the key set with secret to a file, and returns its path.
func keyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	text := fmt.Sprintf(`{"keys": [{"kty": "oct", "kid": "k1", "alg": "HS256", "k": %q}]}`, base64.RawURLEncoding.EncodeToString(secret))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func token(user string) string {
	t := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": "https://id.test", "aud": "hongbao", "sub": user,
		"exp": time.Now().Add(time.Hour).Unix()})
	t.Header["kid"] = "k1"
	text, err := t.SignedString(secret)
	if err != nil {
		panic(err) // impossible with this secret
	}
	return text
}

type server struct {
	*process
	public, ops string
}

// serve starts a server, and waits until it is ready.
func serve(t *testing.T, path string, env []string, args ...string) *server {
	t.Helper()
	s := &server{public: testkit.FreeAddr(t), ops: testkit.FreeAddr(t)}
	all := slices.Concat([]string{"serve", "--serve.listen=" + s.public, "--serve.ops_listen=" + s.ops,
		"--serve.keys=" + keyFile(t), "--serve.issuer=https://id.test", "--serve.audience=hongbao", "--log.format=json"}, args)
	s.process = start(t, path, env, all...)
	testkit.Eventually(t, timeToStart, func() bool { return s.Ended() || ready(t.Context(), s.ops) }, "it is ready")
	require.False(t, s.Ended(), "%s", s.log())
	return s
}

// ready queries /readyz, as a readiness probe does.
func ready(ctx context.Context, ops string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, _, err := call(ctx, http.DefaultClient, request{method: "GET", url: "http://" + ops + "/readyz"})
	return err == nil && status == http.StatusOK
}

// request is a user's request. Without a user it has no token.
type request struct{ method, url, user, body string }

func call(ctx context.Context, client *http.Client, r request) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, bytes.NewReader([]byte(r.body)))
	if err != nil {
		return 0, nil, err
	}
	if r.user != "" {
		req.Header.Set("Authorization", "Bearer "+token(r.user))
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, text, err
}

// answer is the response to a user.
type answer struct {
	Outcome  string
	Receipts []receipt
}

type receipt struct {
	Packet, Amount int64
	Event          string
}

// mine returns a user's receipts.
func (s *server) mine(user string) answer {
	s.t.Helper()
	status, text, err := call(s.t.Context(), http.DefaultClient,
		request{"GET", "http://" + s.public + "/v1/campaigns/rain/grabs/me", user, ""})
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, status, "%s", text)
	var a answer
	require.NoError(s.t, json.Unmarshal(text, &a))
	return a
}
