package ops

import (
	"cmp"
	"context"
	"net/url"
	"regexp"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/access"
)

// ListJournal lists the recorded actions of commands and API keys, newest first.
func (l *Local) ListJournal(ctx context.Context, in access.JournalQuery) (access.JournalPage, error) {
	if err := CheckJournal(&in); err != nil {
		return access.JournalPage{}, err
	}
	return l.App.Journal(ctx, in)
}

// JournalPlace is the regular expression of a position in the journal, at which a page begins.
const JournalPlace = "^[0-9]{1,15}-[!-~]{1,255}$"

var journalPlace = regexp.MustCompile(JournalPlace)

// CheckJournal returns an error if the query is invalid.
func CheckJournal(in *access.JournalQuery) error {
	if in.After != "" && !journalPlace.MatchString(in.After) {
		return &InputError{Field: "after", Text: "is the next of the previous page"}
	}
	return cmp.Or(checkPick(in.Campaign, ""), checkLimit(in.Limit, access.MaxEntries))
}

// ListJournal implements Operations.
func (r *Remote) ListJournal(ctx context.Context, in access.JournalQuery) (page access.JournalPage, err error) {
	if err := CheckJournal(&in); err != nil {
		return page, err
	}
	page.Entries = []access.Entry{}
	q := url.Values{}
	for name, value := range map[string]string{"campaign": in.Campaign, "who": in.Who, "after": in.After} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if !in.Since.IsZero() {
		q.Set("since", in.Since.Format(time.RFC3339Nano))
	}
	err = r.pages(ctx, "/v1/journal", q, in.Limit, func(get func(to any) error) (int, string, error) {
		var next access.JournalPage
		err := get(&next)
		page.Entries, page.Next = append(page.Entries, next.Entries...), next.Next
		return len(next.Entries), string(next.Next), err
	})
	return page, err
}
