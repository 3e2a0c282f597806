package console

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// Work on letters that ended too early continues where it was, with the same filter and reason.
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

// One click decides no letters that the person has not seen counted: the first click counts, the second decides.
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
