package cli

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ops/apikeys"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// key creates an API key with a role, and returns its text.
func (d *deployment) key(args ...string) string {
	d.t.Helper()
	var made apikeys.NewKey
	require.NoError(d.t, json.Unmarshal([]byte(d.ok(append([]string{"key", "create", "--json", "--role"}, args...)...)),
		&made))
	return made.Text
}

// visitor requests pages of the console with an API key in the header.
type visitor struct {
	t         *testing.T
	base, key string
}

// open requests a page. The caller closes the body.
func (v *visitor) open(method, path string) *http.Response {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.base+path, nil)
	require.NoError(v.t, err)
	r.Header.Set("Authorization", "Bearer "+v.key)
	res, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}).Do(r)
	require.NoError(v.t, err)
	return res
}

// ask requests a page and returns its status and text.
func (v *visitor) ask(method, path string) (status int, text string) {
	v.t.Helper()
	res := v.open(method, path)
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	require.NoError(v.t, err)
	return res.StatusCode, string(all)
}

// send sends a request with a body, and returns the status and the text of the answer.
func (v *visitor) send(method, path, contentType, body string) (status int, text string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.base+path, strings.NewReader(body))
	require.NoError(v.t, err)
	r.Header.Set("Authorization", "Bearer "+v.key)
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Idempotency-Key", rand.Text())
	res, err := http.DefaultClient.Do(r)
	require.NoError(v.t, err)
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	require.NoError(v.t, err)
	return res.StatusCode, string(all)
}

// statusOf sends a request and returns only the status.
func (v *visitor) statusOf(method, path string) int {
	v.t.Helper()
	status, _ := v.ask(method, path)
	return status
}

func (v *visitor) sees(path string, parts ...string) string {
	v.t.Helper()
	status, text := v.ask(http.MethodGet, path)
	require.Equal(v.t, http.StatusOK, status, "%s: %s", path, text)
	for _, part := range parts {
		require.Contains(v.t, text, part, path)
	}
	return text
}

// events opens the event stream of a page. It returns a function that waits for the next line that contains the text.
func (v *visitor) events(page string) (next func(text string)) {
	v.t.Helper()
	events := v.open(http.MethodGet, "/events?page="+page)
	v.t.Cleanup(func() { _ = events.Body.Close() })
	require.Equal(v.t, "text/event-stream", events.Header.Get("Content-Type"))
	lines := bufio.NewScanner(events.Body)
	lines.Buffer(nil, 1<<20)
	return func(text string) {
		v.t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		require.Fail(v.t, "the stream ended", "before %q", text)
	}
}

// sumOf adds up the first group of each match of the pattern.
func sumOf(text, pattern string) (sum int) {
	for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(found[1]) // they are digits
		sum += n
	}
	return sum
}

