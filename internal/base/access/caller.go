package access

import (
	"errors"
	"slices"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// What a caller is told. Tell them apart with errors.Is.
var (
	// ErrUnauthorized says that a key or a session is not good here. Why is not told: wrong, truncated, revoked and
	// expired are one answer.
	ErrUnauthorized = errors.New("send an API key that is valid here")
	// ErrForbidden says that the caller's role is not good for this.
	ErrForbidden = errors.New("the API key's role may not do this")
	// ErrWhole says that this concerns the whole deployment, and the caller's key only some campaigns.
	ErrWhole = errors.New("the API key is good for some campaigns only, and this concerns the whole deployment")
	// ErrNotInScope says that the campaign is none of the caller's. Answer it as a campaign that does not exist.
	ErrNotInScope = errors.New("there is no such campaign")
)

// Caller is who sends a request, and what they may do.
type Caller struct {
	// Key is the id of their API key.
	Key  string
	Role Role
	// Campaigns are their key's scope: ids, or prefixes that end with *; empty: all, and the whole deployment.
	Campaigns []string
	Spending
}

// Sees tells whether a campaign is within the caller's scope. Lists are to leave out the others.
func (c *Caller) Sees(campaign string) bool {
	return len(c.Campaigns) == 0 || slices.ContainsFunc(c.Campaigns, func(scope string) bool {
		prefix, many := strings.CutSuffix(scope, "*")
		return scope == campaign || many && strings.HasPrefix(campaign, prefix)
	})
}

// Scoped tells whether the caller has some campaigns only.
func (c *Caller) Scoped() bool { return len(c.Campaigns) > 0 }

// Check refuses an action that the caller may not take on a campaign; "" says that it concerns the whole deployment, as
// a replay of all campaigns does. The errors are ErrForbidden, ErrWhole and ErrNotInScope.
//
// A list of campaigns, letters or grants in quarantine concerns no other campaign than those that are shown: ask May,
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
