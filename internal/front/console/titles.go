package console

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/model"
)

// titles are the names of the campaigns that a page mentions. Zone is the time zone that all of them share; UTC if they
// have several, or if it is not known. The page shows its times in it.
type titles struct {
	Zone string
	of   map[string]model.Title
}

// titlesOf reads the names of campaigns.
func (c *Console) titlesOf(ctx context.Context, ids ...string) titles {
	slices.Sort(ids)
	ids = slices.Compact(slices.DeleteFunc(ids, func(id string) bool { return id == "" }))
	t := titles{of: c.source.Titles(ctx, ids)}
	zones := map[string]bool{}
	for _, x := range t.of {
		zones[x.Zone] = true
	}
	if len(zones) == 1 && len(t.of) == len(ids) {
		t.Zone = slices.Collect(maps.Keys(zones))[0]
	}
	return t
}

// Name returns the name of a campaign; its id if that is not known.
func (t titles) Name(id string) string {
	if name := t.of[id].Name; name != "" {
		return name
	}
	return id
}

// At returns a time for the page.
func (t titles) At(at time.Time) when { return when{At: at, zone: t.Zone} }

// campaignLink is what the template campaign-link shows.
type campaignLink struct{ ID, Name string }

// Link returns a link to a campaign for the template campaign-link.
func (t titles) Link(id string) campaignLink { return campaignLink{id, t.Name(id)} }