// The pages show what Redis, PostgreSQL and the workers know before, during and after a campaign. They show the plan
// only after the campaign. TestConsole, of make test-web, tests the same pages in a browser.
func TestConsolePages(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	control := testkit.FreeAddr(t)
	g := d.serve("--control.listen=" + control)
	v := &visitor{t, "http://" + control, d.key("operator")}
	v.sees("/", "There is no campaign yet.")
	d.ok("campaign", "create", spec(t, "rain", 20, 2_000))
	v.sees("/campaigns/rain", "Not loaded")
	d.ok("campaign", "load", "rain")
	v.sees("/", "Spring rain", "Raining")
	for i := range 12 {
		require.Equal(t, "granted", g.grab("rain", fmt.Sprint("u", i), "r1").Outcome)
	}
	w := d.start("work")
	testkit.Eventually(t, 30*time.Second, func() bool {
		return strings.Contains(v.sees("/campaigns/rain"), "All 12 winners are paid")
	}, "the worker pays")
	d.quiet()
	page := v.sees("/campaigns/rain", "of 20 packets", "60.0%", "All 12 winners are paid", "stay secret until the reveal", "What happened",
		"Pause the campaign")
	require.NotContains(t, page, `class="plan"`)
	v.sees("/sinks", "balance", "Alive")
	for range 2 {
		v.sees("/trail?campaign=rain&user=u3", "for u3", "Row of the ledger")
	}
	v.sees("/trail?campaign=rain&packet=4", "Packet 4")
	d.ok("receipts", "rain", "u3")
	u3 := "user_sha256:" + access.Hash("u3")
	require.Equal(t, map[string]int{"key:read_trails rain map[address:127.0.0.1 " + u3 + "]": 1,
		"key:read_trails rain map[address:127.0.0.1 packet:4]": 1, "cli:read_grants rain map[" + u3 + "]": 1}, d.reads())
	v.sees("/letters", "There is no dead letter here.")
	v.sees("/quarantine?all=1", "No grant is in quarantine.")
	v.sees("/jobs", "There is no replay.")
	v.sees("/campaigns/rain", "No audit has begun since this campaign was created.")
	d.ok("audit")
	v.sees("/campaigns/rain", "agreed")
	d.ok("campaign", "create", spec(t, "later", 20, 2_000))
	v.sees("/campaigns/later", "No audit has begun since this campaign was created.")

	status, _, _ := v.sends("/campaigns/rain/pause", url.Values{"why": {"wrong users"}})
	require.Equal(t, http.StatusSeeOther, status)
	require.Equal(t, store.StatePaused, d.show("rain").Redis.State)
	require.NotContains(t, v.sees("/campaigns/rain", "Resume the campaign",
		"Paused by key:"+strings.Split(v.key, "_")[1], "“wrong users”"), "Pause the campaign")
	require.Contains(t, d.ok("journal", "--json"), "pause_campaign")
	v.sees("/journal?campaign=rain", "pause_campaign", "key:"+strings.Split(v.key, "_")[1], "create_campaign", "cli:")
	require.NotContains(t, v.sees("/journal?who=key:"+strings.Split(v.key, "_")[1], "pause_campaign"), "create_campaign")
	require.Equal(t, http.StatusForbidden, (&visitor{t, v.base, d.key("viewer")}).
		statusOf(http.MethodPost, "/campaigns/rain/resume"))
	require.Equal(t, store.StatePaused, d.show("rain").Redis.State)
	require.Equal(t, http.StatusNotFound, (&visitor{t, v.base, d.key("operator", "--campaign", "other")}).
		statusOf(http.MethodGet, "/campaigns/rain"))

	d.ok("campaign", "close", "rain", "--early")
	d.quiet()
	ending := decided[campaigns.Ending](t, d.ok("campaign", "close", "rain", "--early", "--json"))
	d.ok("campaign", "refund", "rain", "--amount", fmt.Sprint(int64(ending.Amount)))
	d.ok("campaign", "reveal", "rain")
	page = v.sees("/campaigns/rain", "Refunded", `class="plan"`, "the revealed plan", "First grant",
		"<span>The plan is revealed</span>")
	amounts := page[strings.Index(page, `id="d-spread"`):strings.Index(page, `id="h-log"`)]
	require.Equal(t, 12, sumOf(amounts, `<td class="n">(\d+)</td><td class="n">`), "what was paid")
	require.Equal(t, 20, sumOf(amounts, `</td><td class="n">(\d+)</td></tr>`), "beside the whole plan")
	w.stop(syscall.SIGTERM)

	next := v.events("/sinks")
	next("event: live")
	next("event: live")
	g.Signal(syscall.SIGTERM) // it drains
	next("event: ending")
}

// If the state of one campaign in Redis can't be read, the page still lists all others. A campaign that Redis has lost
// is shown as frozen, as in the API.
func TestConsoleTellsOfEachCampaign(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	control := testkit.FreeAddr(t)
	g := d.serve("--control.listen=" + control)
	v := &visitor{t, "http://" + control, d.key("viewer")}
	for _, id := range []string{"rain", "broken"} {
		d.ok("campaign", "create", spec(t, id, 20, 2_000))
		d.ok("campaign", "load", id)
	}
	d.ok("campaign", "create", spec(t, "waits", 20, 2_000))
	v.sees("/campaigns/waits", "Not loaded")
	key := d.store.Home("broken").Keys.Campaign("broken")
	require.NoError(t, d.rdb.HSet(t.Context(), key, "packets", "many").Err())
	page := v.sees("/", "Raining", "Not read", "Redis could not return the state of campaign broken", "Not loaded")
	require.NotContains(t, page, "the state of campaign rain")
	v.sees("/campaigns/broken", "Not read", "Redis could not return the state of campaign broken")
	next := v.events("/")
	next("event: partial")
	next("Raining")

	for keys := d.rdb.Scan(t.Context(), 0, d.prefix+"*", 1000).Iterator(); keys.Next(t.Context()); {
		require.NoError(t, d.rdb.Del(t.Context(), keys.Val()).Err())
	}
	testkit.Eventually(t, 30*time.Second, func() bool {
		status, answer := g.call(http.MethodGet, "/v1/campaigns/rain", "k1", "u1", "")
		return status == http.StatusServiceUnavailable && strings.Contains(string(answer), "frozen")
	}, "the API says so")
	page = v.sees("/", ">campaign rain", ">campaign waits")
	require.Equal(t, 3, strings.Count(page, ">Frozen</span>"), page)
	v.sees("/campaigns/rain", "Frozen", "Grabs are refused")
	v.sees("/sinks", "balance", "status of shard 0 could not be read", "hongbao recover")
}

