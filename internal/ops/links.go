package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
)

// linkLasts is how long a link outlives the window of its campaign.
const linkLasts = time.Hour

// Share is the input of ShareCampaign.
type Share struct {
	Campaign string
	Money    bool
	Why      string
}

// ShareCampaign makes a link that shows a campaign until an hour after its window. The returned text opens it, and is not
// stored anywhere. The link belongs to the caller's key.
func (l *Local) ShareCampaign(ctx context.Context, in Share) (text string, link access.Session, err error) {
	if err := checkWhy(in.Why); err != nil {
		return "", link, err
	}
	if l.Caller == nil {
		return "", link, errors.New("a link belongs to an API key, and this call has none")
	}
	c, err := l.ShowCampaign(ctx, in.Campaign)
	if err != nil {
		return "", link, err
	}
	err = l.App.Recorded(ctx, app.About(ctx, access.ShareCampaign, in.Campaign), func(ctx context.Context, e *access.Entry) error {
		ends := c.Spec.To.Add(linkLasts)
		e.Details = map[string]any{"why": in.Why, "money": in.Money, "ends": ends.UTC().Format(time.RFC3339)}
		if !time.Now().Before(ends) {
			return hongbao.Errorf(hongbao.ClassPermanent, "share campaign %s: a link would have ended at %s, an hour after its window",
				in.Campaign, ends.UTC().Format(time.RFC3339))
		}
		text, link, err = l.App.Authority().StartLink(ctx, l.Caller.Key, access.Session{Campaign: in.Campaign, Money: in.Money, Why: in.Why}, ends)
		if err == nil {
			e.Details["link"] = link.ID()
		}
		return err
	})
	return text, link, err
}

// Links returns the links to a campaign that show it now, the newest first.
func (l *Local) Links(ctx context.Context, campaign string) ([]access.Session, error) {
	return l.App.Authority().Links(ctx, campaign)
}

// EndLink ends a link to a campaign by its id.
func (l *Local) EndLink(ctx context.Context, campaign, id string) error {
	links, err := l.Links(ctx, campaign)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(links, func(s access.Session) bool { return s.ID() == id })
	if i < 0 {
		return fmt.Errorf("link %.20q of campaign %s: %w", id, campaign, model.ErrNotFound)
	}
	return l.App.Recorded(ctx, app.About(ctx, access.EndLink, campaign), func(ctx context.Context, e *access.Entry) error {
		e.Details = map[string]any{"link": id}
		return l.App.Authority().EndLink(ctx, links[i].Hash)
	})
}
