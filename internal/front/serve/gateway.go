package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// A gateway that signs sends these. docs/http.md shows a signature being made.
const (
	signedScheme = "hongbao-hmac" // Authorization: Hongbao-HMAC <key id>:<Unix seconds>:<signature in hex>
	userHeader   = "Hongbao-User"
	factsHeader  = "Hongbao-Facts"
	// signedFor is how far the time of a signature may be from the server's, either way.
	signedFor = 30 * time.Second
)

var errSignature = errors.New("the signature is not good here")

// gateways verifies requests that a gateway has signed.
type gateways struct {
	keys  keySet            // nil: there are none
	facts map[string]string // by their signed names
}

// signature is what a signed request says about itself.
type signature struct {
	kid, time, user, facts string
	mac                    []byte
}

// text is what is signed: one line each. None of them can hold a line break, so no two requests have the same text.
func (s *signature) text(r *http.Request, body []byte) string {
	hash := sha256.Sum256(body)
	return strings.Join([]string{
		"hongbao-hmac-1", s.kid, s.time, r.Method, r.RequestURI, s.user, s.facts, hex.EncodeToString(hash[:]),
	}, "\n")
}

// identify notes for which user a signed request comes, and reads its body.
func (g *gateways) identify(w http.ResponseWriter, r *http.Request, credentials string, body web.Body, who *caller) error {
	s, key, err := g.read(r, credentials)
	if err != nil {
		return unauthorized(err)
	}
	who.user, who.signed = s.user, true
	if r.Method == http.MethodPost {
		if who.body, err = web.ReadBody(w, r, body); err != nil {
			return err
		}
	}
	if !key.signed(s.text(r, who.body), s.mac) {
		return unauthorized(errSignature)
	}
	if _, err := userOf(s.user, true); err != nil {
		return err
	}
	return readFacts(s.facts, g.facts, who.facts)
}

// read checks what can be checked before the body is read.
func (g *gateways) read(r *http.Request, credentials string) (s signature, key *sharedKey, err error) {
	users, facts := r.Header.Values(userHeader), r.Header.Values(factsHeader)
	parts := strings.Split(credentials, ":")
	if g.keys == nil || len(parts) != 3 || len(users) != 1 || len(facts) > 1 {
		return s, nil, errSignature
	}
	s = signature{kid: parts[0], time: parts[1], user: users[0], facts: strings.Join(facts, "")}
	if s.mac, err = hex.DecodeString(parts[2]); err != nil {
		return s, nil, errSignature
	}
	at, err := strconv.ParseInt(s.time, 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > signedFor {
		return s, nil, fmt.Errorf("%w: its time is not now", errSignature)
	}
	found, err := g.keys.find(r.Context(), s.kid, "HS256")
	if err != nil {
		return s, nil, err
	}
	key, ok := found.(*sharedKey)
	if !ok {
		return s, nil, errSignature
	}
	return s, key, nil
}

// readFacts reads facts as "device=d1 channel=app" into a map that is empty. names has the fact of each name.
func readFacts(text string, names, to map[string]string) error {
	if text == "" {
		return nil
	}
	for item := range strings.SplitSeq(text, " ") {
		name, value, _ := strings.Cut(item, "=")
		fact := names[name]
		switch {
		case fact == "":
			return web.Refuse("facts_invalid", "serve.facts has no such source; write them as device=d1 channel=app")
		case to[fact] != "":
			return web.Refuse("facts_invalid", "a fact comes twice")
		case hongbao.CheckID(value) != nil:
			return web.Refuse("facts_invalid", "a value has 1 to 128 printable ASCII characters without spaces")
		}
		to[fact] = value
	}
	return nil
}
