package serve

import (
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/tidwall/gjson"
)

// errClaim says that a claim has another type than the standard gives it.
var errClaim = errors.New("a claim has the wrong type")

// claims are what a part of a token says, in its order. They implement jwt.Claims.
type claims []member

type member struct {
	name  string
	value gjson.Result
}

// get gives a claim. A name that comes twice has its last value.
func (c claims) get(name string) (value gjson.Result, ok bool) {
	for i := len(c) - 1; i >= 0; i-- {
		if c[i].name == name {
			return c[i].value, true
		}
	}
	return value, false
}

// readClaims reads a part of a token: one JSON object.
func readClaims(part string) (claims, error) {
	text, err := segment.DecodeString(part)
	if err != nil {
		return nil, fmt.Errorf("a part of the token: %w", err)
	}
	root := gjson.ParseBytes(text)
	if !gjson.ValidBytes(text) || !root.IsObject() {
		return nil, errors.New("a part of the token is no JSON object")
	}
	c := make(claims, 0, 8)
	root.ForEach(func(name, value gjson.Result) bool {
		c = append(c, member{name.Str, value})
		return true
	})
	return c, nil
}

// text gives a claim that is a text, "" for none.
func (c claims) text(name string) (string, error) {
	value, ok := c.get(name)
	if ok && value.Type != gjson.String {
		return "", errClaim
	}
	return value.Str, nil
}

func (c claims) date(name string) (*jwt.NumericDate, error) {
	value, ok := c.get(name)
	switch {
	case !ok:
		return nil, nil //nolint:nilnil // so jwt.Claims wants it
	case value.Type != gjson.Number:
		return nil, errClaim
	}
	return jwt.NewNumericDate(time.Unix(int64(value.Num), 0)), nil
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

// GetAudience implements jwt.Claims. One audience may stand as a text, several as a list of texts.
func (c claims) GetAudience() (jwt.ClaimStrings, error) {
	value, _ := c.get("aud")
	if !value.IsArray() {
		one, err := c.text("aud")
		return jwt.ClaimStrings{one}, err
	}
	var all jwt.ClaimStrings
	for _, one := range value.Array() {
		if one.Type != gjson.String {
			return nil, errClaim
		}
		all = append(all, one.Str)
	}
	return all, nil
}
