package serve

import (
	"net/http"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// A gateway with an API key names the user and the facts of a grab in these headers.
const (
	userHeader  = "Hongbao-User"
	factsHeader = "Hongbao-Facts"
)

// forUser reads the user and the facts from a gateway's headers. The key must permit grabs, because the answers
// contain coupon codes.
func (s *Server) forUser(r *http.Request, who *caller) error {
	if _, _, err := s.byKey(r, access.Grab); err != nil {
		return err
	}
	users, facts := r.Header.Values(userHeader), r.Header.Values(factsHeader)
	switch {
	case len(users) != 1:
		return web.Refuse("user_invalid", "with an API key send the header "+userHeader+" with one user")
	case len(facts) > 1:
		return web.Refuse("facts_invalid", "send the header "+factsHeader+" once, as device=d1 channel=app")
	}
	var err error
	if who.user, err = userOf(users[0], true); err != nil {
		return err
	}
	who.byKey = true
	return readFacts(strings.Join(facts, ""), s.gatewayFacts, who.facts)
}

// onlyGateways returns an error if a request with a user's token has a gateway's headers. Otherwise the sender
// would believe that they have an effect.
func onlyGateways(h http.Header) error {
	switch {
	case h[userHeader] != nil:
		return web.Refuse("user_invalid", "the header "+userHeader+" is only for API keys: the token names its user")
	case h[factsHeader] != nil:
		return web.Refuse("facts_invalid", "the header "+factsHeader+" is only for API keys: a token has its facts as claims")
	}
	return nil
}

// readFacts parses facts such as "device=d1 channel=app" into the empty map to. names maps the names in the text to
// facts.
func readFacts(text string, names, to map[string]string) error {
	if text == "" {
		return nil
	}
	for item := range strings.SplitSeq(text, " ") {
		name, value, _ := strings.Cut(item, "=")
		fact := names[name]
		switch {
		case fact == "":
			return web.Refuse("facts_invalid", "serve.facts does not have this name; write facts such as device=d1 channel=app")
		case to[fact] != "":
			return web.Refuse("facts_invalid", "a fact occurs twice")
		case hongbao.CheckID(value) != nil:
			return web.Refuse("facts_invalid", "a value has 1 to 128 printable ASCII characters without spaces")
		}
		to[fact] = value
	}
	return nil
}
