package serve

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/web"
)

// algorithms are those that a token may be signed by.
var algorithms = []string{"HS256", "RS256", "ES256", "EdDSA"}

// caller is who makes a request, and the facts that the campaign's limits count by.
type caller struct {
	user  string
	facts map[string]string
	// body is that of a signed request, which was read to verify it.
	body []byte
	// signed says that a gateway has signed the request.
	signed bool
}

// maxHeads bounds the heads of tokens that are remembered: all tokens that one key has signed have the same.
const maxHeads = 64

// verifier tells who a request comes from.
type verifier struct {
	keys      *keySet
	claims    *jwt.Validator
	userClaim string
	facts     map[string]string // by claim

	mu    sync.RWMutex
	heads map[string]head // of good tokens, by their text
}

// head is what the head of a token says: which key has signed it, and how.
type head struct {
	kid    string
	method jwt.SigningMethod
}

// check tells whether the key has signed the text.
func (h head) check(text string, signature []byte, key any) error {
	s, ok := key.(*sharedKey)
	if !ok {
		return h.method.Verify(text, signature, key)
	}
	if !s.signed(text, signature) {
		return jwt.ErrSignatureInvalid
	}
	return nil
}

func newVerifier(cfg *Config, facts map[string]string, keys *keySet) *verifier {
	return &verifier{
		keys: keys, userClaim: cfg.UserClaim, facts: facts, heads: map[string]head{},
		claims: jwt.NewValidator(jwt.WithIssuer(cfg.Issuer), jwt.WithAudience(cfg.Audience),
			jwt.WithExpirationRequired(), jwt.WithLeeway(cfg.Leeway)),
	}
}

// identify says whose token it is. Whatever is wrong with it gets the same answer.
func (v *verifier) identify(r *http.Request, text string) (*caller, error) {
	has, err := v.verify(r.Context(), text)
	if errors.Is(err, errNoKeys) {
		return nil, &web.Refusal{Code: "unavailable", Detail: "send the same request again", Wait: time.Second, Cause: err}
	}
	if err != nil {
		return nil, unauthorized(err)
	}
	who := &caller{}
	who.user, _ = has.text(v.userClaim)
	if err := hongbao.CheckID(who.user); err != nil {
		return nil, unauthorized(err)
	}
	for claim, fact := range v.facts {
		value, _ := has.text(claim)
		if hongbao.CheckID(value) != nil {
			continue // a campaign that counts by it refuses the grab
		}
		if who.facts == nil {
			who.facts = make(map[string]string, len(v.facts))
		}
		who.facts[fact] = value
	}
	return who, nil
}

// verify gives the claims of a good token. It reads nothing of them before the signature is verified.
func (v *verifier) verify(ctx context.Context, token string) (claims, error) {
	first, rest, _ := strings.Cut(token, ".")
	payload, last, _ := strings.Cut(rest, ".")
	h, known := v.headOf(first)
	if !known {
		var err error
		if h, err = readHead(first); err != nil {
			return nil, err
		}
	}
	key, err := v.keys.find(ctx, h.kid, h.method.Alg())
	if err != nil {
		return nil, err
	}
	signature, err := segment.DecodeString(last)
	if err != nil {
		return nil, fmt.Errorf("the signature: %w", err)
	}
	if err := h.check(token[:len(first)+1+len(payload)], signature, key); err != nil {
		return nil, fmt.Errorf("the signature: %w", err)
	}
	if !known {
		v.remember(first, h)
	}
	has, err := readClaims(payload)
	if err != nil {
		return nil, err
	}
	return has, v.claims.Validate(has)
}

func (v *verifier) headOf(text string) (head, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	h, ok := v.heads[text]
	return h, ok
}

func (v *verifier) remember(text string, h head) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.heads) >= maxHeads {
		clear(v.heads)
	}
	v.heads[text] = h
}

// segment is how the parts of a token are written.
var segment = base64.RawURLEncoding.Strict()

// readHead reads the first part of a token.
func readHead(text string) (h head, err error) {
	has, err := readClaims(text)
	if err != nil {
		return h, err
	}
	alg, errAlg := has.text("alg")
	kid, errKid := has.text("kid")
	if err := errors.Join(errAlg, errKid); err != nil {
		return h, err
	}
	if _, critical := has.get("crit"); critical || kid == "" || !slices.Contains(algorithms, alg) {
		return h, errors.New("the token has no kid, another algorithm, or an extension that must be understood")
	}
	return head{kid, jwt.GetSigningMethod(alg)}, nil
}

func unauthorized(cause error) error {
	return &web.Refusal{Code: "unauthorized", Detail: "send a token, a signature or an API key that is good here; " +
		"docs/http.md tells how", Cause: cause}
}
