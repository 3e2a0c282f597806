package access

import (
	"errors"
	"slices"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// Errors for a caller. Distinguish them with errors.Is.
var (
	// ErrUnauthorized says that a key or a session is not valid here. It does not say why: wrong, truncated, revoked
	// and expired keys get the same answer.
	ErrUnauthorized = errors.New("send an API key that is valid here")
	// ErrForbidden says that the caller's role may not do this.
	ErrForbidden = errors.New("the API key's role may not do this")
	// ErrWhole says that this concerns the whole deployment, while the caller's key covers only some campaigns.
	ErrWhole = errors.New("the API key is good for some campaigns only, and this concerns the whole deployment")
	// ErrNotInScope says that the campaign is not in the caller's scope. Answer as for a campaign that does not exist.
	ErrNotInScope = errors.New("there is no such campaign")
)

// Caller is the sender of a request, with their rights.
type Caller struct {
	// Key is the id of their API key.
	Key  string
	Role Role
	// Campaigns are their key's scope: ids, or prefixes that end with *; empty: all, and the whole deployment.
	Campaigns []string
	// Client is their client of the balance API.
	Client string
	Spending
}

// Sees reports whether a campaign is within the caller's scope. Lists must leave out the others.
func (c *Caller) Sees(campaign string) bool {
	return len(c.Campaigns) == 0 || slices.ContainsFunc(c.Campaigns, func(scope string) bool {
		prefix, many := strings.CutSuffix(scope, "*")
		return scope == campaign || many && strings.HasPrefix(campaign, prefix)
	})
}

// Scoped reports whether the caller's scope is limited to some campaigns.
func (c *Caller) Scoped() bool { return len(c.Campaigns) > 0 }

// Check refuses an action that the caller may not take on a campaign. The campaign "" means the whole deployment, as
// for a replay of all campaigns. The errors are ErrForbidden, ErrWhole and ErrNotInScope.
//
// A list of campaigns, letters or grants in quarantine concerns only the campaigns that it shows. For a list call May,
// and leave out what the caller does not see.
func (c *Caller) Check(a Action, campaign string) error {
	if err := c.May(a); err != nil {
		return err
	}
	switch {
	case campaign == "" && c.Scoped():
		return refused(ErrWhole)
	case campaign != "" && !c.Sees(campaign):
		return refused(ErrNotInScope)
	}
	return nil
}

// May refuses an action that the caller may take on no campaign at all.
func (c *Caller) May(a Action) error {
	rule := ruleOf(a)
	switch {
	case !slices.Contains(rule.Roles, c.Role):
		return refused(ErrForbidden)
	case rule.Whole && c.Scoped():
		return refused(ErrWhole)
	}
	return nil
}

func refused(why error) error { return hongbao.Errorf(hongbao.ClassPermanent, "%w", why) }