// The ledger is down for so long that cached API keys expire. The pages still show what Redis has. Pausing and resuming
// still work, and lead to a page that shows the new state.
func TestConsoleWithoutTheLedger(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	dsn, err := url.Parse(d.dsn)
	require.NoError(t, err)
	ledger, control := testkit.NewProxy(t, dsn.Host), testkit.FreeAddr(t)
	dsn.Host = ledger.Addr
	d.set("LEDGER_DSN", dsn.String())
	d.ok("campaign", "create", spec(t, "rain", 20, 2_000))
	d.ok("campaign", "load", "rain")
	d.serve("--control.listen=" + control)
	v := &visitor{t, "http://" + control, d.key("operator")}
	v.sees("/", "Spring rain", "Raining")
	next := v.events("/campaigns/rain")
	next("event: live")
	ledger.Refuse(true)
	ledger.CutAll()
	testkit.Eventually(t, time.Minute, func() bool {
		return v.statusOf(http.MethodGet, "/letters") == http.StatusServiceUnavailable
	}, "the cached keys have expired for other pages")
	v.sees("/", "Spring rain", "Raining", "The ledger can&#39;t be read")
	v.sees("/sinks", "balance", "Pause balance")
	v.sees("/jobs", "There is no replay.")
	for _, turn := range []struct{ button, at, shows string }{
		{"/campaigns/rain/pause", "/campaigns/rain", "Paused."}, {"/campaigns/rain/resume", "/campaigns/rain", "Resumed."},
		{"/sinks/balance/pause", "/sinks", "Paused."}, {"/sinks/balance/resume", "/sinks", "Resumed."},
	} {
		status, to, _ := v.sends(turn.button, url.Values{"why": {"the ledger is down"}})
		require.Equal(t, http.StatusSeeOther, status, turn.button)
		require.Contains(t, to, turn.at)
		v.sees(to, turn.shows)
	}
	for range 2 * 5 { // an open page checks its key again in this time
		next("event: partial")
	}
	ledger.Delay(time.Hour) // accepts requests, and never answers
	ledger.Refuse(false)
	v.sees("/", "Spring rain", "Raining", "The ledger can&#39;t be read")
	page := v.sees("/campaigns/rain", "Raining", "The ledger can&#39;t be read", "–<small>not read</small>")
	require.NotContains(t, page, "<small>0 grants", "an amount that can't be read is not shown as 0")
	require.NotContains(t, page, "Nothing is paid yet")
	require.Positive(t, ledger.Fired().Cut)
}

// An open campaign is listed before the drafts, also if 101 drafts are newer. Every draft is on some page.
func TestConsoleListsWhatRunsFirst(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	control := testkit.FreeAddr(t)
	d.serve("--control.listen=" + control)
	v := &visitor{t, "http://" + control, d.key("viewer")}
	d.campaign("rain", 20, 2_000)
	for i := range 101 {
		d.ok("campaign", "create", spec(t, fmt.Sprintf("draft-%03d", i), 1, 100))
	}
	page := v.sees("/", `id="c-rain"`, "Raining", "Next page")
	require.Less(t, strings.Index(page, `id="c-rain"`), strings.Index(page, `id="c-draft-`))
	require.Equal(t, 101, strings.Count(page, `id="c-`))
	next := v.sees("/?page=2", "Previous page", `id="c-rain"`, `id="c-draft-000"`)
	require.NotContains(t, next, "Next page")
	require.NotContains(t, v.sees("/?q=DRAFT-05", `id="c-draft-050"`, `id="c-draft-059"`), `id="c-draft-060"`)
	v.sees("/?q=nothing", "No campaign was found here.")
}
