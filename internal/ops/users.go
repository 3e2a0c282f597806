package ops

import (
	"context"
	"net/url"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/find"
)

// UserQuery is the input of ShowUser.
type UserQuery struct {
	User  string
	After string // Next of the previous page
	Limit int    // number of campaigns that the page covers
}

// Check returns an error if the input is invalid.
func (in *UserQuery) Check() error {
	switch {
	case hongbao.CheckID(in.User) != nil:
		return &InputError{Field: "user", Text: "is 1 to 128 printable ASCII characters without spaces"}
	case in.After != "" && hongbao.CheckCampaignID(in.After) != nil:
		return &InputError{Field: "after", Text: "is the next of the previous page"}
	}
	return checkLimit(in.Limit, model.MaxLetters)
}

// ShowUser returns a page of what Redis and the ledger have about a user, over all campaigns.
func (l *Local) ShowUser(ctx context.Context, in UserQuery) (find.UserData, error) {
	if err := in.Check(); err != nil {
		return find.UserData{}, err
	}
	return find.Of(l.App).User(ctx, in.User, in.After, in.Limit)
}

// ShowUser implements Operations.
func (r *Remote) ShowUser(ctx context.Context, in UserQuery) (out find.UserData, err error) {
	if err := in.Check(); err != nil {
		return out, err
	}
	q := url.Values{"user": {in.User}}
	if in.After != "" {
		q.Set("after", in.After)
	}
	first := true
	err = r.pages(ctx, "/v1/user-data", q, in.Limit, func(get func(to any) error) (int, string, error) {
		var next find.UserData
		if err := get(&next); err != nil {
			return 0, "", err
		}
		if first {
			out, first = next, false
			return next.Campaigns, string(next.Next), nil
		}
		out.Campaigns, out.Next = out.Campaigns+next.Campaigns, next.Next
		out.Wins, out.Archives = append(out.Wins, next.Wins...), append(out.Archives, next.Archives...)
		return next.Campaigns, string(next.Next), nil
	})
	return out, err
}
