package access

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Errors of access checks. Distinguish them with errors.Is.
var (
	// ErrUnauthorized says that a key or a session is not valid here. It hides the reason: wrong, truncated, revoked
	// and expired keys get the same answer.
	ErrUnauthorized = errors.New("send an API key that is valid here")
	// ErrForbidden says that the caller's role does not allow the action.
	ErrForbidden = errors.New("the API key's role may not do this")
	// ErrWhole says that the action concerns the whole deployment, but the caller's key covers only some campaigns.
	ErrWhole = errors.New("the API key is good for some campaigns only, and this concerns the whole deployment")
	// ErrNotInScope says that the campaign is not in the caller's scope. The answer must equal that for a campaign that
	// does not exist.
	ErrNotInScope = errors.New("there is no such campaign")
)

// Caller is the identified sender of a request, with the rights of their API key.
type Caller struct {
	// Key is the id of the caller's API key.
	Key  string
	Role Role
	// Campaigns is the scope of the key: campaign ids, or prefixes that end with *. Empty means all campaigns and the
	// whole deployment.
	Campaigns []string
	// Expires is the end of the key; zero: never.
	Expires time.Time
	// Client is the client of the balance API that the key belongs to. It is empty for other roles.
	Client string
	// Link is the link by which someone without a key reads; nil for the owner of a key.
	Link *Session
	Spending
}

// Sees reports whether a campaign is within the caller's scope. Lists must leave out campaigns that the caller does not
// see.
func (c *Caller) Sees(campaign string) bool {
	return len(c.Campaigns) == 0 || slices.ContainsFunc(c.Campaigns, func(scope string) bool {
		prefix, many := strings.CutSuffix(scope, "*")
		return scope == campaign || many && strings.HasPrefix(campaign, prefix)
	})
}

// Scoped reports whether the caller's scope is limited to some campaigns.
func (c *Caller) Scoped() bool { return len(c.Campaigns) > 0 }

// Check refuses an action that the caller may not take on a campaign. The campaign "" means the whole deployment, for
// example for a replay of all campaigns. The errors are ErrForbidden, ErrWhole and ErrNotInScope.
//
// For an action that lists campaigns, dead letters or quarantined grants, call May instead, and filter the list with
// Sees.
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

// May refuses an action that the caller may not take on any campaign.
func (c *Caller) May(a Action) error {
	rule := ruleOf(a)
	switch {
	case !slices.Contains(rule.Roles, c.Role), c.Link != nil && a != ReadCampaigns:
		return refused(ErrForbidden)
	case rule.Whole && c.Scoped():
		return refused(ErrWhole)
	}
	return nil
}

func refused(why error) error { return hongbao.Errorf(hongbao.ClassPermanent, "%w", why) }
