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
	"github.com/tidwall/gjson"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/keyset"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// algorithms are the signature algorithms that tokens may use.
var algorithms = keyset.Algorithms()

// caller is the user of a request, with the facts that limits count by.
type caller struct {
	user  string
	facts map[string]string
	// byKey is set if the request comes from a gateway with an API key.
	byKey bool
	// claims are the claims of the user's token. room is a buffer for decoding its parts.
	claims jwt.MapClaims
	room   []byte
}

// callers is a pool of callers with their buffers.
var callers = sync.Pool{New: func() any { return &caller{facts: map[string]string{}, claims: jwt.MapClaims{}} }}

// release puts a caller back into the pool. Strings from its token remain valid.
func (c *caller) release() {
	clear(c.facts)
	clear(c.claims)
	*c = caller{facts: c.facts, claims: c.claims, room: c.room}
	callers.Put(c)
}

// maxHeads is the maximum number of cached token headers. All tokens that one key has signed have the same
// header.
const maxHeads = 64

// verifier verifies tokens and finds their users.
type verifier struct {
	keys      keySet
	claims    *jwt.Validator
	userClaim string
	facts     map[string]string // by claim

	mu    sync.RWMutex
	heads map[string]head // headers of valid tokens, by their encoded text
}

// head is the decoded header of a token: the id of the signing key, and the method.
type head struct {
	kid    string
	method jwt.SigningMethod
}

// check returns an error unless signature is the key's signature of text.
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

func newVerifier(cfg *Config, facts map[string]string, keys keySet) *verifier {
	return &verifier{
		keys: keys, userClaim: cfg.UserClaim, facts: facts, heads: map[string]head{},
		claims: jwt.NewValidator(jwt.WithIssuer(cfg.Issuer), jwt.WithAudience(cfg.Audience),
			jwt.WithExpirationRequired(), jwt.WithLeeway(cfg.Leeway)),
	}
}

// identify sets the user and the facts of a request from its token. All invalid tokens get the same answer.
func (v *verifier) identify(r *http.Request, text string, who *caller) error {
	err := v.verify(r.Context(), text, who)
	if errors.Is(err, errNoKeys) {
		return &web.Refusal{Code: "unavailable", Detail: "send the same request again", Wait: time.Second, Cause: err}
	}
	if err != nil {
		return unauthorized(err)
	}
	who.user, _ = who.claims[v.userClaim].(string)
	if err := hongbao.CheckID(who.user); err != nil {
		return unauthorized(err)
	}
	for claim, fact := range v.facts {
		value, _ := who.claims[claim].(string)
		if hongbao.CheckID(value) != nil {
			continue // without the fact: a campaign that counts by it refuses the grab
		}
		who.facts[fact] = value
	}
	return nil
}

// verify verifies a token and reads its claims. It reads the claims only after it has verified the signature.
func (v *verifier) verify(ctx context.Context, token string, who *caller) error {
	if strings.Count(token, ".") != 2 {
		return errors.New("the token does not have three parts")
	}
	first, rest, _ := strings.Cut(token, ".")
	payload, last, _ := strings.Cut(rest, ".")
	h, known := v.headOf(first)
	if !known {
		var err error
		if h, err = readHead(first); err != nil {
			return err
		}
	}
	key, err := v.keys.find(ctx, h.kid, h.method.Alg())
	if err != nil {
		return err
	}
	if who.room, err = segment.AppendDecode(who.room[:0], []byte(last)); err != nil {
		return fmt.Errorf("the signature: %w", err)
	}
	if err := h.check(token[:len(first)+1+len(payload)], who.room, key); err != nil {
		return fmt.Errorf("the signature: %w", err)
	}
	if !known {
		v.remember(first, h)
	}
	if err := who.read(payload); err != nil {
		return err
	}
	return v.claims.Validate(who.claims)
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
	v.heads[strings.Clone(text)] = h // clone: text is a substring of a token
}

// segment is the encoding of each part of a token.
var segment = base64.RawURLEncoding.Strict()

// read parses a part of a token, which is one JSON object, into the caller's claims. If a name occurs twice, the
// last value counts.
func (c *caller) read(part string) (err error) {
	if c.room, err = segment.AppendDecode(c.room[:0], []byte(part)); err != nil {
		return fmt.Errorf("a part of the token: %w", err)
	}
	clear(c.claims)
	root := gjson.Parse(string(c.room))
	if !gjson.ValidBytes(c.room) || !root.IsObject() {
		return errors.New("a part of the token is not a JSON object")
	}
	root.ForEach(func(name, value gjson.Result) bool {
		c.claims[name.Str] = value.Value()
		return true
	})
	return nil
}

// readHead parses the header of a token.
func readHead(text string) (h head, err error) {
	part := caller{claims: jwt.MapClaims{}}
	if err := part.read(text); err != nil {
		return h, err
	}
	alg, _ := part.claims["alg"].(string)
	kid, _ := part.claims["kid"].(string)
	if _, critical := part.claims["crit"]; critical || kid == "" || !slices.Contains(algorithms, alg) {
		return h, errors.New("the token has no kid, another algorithm, or an extension that must be understood")
	}
	return head{kid, jwt.GetSigningMethod(alg)}, nil
}

func unauthorized(cause error) error {
	return &web.Refusal{Code: "unauthorized", Detail: "send a token or an API key that is valid here; " +
		"see docs/http.md", Cause: cause}
}
