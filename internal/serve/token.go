package serve

import (
	"errors"
	"net/http"
	"strings"
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
}

// verifier tells who a request comes from.
type verifier struct {
	keys      *keySet
	parser    *jwt.Parser
	userClaim string
	facts     map[string]string
}

func newVerifier(cfg *Config, facts map[string]string, keys *keySet) *verifier {
	return &verifier{
		keys: keys, userClaim: cfg.UserClaim, facts: facts,
		parser: jwt.NewParser(jwt.WithValidMethods(algorithms), jwt.WithIssuer(cfg.Issuer), jwt.WithAudience(cfg.Audience),
			jwt.WithExpirationRequired(), jwt.WithLeeway(cfg.Leeway), jwt.WithStrictDecoding()),
	}
}

// identify verifies the request's token. Whatever is wrong with it gets the same answer.
func (v *verifier) identify(r *http.Request) (*caller, error) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return nil, unauthorized(nil)
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, unauthorized(nil)
	}
	claims := jwt.MapClaims{}
	_, err := v.parser.ParseWithClaims(text, claims, func(t *jwt.Token) (any, error) {
		kid, _ := t.Header["kid"].(string)
		if _, critical := t.Header["crit"]; critical || kid == "" {
			return nil, errors.New("the token has no kid, or an extension that must be understood")
		}
		return v.keys.find(r.Context(), kid, t.Method.Alg())
	})
	if errors.Is(err, errNoKeys) {
		return nil, &web.Refusal{Code: "unavailable", Detail: "send the same request again", Wait: time.Second, Cause: err}
	}
	if err != nil {
		return nil, unauthorized(err)
	}
	who := &caller{}
	who.user, _ = claims[v.userClaim].(string)
	if err := hongbao.CheckID(who.user); err != nil {
		return nil, unauthorized(err)
	}
	for fact, claim := range v.facts {
		value, _ := claims[claim].(string)
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

func unauthorized(cause error) error {
	return &web.Refusal{Code: "unauthorized", Detail: "send a token that is valid here as Authorization: Bearer ...",
		Cause: cause}
}
