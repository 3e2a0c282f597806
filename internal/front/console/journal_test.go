package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/model"
)

func (b *fakeSource) Restored(context.Context) ([]model.Restored, error) { return b.restored, b.err }

// Journal returns entries 99 to 0 in pages. The details of each entry contain the query, and its position is its
// number.
func (b *fakeSource) Journal(_ context.Context, q access.JournalQuery) (access.JournalPage, error) {
	first := 99
	if q.After != "" {
		if _, err := fmt.Sscanf(q.After, "1-%d", &first); err != nil {
			return access.JournalPage{}, err
		}
		first--
	}
	var p access.JournalPage
	for i := first; i >= 0 && len(p.Entries) < q.Limit; i-- {
		p.Entries = append(p.Entries, access.Entry{Time: time.Unix(int64(i), 0), Who: "key:k1",
			Action: access.PauseSink, Campaign: q.Campaign, Sink: "kafka", Outcome: access.OutcomeDone,
			Details: map[string]any{"n": i, "why": "<b>", "asked": q.Who + " " + q.Since.Format(time.RFC3339)}})
		p.Next = optional.Text(fmt.Sprint("1-", i))
	}
	if first < q.Limit {
		p.Next = ""
	}
	return p, b.err
}

// Links lead through all pages of the journal and keep the filter.
func TestJournalHasFiltersAndPages(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	path := "/journal?campaign=rain&who=key%3Ak1&since=2026-02-17"
	for page := range 2 {
		w := f.ask(t, "viewer", path, nil)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		text := w.Body.String()
		require.Equal(t, model.PageLen, strings.Count(text, `<b>Pause a sink</b><span class="sub mono">pause_sink</span>`))
		require.Contains(t, text, "Times in Asia/Shanghai.")
		require.Contains(t, text, fmt.Sprintf("n: %d<br>", 99-page*model.PageLen))
		require.Contains(t, text, "asked: key:k1 2026-02-17T00:00:00Z<br>")
		require.Contains(t, text, "why: &lt;b&gt;<br>")
		require.Contains(t, text, `<a href="/campaigns/rain">Spring rain</a> <small class="mono dim">rain</small> sink kafka`)
		next := "/journal?" + url.Values{"campaign": {"rain"}, "who": {"key:k1"}, "since": {"2026-02-17"},
			"after": {"1-50"}}.Encode()
		require.Equal(t, page == 0, strings.Contains(text, `href="`+strings.ReplaceAll(next, "&", "&amp;")+`"`), text)
		path = next
	}
	for _, bad := range []string{"campaign=Rain", "since=yesterday", "since=2026-02-17T00:00:00Z"} {
		require.Equal(t, http.StatusBadRequest, f.ask(t, "viewer", "/journal?"+bad, nil).Code, bad)
	}
}

// Every role that may use the console reads the journal. A key with a scope may not, because the journal is about the
// whole deployment.
func TestJournalIsForWholeKeys(t *testing.T) {
	t.Parallel()
	for _, role := range access.Roles() {
		for scope, scoped := range map[string]bool{"": false, ":rain": true} {
			f := setup(t, nil)
			may := (&access.Caller{Role: role}).May(access.ReadJournal) == nil && !scoped
			require.Equal(t, may, f.ask(t, string(role)+scope, "/journal", nil).Code == http.StatusOK, "%s%s", role, scope)
			linked := strings.Contains(f.ask(t, string(role)+scope, "/", nil).Body.String(), `href="/journal"`)
			require.Equal(t, may, linked, "%s%s", role, scope)
		}
	}
}
