package console

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// If a job ends before it has worked on all letters, its page has a button that continues with the rest, with
// the same filter and reason.
func TestLettersGoOn(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	f.next = "kafka/0/5-0"
	form := url.Values{"all": {"1"}, "why": {"repaired"}, "campaign": {"rain"}, "sink": {"kafka"}, "expect": {"4"}}
	w := f.ask(t, "operator", "/letters/requeue", form)
	require.Equal(t, http.StatusSeeOther, w.Code)
	page := f.ask(t, "operator", w.Header().Get("Location"), nil).Body.String()
	require.Contains(t, page, `id="again"`)
	for name, values := range form {
		require.Contains(t, page, `name="`+name+`" value="`+values[0]+`"`)
	}
	require.Contains(t, page, `name="after" value="kafka/0/5-0"`)
	require.NotContains(t, f.ask(t, "viewer", w.Header().Get("Location"), nil).Body.String(), `id="again"`)

	form.Set("after", f.next)
	f.next = ""
	w = f.ask(t, "operator", "/letters/requeue", form)
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "kafka/0/5-0", f.after)
	require.NotContains(t, f.ask(t, "operator", w.Header().Get("Location"), nil).Body.String(), `id="again"`)
}

// A job with a filter never works on letters that the user has not seen counted. The first click only counts
// them; the second one works on them.
func TestLettersOfAFilterAreCountedFirst(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"requeue", "drop"} {
		f := setup(t, nil)
		form := url.Values{"all": {"1"}, "why": {"repaired"}, "campaign": {"rain"}}
		w := f.ask(t, "treasurer", "/letters/"+what, form)
		require.Equal(t, http.StatusSeeOther, w.Code)
		page := f.ask(t, "treasurer", w.Header().Get("Location"), nil).Body.String()
		require.Contains(t, page, "Decide 4 letters")
		require.Contains(t, page, `name="expect" value="4"`)
		form.Set("expect", "4")
		w = f.ask(t, "treasurer", "/letters/"+what, form)
		require.NotContains(t, f.ask(t, "treasurer", w.Header().Get("Location"), nil).Body.String(), `id="again"`)
		require.Equal(t, []string{"key-treasurer " + what + " [] rain true repaired",
			"key-treasurer " + what + " [] rain false repaired"}, f.did)
	}
}
