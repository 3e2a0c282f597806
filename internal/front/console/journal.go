package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
)

type journalPage struct {
	titles
	Campaign, Who, Since string
	Entries              []access.Entry
	Next                 string // path of the next page
}

// journal shows the entries of the journal, with filters.
func (c *Console) journal(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	q := r.URL.Query()
	p := journalPage{Campaign: q.Get("campaign"), Who: strings.TrimSpace(q.Get("who")), Since: q.Get("since")}
	answer := page{Title: model.Say("Journal"), Caller: who, View: &p,
		Meta: model.Say("Actions by commands and over HTTP, with the actions that callers were denied.")}
	since, wrong := journalSince(p.Since)
	switch {
	case p.Campaign != "" && hongbao.CheckCampaignID(p.Campaign) != nil:
		answer.Error = badCampaign
	case wrong != nil:
		answer.Error = model.Say("Since is a day, as 2026-02-17.")
	}
	if answer.Error.Text != "" {
		c.show(w, r, http.StatusBadRequest, "journal", answer)
		return
	}
	found, err := c.source.Journal(r.Context(), access.JournalQuery{Campaign: p.Campaign, Who: p.Who, Since: since,
		After: q.Get("after"), Limit: model.PageLen})
	if err != nil {
		c.failed(w, r, err)
		return
	}
	p.Entries = found.Entries
	ids := make([]string, len(p.Entries))
	for i := range p.Entries {
		ids[i] = p.Entries[i].Campaign
	}
	p.titles = c.titlesOf(r.Context(), ids...)
	if found.Next != "" {
		q.Set("after", string(found.Next))
		p.Next = "/journal?" + q.Encode()
	}
	c.show(w, r, http.StatusOK, "journal", answer)
}

// journalSince parses the day in the form. It returns the zero time if the day is empty.
func journalSince(day string) (time.Time, error) {
	if day == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.DateOnly, day)
}

// outcomeClass returns the CSS class for the outcome of an entry. The page also shows the outcome as text.
func outcomeClass(o access.Outcome) string {
	switch o {
	case access.OutcomeDone:
		return "good"
	case access.OutcomeDenied, access.OutcomeRefused:
		return "warn"
	case access.OutcomeFailed, access.OutcomeUnknown:
		return "bad"
	}
	return "calm"
}

// details returns the details of an entry as lines of text.
func details(all map[string]any) []string {
	lines := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text, isText := all[name].(string)
		if !isText {
			raw, err := json.Marshal(all[name])
			if text = string(raw); err != nil {
				text = fmt.Sprint(all[name])
			}
		}
		lines = append(lines, name+": "+text)
	}
	return lines
}
