package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
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

// deadLetter returns a dead letter of a user's packet.
func deadLetter(sink, class, user, reason string) model.Letter {
	return model.Letter{ID: sink + "/0/1-1", Sink: sink, Class: class, Reason: reason, Seq: 1, Fields: []string{"c", "1 rain"},
		Last: time.Unix(1_800_000_000, 0), Grant: &hongbao.Grant{Campaign: "rain", Packet: 3, User: user, Amount: 123_456, Currency: "CNY"}}
}

// The page says first which payments wait, then each cause with its number, money and campaigns, and one next step: a
// requeue is it only if the sink is known to work.
func TestLettersAreGroupedWithOneAdvice(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	whole := model.Letter{ID: "balance/0/9-9", Sink: "balance", Class: "conflict", Reason: "no grab wrote it", Last: time.Unix(1_800_000_060, 0)}
	f.dead = []model.Letter{deadLetter("kafka", "transient", "u1", "packet 1: the broker of u1 is silent"),
		deadLetter("kafka", "transient", "u2", "packet 2: the broker of u2 is silent"),
		deadLetter("balance", "permanent", "u3", "the account of u3 is closed"), deadLetter("balance", "conflict", "u4", "credit of u4: who knows"), whole}
	page := f.ask(t, "operator", "/letters", nil).Body.String()
	require.Contains(t, page, `class="verdict bad above"`)
	require.Contains(t, page, "2 wins wait for their payment: 2,469.12 CNY.")
	require.Contains(t, page, "A remote balance system may have paid 1 of them.")
	require.Contains(t, page, "2 grants wait for another sink.")
	require.Contains(t, page, "1 entry can&#39;t be read, or no grab wrote it.")
	require.Contains(t, page, `<a href="/campaigns/rain">Spring rain</a> <small class="mono dim">rain</small>`)
	require.Contains(t, page, `<time datetime="2027-01-15T08:00:00Z" title="2027-01-15 08:00:00 UTC">15 Jan 2027 16:00:00</time>`)
	require.Contains(t, page, "The sink works now: a requeue tries them again.")
	require.Equal(t, 1, strings.Count(page, `class="button main"`), "one next step")
	require.Contains(t, page, `class="button main" id="requeue-3" href="/letters/requeue?all=1&amp;class=transient&amp;reason=%3A&#43;the&#43;`+
		`broker&#43;of&amp;sink=kafka"`)
	require.Less(t, strings.Index(page, "is closed"), strings.Index(page, "is silent"), "payments come first")
	require.NotContains(t, page, `id="drop-`, "an operator drops nothing")
	require.NotContains(t, f.ask(t, "viewer", "/letters", nil).Body.String(), `id="requeue-`)
	scoped := f.ask(t, "operator:rain", "/letters?campaign=rain", nil).Body.String()
	require.NotContains(t, scoped, "The sink works now", "a key with a scope does not see the sinks")
	require.NotContains(t, scoped, `class="button main"`)
	require.Contains(t, f.ask(t, "treasurer", "/letters", nil).Body.String(), `id="drop-3"`)

	f.dead, f.moreDead = []model.Letter{whole}, true
	page = f.ask(t, "operator", "/letters", nil).Body.String()
	require.Contains(t, page, "1 entry waits for a decision.")
	require.Contains(t, page, "There are more letters: these are the first 1.")
	require.NotContains(t, page, `id="requeue-0"`, "an entry without a grant can't be requeued")
	f.dead = []model.Letter{}
	require.Contains(t, f.ask(t, "operator", "/letters", nil).Body.String(), "There is no dead letter here.")
}

// The page before a decision counts the letters again, and says what the decision does to the money. It changes nothing.
func TestADecisionAboutLettersSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	f.dead = []model.Letter{deadLetter("balance", "permanent", "u3", "the account of u3 is closed"),
		deadLetter("balance", "conflict", "u4", "credit of u4: who knows"), deadLetter("kafka", "transient", "u5", "no answer at all")}
	ask := func(role, path string) string {
		w := f.ask(t, role, path, nil)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		return w.Body.String()
	}
	drop := ask("treasurer", "/letters/drop?all=1&campaign=rain")
	for _, text := range []string{"Drop 3 dead letters", "3,703.68 CNY", "Hongbao never pays these grants.", "the topic never gets these grants",
		"--missing", "A remote balance system may have paid 1 of them. Ask its owners first", "This can&#39;t be undone.",
		`name="expect" value="3"`, `name="campaign" value="rain"`, `class="final" id="drop"`, `name="why" required`} {
		require.Contains(t, strings.ToLower(drop), strings.ToLower(text))
	}
	requeue := ask("operator", "/letters/requeue?all=1&campaign=rain")
	for _, text := range []string{"Requeue 3 dead letters", "What the ledger has is not paid again.", "a requeue can pay again",
		"What it has already is not published again.", `class="main" id="requeue"`} {
		require.Contains(t, requeue, text)
	}
	require.NotContains(t, requeue, "never")
	picked := ask("operator", "/letters/requeue?id=kafka/0/1-1")
	require.Contains(t, picked, `type="hidden" name="id" value="kafka/0/1-1"`)
	require.NotContains(t, picked, `name="expect"`)

	f.moreDead = true
	requeue = ask("operator", "/letters/requeue?all=1")
	require.NotContains(t, requeue, `name="expect"`, "the job counts them")
	require.Contains(t, requeue, "Count them</button>")
	require.Empty(t, f.did)

	for path, status := range map[string]int{"/letters/drop?all=1": http.StatusForbidden, "/letters/requeue": http.StatusBadRequest,
		"/letters/requeue?id=kafka/0/9-9": http.StatusNotFound} {
		require.Equal(t, status, f.ask(t, "operator", path, nil).Code, path)
	}
	before := f.denied
	for _, path := range []string{"/letters/requeue?all=1", "/letters/requeue?all=1&campaign=rain", "/letters/requeue?id=kafka/0/1-1"} {
		w := f.ask(t, "operator:other", path, nil)
		require.Equal(t, http.StatusBadRequest, w.Code, path)
		require.Contains(t, w.Body.String(), nameOne.Text)
	}
	require.Equal(t, before+3, f.denied)
}

// A path to the letters of a group selects its sink, class and reason, and keeps what the page already filters.
func TestAGroupsPathKeepsTheFilter(t *testing.T) {
	t.Parallel()
	found := model.LetterGroups{Groups: model.GroupLetters([]model.Letter{deadLetter("kafka", "permanent", "u1", "u1: too large & wide")})}
	g := groupViews(&found, model.LetterFilter{Campaign: "rain"}, nil, &access.Caller{})
	require.Equal(t, "/letters?campaign=rain&class=permanent&reason=%3A+too+large+%26+wide&sink=kafka", g[0].Path("/letters"))
	g = groupViews(&found, model.LetterFilter{Reason: "large"}, nil, &access.Caller{})
	require.Equal(t, "/letters/drop?all=1&class=permanent&reason=large&sink=kafka", g[0].Path("/letters/drop"))
	require.Equal(t, "/letters", lettersPath("/letters", model.LetterFilter{}))
}
