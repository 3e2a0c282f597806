package serve

import (
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/tidwall/gjson"
)

// errClaim reports that a claim does not have the type that the standard requires.
var errClaim = errors.New("a claim has the wrong type")

// claims are the claims of one part of a token, in its order. They implement jwt.Claims.
type claims []member

type member struct {
	name string
	kind gjson.Type
	// text is the value of a string; of any other type, its JSON text.
	text   string
	number float64
}

// get returns a claim. If a name occurs twice, the last value wins.
func (c claims) get(name string) (has member, ok bool) {
	for i := len(c) - 1; i >= 0; i-- {
		if c[i].name == name {
			return c[i], true
		}
	}
	return has, false
}

// read parses a part of a token, one JSON object, into the caller's claims.
func (who *caller) read(part string) (err error) {
	if who.room, err = segment.AppendDecode(who.room[:0], []byte(part)); err != nil {
		return fmt.Errorf("a part of the token: %w", err)
	}
	root := gjson.Parse(string(who.room))
	if !gjson.ValidBytes(who.room) || !root.IsObject() {
		return errors.New("a part of the token is not a JSON object")
	}
	who.claims = who.claims[:0]
	root.ForEach(func(name, value gjson.Result) bool {
		text := value.Raw
		if value.Type == gjson.String {
			text = value.Str
		}
		who.claims = append(who.claims, member{name.Str, value.Type, text, value.Num})
		return true
	})
	return nil
}

// text returns a claim that is a string, or "" if there is none.
func (c claims) text(name string) (string, error) {
	has, ok := c.get(name)
	if ok && has.kind != gjson.String {
		return "", errClaim
	}
	return has.text, nil
}

func (c claims) date(name string) (*jwt.NumericDate, error) {
	has, ok := c.get(name)
	switch {
	case !ok:
		return nil, nil //nolint:nilnil // jwt.Claims requires it
	case has.kind != gjson.Number:
		return nil, errClaim
	}
	return jwt.NewNumericDate(time.Unix(int64(has.number), 0)), nil
}

// GetExpirationTime implements jwt.Claims.
func (c claims) GetExpirationTime() (*jwt.NumericDate, error) { return c.date("exp") }

// GetNotBefore implements jwt.Claims.
func (c claims) GetNotBefore() (*jwt.NumericDate, error) { return c.date("nbf") }

// GetIssuedAt implements jwt.Claims.
func (c claims) GetIssuedAt() (*jwt.NumericDate, error) { return c.date("iat") }

// GetIssuer implements jwt.Claims.
func (c claims) GetIssuer() (string, error) { return c.text("iss") }

// GetSubject implements jwt.Claims.
func (c claims) GetSubject() (string, error) { return c.text("sub") }

// GetAudience implements jwt.Claims. The claim is a string for one audience, or a list of strings.
func (c claims) GetAudience() (jwt.ClaimStrings, error) {
	has, _ := c.get("aud")
	list := gjson.Result{Type: has.kind, Raw: has.text}
	if !list.IsArray() {
		one, err := c.text("aud")
		return jwt.ClaimStrings{one}, err
	}
	var all jwt.ClaimStrings
	for _, one := range list.Array() {
		if one.Type != gjson.String {
			return nil, errClaim
		}
		all = append(all, one.Str)
	}
	return all, nil
}
